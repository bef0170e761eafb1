"""``hyroads demo``: an emulated network, real traffic, a live view and a verdict against theory."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .emulate import RUN_ARGUMENTS, check_options, options, say
from .main import Command, argument


def _run(args: argparse.Namespace) -> int:
    # Only tables; what runs a demo takes a second to import.
    from hyroads.mininet.demos import ALONE, DEFAULTS, DEMOS, LEAST_SECONDS, ONLY, check_name, find_demo
    from hyroads.mininet.programs import EmulationError

    if args.list:
        for name, summary in DEMOS.items():
            print(f"{name:<14} {summary}")
        return 0
    if args.demo is None:
        raise EmulationError(f"no demo named; there are: {', '.join(DEMOS)}")
    check_name(args.demo)
    for name, demos in ONLY.items():
        if getattr(args, name) not in (None, False) and args.demo not in demos:
            raise EmulationError(
                f"--{name.replace('_', '-')}: not for the demo {args.demo} (only for {', '.join(sorted(demos))})"
            )
    for name, default in DEFAULTS.get(args.demo, {}).items():
        if getattr(args, name) in (None, False):
            setattr(args, name, default)
    bounds = {"seconds": (LEAST_SECONDS.get(args.demo, 2), 600), "minutes": (0.2, 1440), "scale": (0.05, 1)}
    given = {name: getattr(args, name) for name in bounds if getattr(args, name) is not None}
    for name, value in given.items():
        least, most = bounds[name]
        if not least <= value <= most:
            raise EmulationError(f"--{name} {value:g}: expected {least:g} to {most:g}")
    check_options(args)
    from hyroads.mininet.demos.checks import DemoOptions
    from hyroads.mininet.demos.verdict import run_demo

    how = DemoOptions(
        **given,
        long=args.long,
        faults=args.faults,
        json=args.json,
        live=not (args.json or args.plain) and sys.stdout.isatty(),
        out=None if args.out is None else Path(args.out),
    )
    if args.demo in ALONE:
        status: int = find_demo(args.demo).run_alone(how, args.name or args.demo, say)
        return status
    return run_demo(args.demo, how, options(args), args.name or args.demo, say)


COMMAND = Command(
    "Run a demo: an emulated network with agents and controller, real traffic, a live view, and a verdict against "
    "theory (needs root). Exit status 0: all checks hold, 1: one falls short, 2: it could not run, or one falls "
    "short on a machine that was too slow to be believed.",
    _run,
    argument("demo", nargs="?", metavar="NAME", help="which demo (see --list)"),
    argument("--list", action="store_true", help="list the demos"),
    argument("--json", action="store_true", help="no live view; one JSON document, last on stdout"),
    argument("--plain", action="store_true", help="lines instead of the live view"),
    argument("--seconds", type=float, metavar="S", help="length of each measurement (default 8; offload: 30)"),
    argument("--long", action="store_true", help="longer phases; triangle: also a minute of UDP and of TCP"),
    argument("--minutes", type=float, metavar="N", help="office: length (default 1; an hour: 60)"),
    argument("--scale", type=float, metavar="X", help="office: capacities, of the testbed's (default 0.25)"),
    argument("--faults", action="store_true", help="triangle: controller and agent killed, a link cut"),
    argument("--out", metavar="DIR", help="folder for CSV files and plots (default out/demo-NAME)"),
    *RUN_ARGUMENTS,
)
