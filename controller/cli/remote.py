"""What the commands over REST have in common: how the controller is reached, verbs, tables and JSON."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.document import load_document
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.documents import read_private
from hyroads.rest.client import DEFAULT_URL, Client

Document = dict[str, Any]
Column = tuple[str, Callable[[Document], Any]]
Arguments = Callable[[argparse.ArgumentParser], object]


@dataclass(frozen=True)
class Verb:
    """Something that a command does. ``do`` gives a document, a list of them or None; ``columns`` make its table."""

    name: str
    help: str
    do: Callable[[Client, argparse.Namespace], Any]
    arguments: Arguments = lambda parser: None
    columns: Sequence[Column] = ()


@dataclass(frozen=True)
class VerbCommand:
    """A command of ``hyroads`` that consists of verbs over REST: what ``main`` runs (``main.Command``)."""

    HELP: str
    verbs: Sequence[Verb]

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verbs with their arguments."""
        add_verbs(parser, self.verbs)

    def run(self, args: argparse.Namespace) -> int:
        """Carry out the verb that was given, or the first one; returns the exit status."""
        return run_verbs(args, self.verbs)


def add_verbs(parser: argparse.ArgumentParser, verbs: Sequence[Verb]) -> None:
    """A command with verbs; without one it does the first."""
    add_connection(parser)
    chosen = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for verb in verbs:
        each = chosen.add_parser(verb.name, help=verb.help, description=verb.help)
        add_connection(each, default=argparse.SUPPRESS)
        verb.arguments(each)


def add_connection(parser: argparse.ArgumentParser, **options: Any) -> None:
    """How the controller is reached, and in which form the answer is wanted."""
    text = {
        "--url": f"of the controller (default: HYROADS_URL, else {DEFAULT_URL})",
        "--token-file": "file (mode 0600) with a bearer token (default: HYROADS_TOKEN_FILE, else the token in "
        "HYROADS_TOKEN)",
    }
    for name, words in text.items():
        parser.add_argument(name, help=words, metavar=name[2:].upper(), **options)
    parser.add_argument("--json", action="store_true", help="print JSON", **options)


def run_verbs(args: argparse.Namespace, verbs: Sequence[Verb]) -> int:
    """Do what was asked for; the result is the exit status."""
    verb = next((one for one in verbs if one.name == args.verb), verbs[0])
    with connect(args) as client:
        answer = verb.do(client, args)
    show(answer, verb.columns, as_json=args.json)
    return 0


def connect(args: argparse.Namespace) -> Client:
    """A client for the controller that arguments and environment name."""
    url = args.url or os.environ.get("HYROADS_URL") or DEFAULT_URL
    file = args.token_file or os.environ.get("HYROADS_TOKEN_FILE")
    token = read_private(file).strip() if file else os.environ.get("HYROADS_TOKEN")
    if token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigError(file or "HYROADS_TOKEN", "", "expected one line with a token")
    return Client(url, token or None, ca=getattr(args, "ca", None))


def show(answer: Any, columns: Sequence[Column], *, as_json: bool) -> None:
    """As JSON, or as a table: a row for each document of a list, else a row for each key."""
    if as_json:
        print(json.dumps(answer, indent=2))
    elif isinstance(answer, list):
        print_table([title for title, _ in columns], ([cell(document) for _, cell in columns] for document in answer))
    elif isinstance(answer, dict):
        print_table(["", ""], ([key, value] for key, value in answer.items()), header=False)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[Any]], *, header: bool = True) -> None:
    """Plain columns; values are shown as they are, never taken for markup."""
    # Not before there is something to show: a wrong argument answers without this library.
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(*titles, box=None, show_header=header, pad_edge=False)
    for row in rows:
        table.add_row(*(escape(words(value)) for value in row))
    Console(highlight=False, soft_wrap=True).print(table)


def words(value: Any) -> str:
    """A value for people."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e6 else f"{value:.0f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {words(one)}" for key, one in value.items()) or "-"
    if isinstance(value, list):
        separator = "; " if any(isinstance(one, list | Mapping) for one in value) else " "
        return separator.join(words(one) for one in value) or "-"
    # What a terminal would obey is shown as text.
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in str(value))


def given(args: argparse.Namespace, *names: str) -> Document:
    """Those of the arguments that were given."""
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def add_no_wait(parser: argparse.ArgumentParser) -> None:
    """Whether to wait for confirmations."""
    parser.add_argument("--no-wait", action="store_true", help="do not wait until switches and agents confirmed")


def one(name: str, words: str) -> Arguments:
    """A single positional argument."""
    return lambda parser: parser.add_argument(name, metavar=name.upper(), help=words)


def place(text: str) -> tuple[str, str]:
    """``NODE/TECHNOLOGY``."""
    node, slash, technology = text.rpartition("/")
    if not (node and slash and technology):
        raise argparse.ArgumentTypeError(f"{text!r}: expected NODE/TECHNOLOGY")
    return node, technology


def pair(text: str) -> tuple[str, Any]:
    """``NAME=VALUE``, the value as YAML."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=VALUE")
    return name, load_document(value, text)
