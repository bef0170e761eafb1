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
from hyroads.controller.files.text import read_private
from hyroads.rest.client import DEFAULT_URL, Client, address

from .main import Argument, Command, add_all, argument

Document = dict[str, Any]
Cell = Callable[[Document], Any]
Do = Callable[[Client, argparse.Namespace], Any]
Cells = Mapping[str, Cell]
_WIDEST = 100_000
"""Columns of a table that no terminal shows: a line stays a line for grep and awk."""


@dataclass(frozen=True)
class Verb:
    """Something that a command does. ``do`` gives a document, a list of them or None; ``columns`` make its table."""

    name: str
    help: str
    do: Do
    arguments: Sequence[Argument] = ()
    columns: Cells | None = None


class VerbCommand(Command):
    """A command that consists of verbs over REST; without one it does the first."""

    def __init__(self, about: str, *verbs: Verb) -> None:
        super().__init__(about, self._run)
        self.verbs = verbs

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verbs with their arguments."""
        add_connection(parser)
        chosen = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
        for verb in self.verbs:
            each = chosen.add_parser(verb.name, help=verb.help, description=verb.help)
            add_connection(each, default=argparse.SUPPRESS)
            add_all(each, verb.arguments)

    def _run(self, args: argparse.Namespace) -> int:
        verb = next((one for one in self.verbs if one.name == args.verb), self.verbs[0])
        with connect(args) as client:
            answer = verb.do(client, args)
        return self.show(answer, verb, as_json=args.json)

    def show(self, answer: Any, verb: Verb, *, as_json: bool) -> int:
        """Print an answer; the result is the exit status."""
        show(answer, verb.columns or {}, as_json=as_json)
        return 0


def does(name: str, help: str, do: Do, *arguments: Argument) -> Verb:
    """A verb whose answer is shown as it is."""
    return Verb(name, help, do, arguments)


def lists(help: str, collection: str, titles: str, cells: Cells | None = None, name: str = "list") -> Verb:
    """The verb that lists all of a collection, which is the name of its REST resource; see :func:`columns`."""
    member = collection.replace("-", "_")

    def do(client: Client, _: argparse.Namespace) -> Any:
        return list(client.listed(f"/{collection}", member))

    return Verb(name, help, do, columns=columns(titles, cells))


def shows(help: str, collection: str, thing: str, words: str = "id") -> Verb:
    """The verb that shows one ``thing`` of a collection; ``words`` say what it is named by."""

    def do(client: Client, args: argparse.Namespace) -> Any:
        return client.get(address(collection, getattr(args, thing)))

    return does("show", help, do, named(thing, words))


def changes(name: str, help: str, method: str, where: str, words: str | None = None, *, waits: bool = True) -> Verb:
    """A verb that changes one thing by a request without body.

    ``where`` is its address as COLLECTION/THING, or COLLECTION/THING/WORD: the thing's id is the argument THING, and
    ``words`` its help. Without ``waits`` there is nothing to wait for.
    """
    collection, thing, *rest = where.split("/")

    def do(client: Client, args: argparse.Namespace) -> Any:
        path = address(collection, getattr(args, thing), *rest)
        return client.change(method, path, wait=not (waits and args.no_wait))

    return does(name, help, do, named(thing, words), *([NO_WAIT] if waits else []))


def columns(titles: str, cells: Cells | None = None) -> Cells:
    """Columns of a table by title: ``TITLE=MEMBER | TITLE=MEMBER``, or ``TITLE`` where the member has that name too.

    ``cells`` are functions of the document, by title, for what is not a member as it is.
    """
    pairs = [column.split("=") for column in titles.split(" | ")]
    return {pair[0].strip(): _member(pair[-1]) for pair in pairs} | dict(cells or {})


def _member(name: str) -> Cell:
    return lambda document: document.get(name)


def named(name: str, words: str | None = None, **options: Any) -> Argument:
    """A positional argument that is shown by its name in capitals, unless ``metavar`` says otherwise."""
    return argument(name, **{"metavar": name.upper(), "help": words, **options})


NO_WAIT = argument("--no-wait", action="store_true", help="do not wait until switches and agents confirmed")


def add_connection(parser: argparse.ArgumentParser, *, as_json: bool = True, **options: Any) -> None:
    """How the controller is reached, and in which form the answer is wanted."""
    text = {
        "--url": "of the controller, or of several that stand by for each other, with commas "
        f"(default: HYROADS_URL, else {DEFAULT_URL})",
        "--token-file": "file (mode 0600) with a bearer token (default: HYROADS_TOKEN_FILE, else the token in "
        "HYROADS_TOKEN)",
    }
    for name, words in text.items():
        parser.add_argument(name, help=words, metavar=name[2:].upper(), **options)
    if as_json:
        parser.add_argument("--json", action="store_true", help="print JSON", **options)


def connect(args: argparse.Namespace, **options: Any) -> Client:
    """A client, with more ``options``, for the controller that arguments and environment name."""
    url, token = connection(args)
    return Client(url, token, ca=getattr(args, "ca", None) or os.environ.get("HYROADS_CA"), **options)


def connection(args: argparse.Namespace) -> tuple[str, str | None]:
    """Address of the controller, and the token for it, as arguments and environment name them."""
    url = args.url or os.environ.get("HYROADS_URL") or DEFAULT_URL
    file = args.token_file or os.environ.get("HYROADS_TOKEN_FILE")
    token = read_private(file).strip() if file else os.environ.get("HYROADS_TOKEN")
    if token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigError(file or "HYROADS_TOKEN", "", "expected one line with a token")
    return url, token or None


def show(answer: Any, columns: Cells, *, as_json: bool) -> None:
    """As JSON, or as a table: a row for each document of a list, else a row for each key."""
    if as_json:
        print(json.dumps(answer, indent=2))
    elif isinstance(answer, list):
        print_table(list(columns), ([cell(document) for cell in columns.values()] for document in answer))
    elif isinstance(answer, dict):
        print_table(["", ""], ([key, value] for key, value in answer.items()), header=False)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[Any]], *, header: bool = True) -> None:
    """Plain columns; values are shown as they are, never taken for markup."""
    # Not before there is something to show: a wrong argument answers without this library.
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, show_header=header, pad_edge=False)
    for number, title in enumerate(titles):
        # The first column has the names that further commands need: they are never cut, the rest is folded.
        table.add_column(title, no_wrap=number == 0, overflow="ignore" if number == 0 else "fold")
    for row in rows:
        table.add_row(*(escape(words(value)) for value in row))
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDEST
    console.print(table)


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


def path(text: str) -> list[str]:
    """``LINK,LINK...``."""
    return text.split(",")
