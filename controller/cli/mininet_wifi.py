"""``hyroads mininet-wifi``: a network file on the user's Mininet-WiFi, with agents, controller and its prompt."""

from __future__ import annotations

import argparse
from typing import Any

from .emulate import say
from .main import Command, argument

PROPAGATION = ("friis", "logDistance", "logNormalShadowing", "ITU", "twoRayGround")
MOBILITY = ("RandomWalk", "TruncatedLevyWalk", "RandomDirection", "RandomWayPoint", "GaussMarkov")


def _run(args: argparse.Namespace) -> int:
    from hyroads.controller.files.documents import read_file
    from hyroads.mininet.programs import EmulationError
    from hyroads.mininet.run_directory import find_network, network_name

    path = find_network(args.network)
    network = read_file(path)
    if args.publish is not None and not 0 <= args.publish <= 0xFFFF:
        raise EmulationError(f"--publish {args.publish}: expected a port number, or 0")
    if args.exponent is not None and (args.propagation is None or not 1 <= args.exponent <= 10):
        raise EmulationError(f"--exponent {args.exponent:g}: expected 1 to 10, with --propagation")
    if args.script is not None:
        from pathlib import Path

        # The network's own directory is the present one while it runs.
        args.script = str(Path(args.script).resolve())
    from hyroads.mininet.emulation import EmulationOptions
    from hyroads.mininet.runner import RunOptions, run_network
    from hyroads.mininet.wifi_emulation import WifiEmulation, forget_folders, keep_running

    class Chosen(WifiEmulation):
        propagation = _propagation(args)
        mobility = _mobility(args)

    options = RunOptions(publish=args.publish, emulation=EmulationOptions(realtime=not args.no_realtime))
    name = args.name or network_name(path)
    try:
        return run_network(network, name, lambda e: keep_running(e, args.script), options, say, Chosen)
    finally:
        forget_folders()


def _propagation(args: argparse.Namespace) -> dict[str, Any]:
    exponent = {} if args.exponent is None else {"exp": args.exponent}
    return {} if args.propagation is None else {"model": args.propagation, **exponent}


def _mobility(args: argparse.Namespace) -> dict[str, Any]:
    return {} if args.mobility is None else {"time": 0, "model": args.mobility, "seed": args.seed}


COMMAND = Command(
    "Run a network file on an installed Mininet-WiFi, with agents, controller and Mininet-WiFi's prompt (needs root).",
    _run,
    argument("network", help="network file, or the name of one that comes with HyRoads"),
    argument("--script", metavar="FILE", help="run a file of Mininet-WiFi's commands, then end"),
    argument("--name", help="name of the network, of its namespaces and run directory (default: the file's)"),
    argument("--publish", type=int, metavar="PORT",
             help="REST on 127.0.0.1:PORT (default 8080 if free; 0: not published)"),
    argument("--no-realtime", action="store_true", help="normal instead of real-time priority (less exact)"),
    argument("--propagation", choices=PROPAGATION, help="propagation model of Mininet-WiFi, for nodes with positions"),
    argument("--exponent", type=float, metavar="X", help="with --propagation: how fast signals fade, 1 to 10"),
    argument("--mobility", choices=MOBILITY, help="mobility model of Mininet-WiFi, for stations without a position"),
    argument("--seed", type=int, default=1, help="of the mobility model (default 1)"),
)  # fmt: skip
