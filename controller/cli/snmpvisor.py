"""``hyroads snmpvisor``: the SNMP proxy in front of access points, a process of its own."""

from __future__ import annotations

import argparse
import logging

HELP = "Start the SNMP proxy: each slice sees and changes its own interfaces only (docs/explanation/slicing.md)."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--config", metavar="FILE", required=True, help="devices, interfaces, slices")
    parser.add_argument("--check", action="store_true", help="only check the file")


def run(args: argparse.Namespace) -> int:
    """Runs it in the foreground; the result is the exit status."""
    from hyroads.slices.snmpvisor.config import load
    from hyroads.slices.snmpvisor.server import serve

    if args.check:
        settings = load(args.config)
        print(f"{args.config}: {len(settings.devices)} devices, {len(settings.slices)} slices")
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return serve(args.config)
