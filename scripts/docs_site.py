"""What MkDocs calls while it builds the documentation (``hooks`` in mkdocs.yml): parts that the program itself knows.

``<!-- commands -->`` on a page becomes the help of every command. ``<!-- keys: NAME -->`` becomes a table of all keys
that the parser of this kind of file takes; a key that the page does not explain ends the build.
``<!-- sockets -->`` becomes the table of all sockets on which something listens (``controller/core/sockets.py``).
``<!-- screenshot: NAME: WORDS -->`` becomes the picture that tests/scenario/test_dashboard.py made, or nothing if it
did not. ``<!-- gallery -->`` becomes the plots and checks of all studies that ``make gallery`` carried out.

By itself, ``python scripts/docs_site.py`` prints what it would put into the pages.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from mkdocs.structure.files import File

from hyroads.controller.cli.main import COMMANDS, load
from hyroads.controller.cli.schema import KINDS
from hyroads.controller.core.checking import Place, Section
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.sockets import table as table_of_sockets
from hyroads.controller.study.framework import STUDIES

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

MARKER = "<!-- commands -->"
SOCKETS = "<!-- sockets -->"
COLUMNS = 96
"""How wide the help is written, whatever terminal the site is built on."""


_KINDS = {
    "network file": "network", "settings": "settings", "slices": "slices", "slicer": "slicer",
    "client policy": "client", "SNMPVisor": "snmpvisor",
}  # fmt: skip
PARSERS: dict[str, Callable[[object], object]] = {name: KINDS[kind][1] for name, kind in _KINDS.items()}
"""The files whose keys pages show; what a parser returns or raises is of no interest."""

_KEYS = re.compile(r"<!-- keys: (.+?) -->")
_TRIALS: tuple[Callable[[object], object], ...] = (
    lambda inner: inner,
    lambda inner: [inner],
    lambda inner: {"x": inner},
)
"""Where a mapping with known keys may be: right there, as an item of a list, under a key that the user chooses."""


_SCREENSHOT = re.compile(r"<!-- screenshot: (\w+): (.+?) -->")
BUILD = Path(__file__).resolve().parents[1] / "build"
SCREENSHOTS = BUILD / "screenshots"
GALLERY = "<!-- gallery -->"
GALLERY_FOLDER = BUILD / "studies"
"""Where ``make gallery`` puts the studies, each into a folder of its own."""


class DocumentationError(Exception):
    """A page does not say what it has to."""


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> None:
    """MkDocs' hook: the pictures that tests and studies have made are part of the site."""
    for picture in sorted(SCREENSHOTS.glob("*.png")):
        files.append(File.generated(config, f"screenshots/{picture.name}", abs_src_path=str(picture)))
    for name in carried_out():
        for path in sorted((GALLERY_FOLDER / name).glob("*.p[nd][gf]")):
            files.append(File.generated(config, f"studies/{name}/{path.name}", abs_src_path=str(path)))


def on_page_markdown(markdown: str, page: Page | None = None, **_: Any) -> str:
    """MkDocs' hook: the text of a page, with what its marks stand for."""
    up = "../" * page.file.src_uri.count("/") if page is not None else ""

    def picture(mark: re.Match[str]) -> str:
        there = (SCREENSHOTS / f"{mark[1]}.png").exists()
        return f"![{mark[2]}]({up}screenshots/{mark[1]}.png)" if there else ""

    markdown = _SCREENSHOT.sub(picture, markdown)
    for name in _KEYS.findall(markdown):
        missing = missing_keys(markdown, name)
        if missing:
            raise DocumentationError(f"the page of {name} does not explain: {', '.join(missing)}")
    markdown = _KEYS.sub(lambda mark: table_of_keys(mark[1]), markdown)
    if SOCKETS in markdown:
        markdown = markdown.replace(SOCKETS, table_of_sockets(figure))
    if GALLERY in markdown:
        markdown = markdown.replace(GALLERY, gallery())
    return markdown.replace(MARKER, all_commands()) if MARKER in markdown else markdown


def carried_out() -> list[str]:
    """The studies that ``make gallery`` has carried out."""
    return [name for name in STUDIES if (GALLERY_FOLDER / name / "report.md").is_file()]


def gallery() -> str:
    """Markdown: for each study the figures that it repeats, its command, its plots, and what was published."""
    if not carried_out():
        return "This site was built without plots: `make gallery` makes them, then `make docs` shows them."
    parts = []
    for name in carried_out():
        report = (GALLERY_FOLDER / name / "report.md").read_text(encoding="utf-8")
        top, _, rest = report.partition("\n## Published and ours\n")
        title, *about = [line for line in top.splitlines() if line.startswith(("# ", "Repeats: ", "Made by "))]
        plots = re.findall(r"^!\[(.*)\]\((\S+)\.png\)$", report, re.MULTILINE)
        pictures = [f"[![{words}](studies/{name}/{plot}.png)](studies/{name}/{plot}.pdf)" for words, plot in plots]
        parts += [
            f"## `{name}`: {title[2:]}",
            "\n\n".join(about),
            *pictures,
            re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0].strip(),
        ]
    return "\n\n".join(part for part in parts if part)


def figure(module: str, name: str) -> object:
    """The value of a name of a module, such as a limit."""
    return attrgetter(name)(importlib.import_module(module))


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


def keys_of(parse: Callable[[object], object]) -> dict[str, tuple[str, ...]]:
    """The keys that a parser takes at each place of its document (``links[].id``, ``nodes.NAME.role``).

    Found by trying: every parser reads a mapping by ``Place.section`` with the keys that it knows, and collects errors
    instead of ending at the first. So each key is given a mapping, in each of the forms of ``_TRIALS``, until no place
    is new.
    """
    found: dict[str, tuple[str, ...]] = {}
    waiting: list[Callable[[object], object]] = [lambda inner: inner]
    while waiting:
        around = waiting.pop(0)
        for form in _TRIALS:

            def whole(inner: object, around: Callable[[object], object] = around, form: Any = form) -> object:
                return around(form(inner))

            for place, keys in _sections(parse, whole({})).items():
                if place not in found:
                    found[place] = keys
                    waiting += [lambda inner, whole=whole, key=key: whole({key: inner}) for key in keys]  # type: ignore[misc]
    return found


def _sections(parse: Callable[[object], object], document: object) -> dict[str, tuple[str, ...]]:
    """The sections that a parser reads of one document: place -> keys."""
    found: dict[str, tuple[str, ...]] = {}
    section = Place.section

    def spy(place: Place, known: Collection[str], required: Collection[str] = ()) -> Section:
        if place.problems.document == "document":
            found.setdefault(re.sub(r"\bx\b", "NAME", place.path.replace("[0]", "[]")), tuple(known))
        return section(place, known, required)

    # Trials are wrong on purpose.
    with patch.object(Place, "section", spy), suppress(ConfigError, KeyError, TypeError, ValueError):
        parse(document)
    return found


def table_of_keys(name: str) -> str:
    """Markdown: all keys of a kind of file, a row for each place."""
    rows = [
        f"| {f'`{place}`' if place else 'top level'} | {', '.join(f'`{key}`' for key in keys)} |"
        for place, keys in keys_of(PARSERS[name]).items()
    ]
    return "\n".join(("| where | keys |", "|---|---|", *rows))


def missing_keys(page: str, name: str) -> list[str]:
    """The keys of a kind of file that its page does not explain: neither in a table or text, nor in an example."""
    return [
        f"{place}.{key}".lstrip(".")
        for place, keys in keys_of(PARSERS[name]).items()
        for key in keys
        if not re.search(rf"(?<!\w){re.escape(key)}(?::|`)", page)
    ]


if __name__ == "__main__":
    print(all_commands())
    for each in PARSERS:
        print(f"\n{each}\n\n{table_of_keys(each)}")
