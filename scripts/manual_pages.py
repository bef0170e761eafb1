"""Manual pages and completions of the command ``hyroads``, made from its parsers when packages are built."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator

import shtab
from argparse_manpage.manpage import Manpage

from hyroads.controller.cli.main import COMMANDS, load


def parser_tree() -> argparse.ArgumentParser:
    """All commands below one parser. The command itself loads only the one that is asked for."""
    tree = argparse.ArgumentParser("hyroads", description="SDN controller for hybrid networks.")
    tree.add_argument("--version", action="store_true", help="print the version")
    commands = tree.add_subparsers(metavar="COMMAND", title="commands")
    for name, (_, summary) in COMMANDS.items():
        load(name).add_arguments(commands.add_parser(name, help=summary, description=load(name).HELP))
    _list_choices(tree)
    return tree


def _list_choices(parser: argparse.ArgumentParser) -> None:
    """shtab takes choices in a dictionary for subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _list_choices(each)
        elif isinstance(action.choices, dict):
            action.choices = list(action.choices)


def manual_pages(version: str, date: str) -> Iterator[tuple[str, str]]:
    """Names of pages with their texts: ``hyroads.1`` lists the commands, ``hyroads-NAME.1`` is the page of each."""
    overview = argparse.ArgumentParser("hyroads", description=_overview())
    overview.add_argument("--version", action="store_true", help="print the version")
    yield "hyroads.1", _page(overview, "hyroads", "SDN controller for hybrid networks", version, date)
    for name, (_, summary) in COMMANDS.items():
        command = load(name)
        parser = argparse.ArgumentParser(f"hyroads {name}", description=command.HELP)
        command.add_arguments(parser)
        yield f"hyroads-{name}.1", _page(parser, f"hyroads-{name}", summary, version, date)


def edge_page(usage: str, version: str, date: str) -> str:
    """The page of ``hyroads-edge`` from what its ``--help`` prints."""
    synopsis, about, options = (part.strip("\n") for part in usage.split("\n\n", 2))
    lines = [f'.TH HYROADS\\-EDGE 8 "{date}" "HyRoads {version}"', ".SH NAME"]
    lines += ["hyroads\\-edge \\- splits flows over the paths of a hybrid network", ".SH SYNOPSIS", ".nf"]
    lines += [_roff(synopsis.removeprefix("usage: ")), ".fi", ".SH DESCRIPTION", _roff(" ".join(about.split()))]
    lines.append(".SH OPTIONS")
    for line in options.splitlines():
        option, _, meaning = line.strip().partition("  ")
        lines += [".TP", f"\\fB{_roff(option)}\\fR", _roff(meaning.strip())]
    return "\n".join(lines) + "\n"


def completion(shell: str) -> str:
    """The completion for ``bash`` or ``zsh``."""
    return str(shtab.complete(parser_tree(), shell=shell))


def _overview() -> str:
    return "The commands are: " + "; ".join(f"hyroads-{name}(1): {what}" for name, (_, what) in COMMANDS.items()) + "."


def _page(parser: argparse.ArgumentParser, name: str, summary: str, version: str, date: str) -> str:
    data = {"prog": name, "project_name": "HyRoads", "version": version, "manual_title": "HyRoads", "date": date}
    about = textwrap.shorten(summary, 200)
    page = Manpage(parser, format="single-commands-section", _data={**data, "manual_section": 1, "description": about})
    page.prog = name
    return str(page)


def _roff(text: str) -> str:
    return re.sub(r"(?m)^([.'])", r"\\&\1", text.replace("\\", "\\e").replace("-", "\\-"))
