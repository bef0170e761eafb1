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
from hyroads.controller.files.text import read_text

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
    _warn(list(desired.warnings))
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

    password = _password(args.password_file)
    return Client(Access(args.url, args.user, password, args.ca, args.fingerprint, args.legacy_tls))


def _password(path: str | None) -> str:
    if path is None:
        if ENVIRONMENT not in os.environ:
            raise ConfigError("arguments", "--password-file", f"expected it, or the variable {ENVIRONMENT}")
        return os.environ[ENVIRONMENT]
    return read_text(path).split("\n", 1)[0]


def _check(args: argparse.Namespace, desired: Desired) -> int:
    found = {"slices": len(desired.slices), "flowspace_entries": len(desired.rules), "warnings": list(desired.warnings)}
    words = (
        f"{args.slices}: {len(desired.slices)} slices, {len(desired.rules)} flowspace entries: possible on FlowVisor"
    )
    _say(args, found, [words])
    return 0


def _plan(args: argparse.Namespace, desired: Desired) -> int:
    from hyroads.slices.flowvisor.reconcile import disturbances, observe, steps

    def look(client: Client) -> dict[str, list[str]]:
        observed = observe(client)
        return {
            "steps": [step.what for step in steps(observed, desired)],
            "others": list(disturbances(observed, desired)),
        }

    found = _asked(args, desired, look)
    _warn(found["others"])
    _say(args, found, found["steps"])
    return 0


def _apply(args: argparse.Namespace, desired: Desired) -> int:
    from hyroads.slices.flowvisor.reconcile import Clock, disturbances, observe, reconcile

    def progress(number: int, of: int, step: Step) -> None:
        if not args.json:
            print(f"{number} of {of}: {step.what}", flush=True)

    def carry_out(client: Client) -> dict[str, list[str]]:
        done = reconcile(client, desired, Clock(time.monotonic, time.sleep), progress)
        return {"steps": [step.what for step in done], "others": list(disturbances(observe(client), desired))}

    found = _asked(args, desired, carry_out)
    _warn(found["others"])
    _say(args, found, [f"done: {len(found['steps'])} steps, read back and compared"])
    return 0


def _status(args: argparse.Namespace, desired: Desired) -> int:
    from hyroads.slices.flowvisor.reconcile import differences, disturbances, idle, observe

    def look(client: Client) -> dict[str, list[str]]:
        observed = observe(client)
        return {
            "differences": list(differences(observed, desired)),
            "others": list(disturbances(observed, desired)),
            "idle": list(idle(observed, desired)),
        }

    found = _asked(args, desired, look)
    wrong = [*found["differences"], *found["others"]]
    _say(args, found, [*(wrong or ["as the file says"]), *found["idle"]])
    return 1 if wrong else 0


def _asked(
    args: argparse.Namespace, desired: Desired, ask: Callable[[Client], dict[str, list[str]]]
) -> dict[str, list[str]]:
    client = _client(args)
    try:
        return {**ask(client), "warnings": list(desired.warnings)}
    finally:
        client.close()


def _warn(lines: list[str]) -> None:
    for line in lines:
        print(f"warning: {line}", file=sys.stderr)


def _say(args: argparse.Namespace, document: dict[str, Any], lines: list[str]) -> None:
    print(json.dumps(document) if args.json else "\n".join(lines))


def _watch(args: argparse.Namespace) -> int:
    from hyroads.slices.flowvisor.events import Event, Events

    def show(event: Event) -> None:
        words = event.kind if event.about is None else f"{event.kind} {json.dumps(event.about)}"
        print(json.dumps({"kind": event.kind, "about": event.about}) if args.json else words)
        sys.stdout.flush()

    client = _client(args)
    events = Events(show, host=args.listen)
    thread = threading.Thread(target=events.serve, daemon=True)
    thread.start()
    try:
        events.register(client)
        print(f"waiting for events at {events.address}, Ctrl-C ends", file=sys.stderr)
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
    argument("--fingerprint", metavar="SHA256", help="of its certificate, instead of --ca"),
    argument("--legacy-tls", action="store_true", help="for its default DSA key of 2013"),
    argument("--listen", metavar="HOST", default="127.0.0.1", help="where watch listens (default %(default)s)"),
    argument("--json", action="store_true", help="one JSON document (watch: one a line)"),
)
