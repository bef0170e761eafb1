"""``hyroads flowvisor``: slices on a FlowVisor 1.4 (OpenFlow 1.0) instead of our own slicer."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.text import read_private, read_text

from .main import Command, argument

if TYPE_CHECKING:
    from hyroads.slices.flowvisor.client import Client
    from hyroads.slices.flowvisor.desired import Desired
    from hyroads.slices.flowvisor.reconcile import Step

ENVIRONMENT = "HYROADS_FLOWVISOR_PASSWORD"
ACTIONS = {
    "check": "whether the slices can be had on a FlowVisor; connects to nothing",
    "plan": "what apply would do",
    "apply": "bring the FlowVisor to what the file says",
    "status": "what differs; exit status 1 if anything does",
    "watch": "print its events until Ctrl-C",
}


def _run(args: argparse.Namespace) -> int:
    if args.action == "watch":
        return _watch(args)
    if args.slices is None:
        raise ConfigError("arguments", "FILE", f"hyroads flowvisor {args.action} needs a file of slices")
    desired = _desired(args.slices)
    for warning in desired.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return _ACTIONS[args.action](args, desired)


def _desired(path: str) -> Desired:
    from hyroads.slices.core.slicefile import load_text
    from hyroads.slices.flowvisor.desired import PreflightError, desired_of

    try:
        return desired_of(load_text(read_text(path), path))
    except PreflightError as error:
        for refusal in error.refusals:
            print(f"refused: {refusal}", file=sys.stderr)
        raise


def _client(args: argparse.Namespace) -> Client:
    from hyroads.slices.flowvisor.client import Access, Client

    verify = not args.insecure
    return Client(Access(args.url, args.user, _password(args.password_file), args.ca, verify, args.legacy_tls))


def _password(path: str | None) -> str:
    if path is None:
        if ENVIRONMENT not in os.environ:
            raise ConfigError("arguments", "--password-file", f"expected it, or the variable {ENVIRONMENT}")
        return os.environ[ENVIRONMENT]
    return read_private(path).split("\n", 1)[0]


def _check(args: argparse.Namespace, desired: Desired) -> int:
    found = {"slices": len(desired.slices), "flowspace_entries": len(desired.rules), "warnings": list(desired.warnings)}
    words = (
        f"{args.slices}: {len(desired.slices)} slices, {len(desired.rules)} flowspace entries: possible on FlowVisor"
    )
    _say(args, found, [words])
    return 0


def _plan(args: argparse.Namespace, desired: Desired) -> int:
    from hyroads.slices.flowvisor.reconcile import observe, steps

    return _told(args, desired, lambda client: [step.what for step in steps(observe(client), desired)], "steps")


def _apply(args: argparse.Namespace, desired: Desired) -> int:
    from hyroads.slices.flowvisor.reconcile import Clock, reconcile

    def progress(number: int, of: int, step: Step) -> None:
        if not args.json:
            print(f"{number} of {of}: {step.what}", flush=True)

    def carry_out(client: Client) -> list[str]:
        done = reconcile(client, desired, Clock(time.monotonic, time.sleep), progress)
        return [step.what for step in done] if args.json else [f"done: {len(done)} steps, read back and compared"]

    return _told(args, desired, carry_out, "steps")


def _status(args: argparse.Namespace, desired: Desired) -> int:
    from hyroads.slices.flowvisor.reconcile import differences, observe

    found: list[str] = []

    def look(client: Client) -> list[str]:
        found.extend(differences(observe(client), desired))
        return found if found or args.json else ["as the file says"]

    _told(args, desired, look, "differences")
    return 1 if found else 0


def _told(args: argparse.Namespace, desired: Desired, ask: Callable[[Client], list[str]], what: str) -> int:
    client = _client(args)
    try:
        lines = ask(client)
    finally:
        client.close()
    _say(args, {what: lines, "warnings": list(desired.warnings)}, lines)
    return 0


def _say(args: argparse.Namespace, document: dict[str, Any], lines: list[str]) -> None:
    print(json.dumps(document) if args.json else "\n".join(lines))


def _watch(args: argparse.Namespace) -> int:
    from hyroads.slices.flowvisor.client import Event, Events

    def show(event: Event) -> None:
        print(json.dumps({"kind": event.kind, "about": event.about}) if args.json else f"{event.kind} {event.about}")
        sys.stdout.flush()

    client = _client(args)
    events = Events(show, host=args.listen)
    thread = threading.Thread(target=events.serve, daemon=True)
    thread.start()
    try:
        events.register(client)
        print(f"waiting for events at {events.url}, Ctrl-C ends", file=sys.stderr)
        thread.join()
    except KeyboardInterrupt:
        events.unregister(client)
    finally:
        events.close()
        client.close()
    return 0


_ACTIONS: dict[str, Callable[[argparse.Namespace, Desired], int]] = {
    "check": _check,
    "plan": _plan,
    "apply": _apply,
    "status": _status,
}


COMMAND = Command(
    "Check, compare and apply slices on a FlowVisor 1.4, or watch its events (docs/explanation/slicing.md).",
    _run,
    argument("action", choices=ACTIONS, help="; ".join(f"{name}: {what}" for name, what in ACTIONS.items())),
    argument("slices", metavar="FILE", nargs="?", help="slices, as for hyroads slicer (not for watch)"),
    argument("--url", default="https://127.0.0.1:8081/", help="its JSON-RPC port (default %(default)s)"),
    argument("--user", default="fvadmin", help="user name (default %(default)s)"),
    argument(
        "--password-file", metavar="FILE", help=f"first line is the password (default: the variable {ENVIRONMENT})"
    ),
    argument("--ca", metavar="FILE", help="certificate of the authority that signed its certificate"),
    argument("--insecure", action="store_true", help="believe any certificate"),
    argument("--legacy-tls", action="store_true", help="for its default DSA key of 2013"),
    argument("--listen", metavar="HOST", default="127.0.0.1", help="where watch listens (default %(default)s)"),
    argument("--json", action="store_true", help="one JSON document (watch: one a line)"),
)
