"""``hyroads slices queues``: the queues of slices at the ports of an Open vSwitch (docs/reference/slicer.md,
*Queues*)."""

from __future__ import annotations

import argparse
import shlex
import subprocess
from typing import Any

from hyroads.controller.core.errors import ConfigError, HyroadsError

from .main import argument, either
from .remote import named

WORDS = "make the queues of slices at this machine's Open vSwitch, or print how"
_TIMEOUT_S = 20
_MOST_MBPS = 1e6


ARGUMENTS = (
    named("file", "the file of slices; not with --clear", nargs="?"),
    argument("--bridge", metavar="NAME", help="all ports of this bridge"),
    argument("--port", action="append", metavar="NAME", help="this port; may be repeated"),
    argument("--rate-mbps", type=float, metavar="R", help="what a port carries (default: as its link says)"),
    either(
        argument("--apply", action="store_true", help="carry the commands out, as far as anything differs"),
        argument("--clear", action="store_true", help="take away all queues that this made, and nothing else"),
    ),
)


def run(_: object, args: argparse.Namespace) -> list[str]:
    """The commands, carried out or not."""
    from hyroads.slices.core.queues import Switch, queues_of, to_apply, to_clear

    if args.rate_mbps is not None and not 0 < args.rate_mbps <= _MOST_MBPS:
        raise ConfigError("arguments", "--rate-mbps", f"expected a rate above 0, at most {_MOST_MBPS:g}")
    if args.clear:
        if args.file:
            raise ConfigError("arguments", "FILE", "expected none with --clear")
        there = _switch()
        wanted = list(there.ports) if not args.bridge and not args.port else _ports(args)
        return _carried_out(to_clear(there, wanted))
    if not args.file:
        raise ConfigError("arguments", "FILE", "is missing")
    queues, ports = queues_of(_model(args.file)), _ports(args)
    if args.apply:
        return _carried_out(to_apply(queues, _switch(), ports, args.rate_mbps))
    return [shlex.join(("ovs-vsctl", *words)) for words in to_apply(queues, Switch(), ports, args.rate_mbps)]


def _model(file: str) -> Any:
    from hyroads.controller.files.text import read_text
    from hyroads.slices.core.slicefile import load_text

    return load_text(read_text(file), file)


def _ports(args: argparse.Namespace) -> list[str]:
    named = list(args.port or ())
    if args.bridge:
        named += _vsctl("list-ports", args.bridge).split()
    if not named:
        raise ConfigError("arguments", "--port", "expected at least one port, or a --bridge that has some")
    return list(dict.fromkeys(named))


def _switch() -> Any:
    from hyroads.slices.core.queues import QUESTIONS, switch_of

    return switch_of(*(_vsctl(*question) for question in QUESTIONS))


def _carried_out(calls: list[tuple[str, ...]]) -> list[str]:
    for words in calls:
        _vsctl(*words)
    return [shlex.join(("ovs-vsctl", *words)) for words in calls]


def _vsctl(*words: str) -> str:
    try:
        done = subprocess.run(
            ("ovs-vsctl", f"--timeout={_TIMEOUT_S}", *words), check=False, capture_output=True, text=True
        )
    except OSError as error:
        raise HyroadsError(f"ovs-vsctl: {error.strerror} (apt-get install openvswitch-switch)") from error
    if done.returncode:
        raise HyroadsError(f"ovs-vsctl: {(done.stderr.strip() or 'failed').splitlines()[-1][:300]}")
    return done.stdout
