"""``hyroads controller``: starts the controller."""

from __future__ import annotations

import argparse

HELP = "Start the controller (the same as ryu-manager hyroads.controller.app, with quieter logs)."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--config", metavar="FILE", help="settings (default $HYROADS_CONFIG, /etc/hyroads/hyroads.yaml)"
    )
    parser.add_argument("--network", metavar="FILE", help="network file; makes the settings file optional")
    parser.add_argument("--verbose", action="store_true", help="the framework's own messages too")


def run(args: argparse.Namespace) -> int:
    """Runs it in the foreground; the result is the exit status."""
    from hyroads.controller.launcher import run_controller

    return run_controller(args.config, args.network, verbose=args.verbose)
