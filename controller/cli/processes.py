"""``hyroads controller``, ``slicer``, ``snmpvisor``: processes that run until they are told to end.

Each imports its program when it runs, so that ``--help`` and wrong arguments answer at once.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping


def _check_files(environment: Mapping[str, str]) -> None:
    """Say what is wrong with the settings or the network before the framework is imported, which takes seconds."""
    from hyroads.controller.files.documents import read_file
    from hyroads.controller.settings.controller import MEASURED, load

    settings = load(environment)
    read_file(settings.network, measured=settings.capacities == MEASURED)


class _Controller:
    """The command ``controller``."""

    HELP = "Start the controller (the same as ryu-manager hyroads.controller.app, with quieter logs)."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        parser.add_argument(
            "--config", metavar="FILE", help="settings (default $HYROADS_CONFIG, /etc/hyroads/hyroads.yaml)"
        )
        parser.add_argument("--network", metavar="FILE", help="network file; makes the settings file optional")
        parser.add_argument("--verbose", action="store_true", help="the framework's own messages too")

    def run(self, args: argparse.Namespace) -> int:
        """Runs it in the foreground; the result is the exit status."""
        given = {"HYROADS_CONFIG": args.config, "HYROADS_NETWORK": args.network}
        _check_files({**os.environ, **{name: file for name, file in given.items() if file is not None}})
        from hyroads.controller.framework.launcher import run_controller

        return run_controller(args.config, args.network, verbose=args.verbose)


class _Slicer:
    """The command ``slicer``."""

    HELP = (
        "Start the slicer: OpenFlow 1.3 between switches and several slices' controllers (docs/explanation/slicing.md)."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        parser.add_argument("--config", metavar="FILE", required=True, help="settings and slices")
        parser.add_argument("--check", action="store_true", help="only check the settings and the slices")
        parser.add_argument("--verbose", action="store_true", help="more of what happens")

    def run(self, args: argparse.Namespace) -> int:
        """Runs it in the foreground; the result is the exit status."""
        if args.check:
            from hyroads.slices.server.settings import load

            model = load(args.config).model
            print(f"{args.config}: {len(model.slices)} slices, {model.matches} flowspace rules")
            return 0
        from hyroads.slices.server.run import run as serve

        return serve(args.config, verbose=args.verbose)


class _Snmpvisor:
    """The command ``snmpvisor``."""

    HELP = "Start the SNMP proxy: each slice sees and changes its own interfaces only (docs/explanation/slicing.md)."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        parser.add_argument("--config", metavar="FILE", required=True, help="devices, interfaces, slices")
        parser.add_argument("--check", action="store_true", help="only check the file")

    def run(self, args: argparse.Namespace) -> int:
        """Runs it in the foreground; the result is the exit status."""
        from hyroads.slices.snmpvisor.config import load
        from hyroads.slices.snmpvisor.server import serve

        if args.check:
            settings = load(args.config)
            print(f"{args.config}: {len(settings.devices)} devices, {len(settings.slices)} slices")
            return 0
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        return serve(args.config)


CONTROLLER = _Controller()
SLICER = _Slicer()
SNMPVISOR = _Snmpvisor()
