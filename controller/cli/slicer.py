"""``hyroads slicer``: the slicing proxy, a process of its own."""

from __future__ import annotations

import argparse

HELP = "Start the slicer: OpenFlow 1.3 between switches and several slices' controllers (docs/explanation/slicing.md)."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--config", metavar="FILE", required=True, help="settings and slices")
    parser.add_argument("--check", action="store_true", help="only check the settings and the slices")
    parser.add_argument("--verbose", action="store_true", help="more of what happens")


def run(args: argparse.Namespace) -> int:
    """Runs it in the foreground; the result is the exit status."""
    if args.check:
        from hyroads.slices.server.settings import load

        model = load(args.config).model
        print(f"{args.config}: {len(model.slices)} slices, {model.matches} flowspace rules")
        return 0
    from hyroads.slices.server.run import run as serve

    return serve(args.config, verbose=args.verbose)
