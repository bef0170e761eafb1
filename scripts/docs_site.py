"""What MkDocs calls while it builds the documentation (``hooks`` in mkdocs.yml): the reference of the command line.

By itself, ``python scripts/docs_site.py`` prints what it would put into that page.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

from hyroads.controller.cli.main import COMMANDS, load

MARKER = "<!-- commands -->"
COLUMNS = 96
"""How wide the help is written, whatever terminal the site is built on."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs' hook: the text of a page, with all commands where it marks them."""
    return markdown.replace(MARKER, all_commands()) if MARKER in markdown else markdown


def all_commands() -> str:
    """Markdown: a section for each command, and in it one for each of its verbs, with what ``--help`` prints."""
    os.environ["COLUMNS"] = str(COLUMNS)
    return "\n".join(line for name in COMMANDS for line in _section(f"hyroads {name}", parser_of(name), "##"))


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of one command, made as the command line makes it."""
    command = load(name)
    parser = argparse.ArgumentParser(prog=f"hyroads {name}", description=command.HELP)
    command.add_arguments(parser)
    return parser


def verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The verbs of a command with their parsers, in the order in which it lists them."""
    # argparse has no public way to ask a parser for its subcommands.
    choices = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {verb: each for given in choices for verb, each in given.items()}


def _section(words: str, parser: argparse.ArgumentParser, level: str) -> Iterator[str]:
    yield f"{level} `{words}`\n\n```text\n{parser.format_help().rstrip()}\n```\n"
    for verb, each in verbs_of(parser).items():
        yield from _section(f"{words} {verb}", each, level + "#")


if __name__ == "__main__":
    print(all_commands())
