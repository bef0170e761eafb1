"""``hyroads chaos``: parts of an emulated network are broken under traffic, and must come back."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .emulate import RUN_ARGUMENTS, check_options, options, say
from .main import Command, argument

if TYPE_CHECKING:
    from hyroads.controller.core.network import Network

MINUTES, SEED = 10.0, 1
OFFICE = "office"
_MINUTES = (0.2, 1440.0)
# What runs on media of the kernel's, or is no part of one network with one kind of controllers.
_NOT_HERE = ("regions", "radio")


def _run(args: argparse.Namespace) -> int:
    from hyroads.mininet.programs import EmulationError

    least, most = _MINUTES
    if not least <= args.minutes <= most:
        raise EmulationError(f"--minutes {args.minutes:g}: expected {least:g} to {most:g}")
    if args.seed < 0:
        raise EmulationError(f"--seed {args.seed}: expected 0 or more")
    for option in _NOT_HERE:
        if getattr(args, option):
            raise EmulationError(f"--{option}: not with chaos")
    out = None if args.out is None else Path(args.out)
    if out is not None and not out.absolute().parent.is_dir():
        raise EmulationError(f"--out {args.out}: no such folder")
    check_options(args)
    args.etcd_members = (args.etcd_members or 1) if (args.controllers or 1) > 1 else 0
    args.radios = not args.measured
    network, name = _network(args.network)

    from hyroads.controller.core.addressing import Addressing
    from hyroads.mininet.chaos.run import ChaosOptions, events_of, run_chaos

    Addressing.of(network, args.network)
    how, run_options = ChaosOptions(args.minutes, args.seed, tuple(args.only), out), options(args)
    if args.plan:
        events, lacking = events_of(network, how, run_options.emulation)
        print("".join(f"left out: {words}\n" for words in lacking), end="")
        for event in events:
            print(f"{event.number:4}  {event.hold_s:4.1f} s  {event}")
        return 0
    return run_chaos(network, args.name or name, how, run_options, say)


def _network(given: str) -> tuple[Network, str]:
    """The network of a file, or that of the demo ``office``, which has none; and a name for it."""
    from hyroads.controller.files.documents import read_file
    from hyroads.mininet.run_directory import find_network, network_name

    if given == OFFICE and not Path(given).is_file():
        from hyroads.mininet.demos.checks import DemoOptions
        from hyroads.mininet.demos.office import network

        return network(DemoOptions()), OFFICE
    path = find_network(given)
    return read_file(path), network_name(path)


COMMAND = Command(
    "Break parts of an emulated network, one after the other and in pairs, under pings, UDP and TCP, and see that all "
    "is as before after each (needs root). Exit status 0: all healed and nothing was wrong, 1: not so, 2: it could not "
    "run.",
    _run,
    argument("network", help=f"network file, the name of one that comes with HyRoads (triangle), or {OFFICE}"),
    argument("--minutes", type=float, default=MINUTES, help=f"how long, about (default {MINUTES:g})"),
    argument("--seed", type=int, default=SEED, help=f"the same seed, the same sequence of events (default {SEED})"),
    argument(
        "--only",
        nargs="+",
        metavar="WORDS",
        default=[],
        help="only faults whose names contain one of these, as 'agent: kill'",
    ),
    argument("--out", metavar="FILE", help="write a report as JSON"),
    argument("--plan", action="store_true", help="only print what would be broken, on this machine"),
    *RUN_ARGUMENTS,
)
