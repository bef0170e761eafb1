"""``hyroads ssids``: the wireless networks of slices, on all access points."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.controller.files.text import read_text

from .main import Command, argument

if TYPE_CHECKING:
    from hyroads.slices.core.model import SliceModel
    from hyroads.slices.ssids.client import Client
    from hyroads.slices.ssids.desired import Points
    from hyroads.slices.ssids.rows import Outcome

SOCKET = os.environ.get("HYROADS_SLICER_SOCKET", "/run/hyroads/slicer.sock")
ACTIONS = {
    "plan": "what apply would do; exit status 1 if there is anything",
    "apply": "bring the access points, and the slices' ports at the slicer, to what the slices say",
    "run": "apply, then again whenever the slices change, until Ctrl-C",
}
EVERY_S = 2.0
RETRY_S = 10.0
_PASSPHRASE = re.compile(r"[ -~]{8,63}")


def _run(args: argparse.Namespace) -> int:
    from hyroads.slices.ssids.desired import load

    points = load(args.access_points)
    if args.action == "run":
        return _Supervisor(args, points).run()
    outcomes = _reconcile(args, points, _model(args), dry=args.action == "plan")
    _say(args, outcomes)
    if any(each.problem for each in outcomes):
        return 2
    return int(args.action == "plan" and any(each.words for each in outcomes))


def _model(args: argparse.Namespace) -> SliceModel:
    """Of the file, or of the slicer that runs."""
    from hyroads.rest.client import Client
    from hyroads.rest.endpoint import UNIX
    from hyroads.slices.core.slicefile import load_text, parse

    if args.slices is not None:
        return load_text(read_text(args.slices), args.slices)
    with Client(f"{UNIX}{args.socket}") as slicer:
        return parse({"slices": list(slicer.listed("/slices", "slices"))}, args.socket)


def _reconcile(args: argparse.Namespace, points: Points, model: SliceModel, *, dry: bool = False) -> list[Outcome]:
    from hyroads.slices.ssids.client import Client
    from hyroads.slices.ssids.rows import reconcile

    folder = Path(args.slices or args.access_points).parent
    clients: dict[str, Client] = {}

    def agent_of(name: str) -> Client:
        clients[name] = Client(points.devices[name])
        return clients[name]

    try:
        outcomes = reconcile(model, points.points, lambda files: _passphrases(folder, files), agent_of, dry=dry)
    finally:
        for client in clients.values():
            client.close()
    if args.slices is None:
        outcomes += _ports(args, points, model, dry=dry)
    return outcomes


def _passphrases(folder: Path, files: Sequence[str]) -> Mapping[str, str]:
    """The first lines of files, which only their owner may read; names are relative to ``folder``."""
    found = {}
    for name in files:
        path = folder / name
        try:
            with path.open(encoding="utf-8") as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise ConfigError(str(path), "", "expected mode 0600: it holds a passphrase")
                found[name] = file.readline(256).rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(str(path), "", f"can't be read: {error}") from error
        if not _PASSPHRASE.fullmatch(found[name]):
            raise ConfigError(str(path), "", "expected a passphrase of 8 to 63 printable characters on the first line")
    return found


def _ports(args: argparse.Namespace, points: Points, model: SliceModel, *, dry: bool) -> list[Outcome]:
    """The slices at the slicer get the ports of their networks; the slicer waits for ports that are not there yet."""
    from hyroads.rest.client import Client, ClientError, address
    from hyroads.rest.endpoint import UNIX
    from hyroads.slices.core.slicefile import slice_document
    from hyroads.slices.ssids.desired import with_ports
    from hyroads.slices.ssids.rows import Outcome

    outcomes = []
    for each in model.slices.values():
        changed = with_ports(each, points.points)
        if changed == each:
            continue
        words = (f"ports of slice {each.name}",)
        try:
            if not dry:
                with Client(f"{UNIX}{args.socket}") as slicer:
                    flowspace = {"flowspace": slice_document(changed)["flowspace"]}
                    slicer.change("PUT", address("slices", each.name, "flowspace"), flowspace)
        except ClientError as error:
            outcomes.append(Outcome("slicer", words, str(error)))
        else:
            outcomes.append(Outcome("slicer", words))
    return outcomes


def _say(args: argparse.Namespace, outcomes: Sequence[Outcome]) -> None:
    if args.json:
        print(
            json.dumps([_document(each) for each in outcomes], indent=None if args.action == "run" else 2), flush=True
        )
    for each in outcomes:
        if not args.json:
            print("\n".join(f"{each.point}: {word}" for word in each.words or ("as wanted",)), flush=True)
        if each.problem is not None:
            print(f"hyroads ssids: {each.problem}", file=sys.stderr, flush=True)


def _document(outcome: Outcome) -> dict[str, Any]:
    return {"at": outcome.point, "steps": list(outcome.words), "problem": outcome.problem}


class _Supervisor:
    """Applies at the start, whenever the slices change, and again after a while what went wrong.

    What the owner of a slice sets on its own networks meanwhile stays until the slices change.
    """

    def __init__(self, args: argparse.Namespace, points: Points) -> None:
        self._args, self._points = args, points
        self._ended = threading.Event()
        self._applied: SliceModel | None = None
        self._again_s: float | None = None

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._ended.set())
        while True:
            self._look(time.monotonic())
            if self._ended.wait(EVERY_S):
                return 0

    def _look(self, now_s: float) -> None:
        try:
            model = _model(self._args)
            if model == self._applied and (self._again_s is None or now_s < self._again_s):
                return
            outcomes = _reconcile(self._args, self._points, model)
            # The slices' ports are a change of ours.
            self._applied = _model(self._args)
        except HyroadsError as error:
            print(f"hyroads ssids: {error}", file=sys.stderr, flush=True)
            return
        self._again_s = now_s + RETRY_S if any(each.problem for each in outcomes) else None
        _say(self._args, [each for each in outcomes if each.words or each.problem])


COMMAND = Command(
    "Plan, apply and keep the wireless networks of slices on all access points (docs/explanation/slicing.md).",
    _run,
    argument("action", choices=ACTIONS, help="; ".join(f"{name}: {what}" for name, what in ACTIONS.items())),
    argument("--access-points", required=True, metavar="FILE", help="how access points are reached (YAML)"),
    argument("--slices", metavar="FILE", help="a file of slices, instead of those of the running slicer"),
    argument("--socket", default=SOCKET, metavar="PATH", help="the slicer's control socket (%(default)s)"),
    argument("--json", action="store_true", help="print JSON (run: one document a line)"),
)
