"""``hyroads controller``, ``slicer``, ``snmpvisor``: processes that run until they are told to end.

Each imports its program when it runs, and after it has found its files: ``--help`` and wrong arguments answer at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.text import read_text

from .main import Command, argument, either


def _run_controller(args: argparse.Namespace) -> int:
    given = {"HYROADS_CONFIG": args.config, "HYROADS_NETWORK": args.network}
    environment = {**os.environ, **{name: file for name, file in given.items() if file is not None}}
    for name in given:
        if environment.get(name):
            read_text(environment[name])
    from hyroads.controller.settings.controller import load

    if args.check:
        return _check_controller(environment)
    # The application reads both again and checks the network, but only after the framework is imported.
    read_text(load(environment).network)
    from hyroads.controller.framework.launcher import run_controller

    return run_controller(args.config, args.network, verbose=args.verbose, log_format=args.log_format)


def _check_controller(environment: Mapping[str, str]) -> int:
    """All errors of the first file that has some, as a start or a reload would meet them."""
    from hyroads.controller.runtime.files import read_files

    try:
        files = read_files(environment)
    except ConfigError as error:
        for each in (error, *error.more):
            print(f"hyroads: {each}", file=sys.stderr)
        return 2
    network = files.network
    size = f"{len(network.nodes)} nodes, {len(network.links)} links, {len(network.flows)} flows"
    print(f"{environment.get('HYROADS_CONFIG') or files.settings.network}: ok; {files.settings.network}: {size}")
    return 0


CONTROLLER = Command(
    "Start the controller (the same as ryu-manager hyroads.controller.app, with quieter logs).",
    _run_controller,
    argument("--config", metavar="FILE", help="settings (default $HYROADS_CONFIG, /etc/hyroads/hyroads.yaml)"),
    argument("--network", metavar="FILE", help="network file; makes the settings file optional"),
    argument("--check", action="store_true", help="only check settings and network file"),
    argument("--log-format", choices=("text", "json"), help="of the log on stderr (default text)"),
    argument("--verbose", action="store_true", help="the framework's own messages too"),
)


def _run_slicer(args: argparse.Namespace) -> int:
    read_text(args.config)
    if args.check:
        from hyroads.slices.server.settings import load

        model = load(args.config).model
        print(f"{args.config}: {len(model.slices)} slices, {model.matches} flowspace rules")
        return 0
    from hyroads.slices.server.run import run as serve

    return serve(args.config, verbose=args.verbose)


SLICER = Command(
    "Start the slicer: OpenFlow 1.3 between switches and several slices' controllers (docs/explanation/slicing.md).",
    _run_slicer,
    argument("--config", metavar="FILE", required=True, help="settings and slices"),
    argument("--check", action="store_true", help="only check the settings and the slices"),
    argument("--verbose", action="store_true", help="more of what happens"),
)


def _run_snmpvisor(args: argparse.Namespace) -> int:
    from hyroads.slices.snmpvisor.config import load

    if args.check:
        settings = load(args.config)
        print(f"{args.config}: {len(settings.devices)} devices, {len(settings.slices)} slices")
        return 0
    from hyroads.slices.snmpvisor.server import serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return serve(args.config)


SNMPVISOR = Command(
    "Start the SNMP proxy: each slice sees and changes its own interfaces only (docs/explanation/slicing.md).",
    _run_snmpvisor,
    argument("--config", metavar="FILE", required=True, help="devices, interfaces, slices"),
    argument("--check", action="store_true", help="only check the file"),
)


def _run_guest_network(args: argparse.Namespace) -> int:
    from hyroads.controller.guest.process import load, serve
    from hyroads.controller.guest.rules import dnsmasq_options, nft_rules

    settings = load(args.config)
    if args.state_directory is not None:
        settings = replace(settings, state_directory=args.state_directory)
    if args.check:
        print(f"{args.config}: {settings.network} at {settings.interface}, at most {settings.leases} guests")
        return 0
    if args.show:
        print(f"# nft -f\n{nft_rules(settings)}\n# dnsmasq.conf")
        print(dnsmasq_options(settings, PurePath(settings.state_directory)), end="")
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return serve(settings)


GUEST_NETWORK = Command(
    "Keep a guest network on this gateway until Ctrl-C: DHCP, DNS, NAT (docs/how-to/guest-network.md).",
    _run_guest_network,
    argument("--config", metavar="FILE", required=True, help="interfaces and what guests get"),
    argument("--state-directory", metavar="DIR", help="instead of the file's state_directory"),
    either(
        argument("--check", action="store_true", help="only check the file"),
        argument("--show", action="store_true", help="only print what nftables and dnsmasq would be told"),
    ),
)
