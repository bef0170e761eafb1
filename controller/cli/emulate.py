"""``hyroads emulate``: an emulated network with agents and controller that runs until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .dashboard import DEFAULT_PORT
from .main import Command, argument

if TYPE_CHECKING:
    from hyroads.controller.core.network import Network
    from hyroads.mininet.runner import RunOptions

ERRORS = {
    "noise": ("--noise", "relative standard deviation of capacity estimates (default 0)"),
    "busy_noise": ("--busy-noise", "relative standard deviation of busy times (default 0)"),
    "low_rate_bias": ("--low-rate-bias", "how much too low a link without traffic is taken to be, 0 to 1 (default 0)"),
    "hold_s": ("--noise-hold", "seconds for which an estimate errs alike (default 0.1)"),
}
"""The errors of emulated radios: key of ``EstimateErrors`` -> option and help."""
RADIO_HOLD_S = 0.1
MOST_CONTROLLERS = 5


def _measuring(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("measured capacities (docs/reference/measurement.md, section 5)")
    group.add_argument("--measured", action="store_true", help="the controller knows only what emulated radios measure")
    group.add_argument("--discover", action="store_true", help="with --measured: it is not told of the links either")
    group.add_argument(
        "--radios", action="store_true", help="emulated radios tell busy times, capacities are the file's"
    )
    group.add_argument("--pair-tests", action="store_true", help="with --measured: idle links are tested for conflicts")
    for name, (option, text) in ERRORS.items():
        group.add_argument(option, dest=name, type=float, metavar="X", help=text)


RUN_ARGUMENTS = (
    argument("--name", help="name of the network, of its namespaces and run directory (default: the file's)"),
    argument("--publish", type=int, metavar="PORT",
             help="REST on 127.0.0.1:PORT (default 8080 if free; 0: not published)"),
    argument("--radio", action="store_true",
             help="technologies with 'radio' in the network file on emulated 802.11 radios of the kernel "
             "(mac80211_hwsim), with hostapd and wpa_supplicant"),
    argument("--radio-medium", action="store_true",
             help="with --radio: capacity, loss and contention of the network file hold on the radios too"),
    argument("--sliced", action="store_true", help="the controller behind a slicer, as production"),
    argument("--controllers", type=int, metavar="N",
             help="so many controllers that stand by for each other, on a private etcd (default 1, without etcd)"),
    argument("--etcd-members", type=int, metavar="N",
             help="with --controllers: members of that etcd, 1 (default), 3 or 5"),
    argument("--regions", action="store_true",
             help="each region of the network file has a controller of its own, or --controllers N of them"),
    argument("--no-realtime", action="store_true", help="normal instead of real-time priority (less exact)"),
    argument("--margin", type=float, help="share of airtime that the controller leaves free"),
    argument("--mode", choices=("solver", "controller"),
             help="rates: exact each slot (default), or the papers' controller"),
    argument("--contention", choices=("file", "ideal", "csma"), default="file",
             help="what contention for media costs: as the network file says (default), nothing, or collisions of "
             "CSMA/CA"),
    argument("--mtu", type=int, metavar="BYTES",
             help="MTU of ports on media where the network file does not say it (default 1500)"),
    _measuring,
)  # fmt: skip
"""The arguments that every command with an emulated network has."""


def _run(args: argparse.Namespace) -> int:
    from hyroads.controller.files.documents import read_file
    from hyroads.mininet.run_directory import find_network, network_name

    check_options(args)
    path = find_network(args.network)
    network = read_file(path)
    from hyroads.controller.core.addressing import Addressing
    from hyroads.mininet.interactive import keep_running
    from hyroads.mininet.runner import run_network

    Addressing.of(network, str(path))
    check_radio_file(network, str(path), args)
    use_regions(network, str(path), args)
    name = args.name or network_name(path)
    return run_network(network, name, lambda e: keep_running(e, cli=args.cli, script=args.script), options(args), say)


def check_options(args: argparse.Namespace) -> None:
    """Raise an EmulationError for the first option that is out of its bounds, or lacks another that it needs."""
    from hyroads.controller.core.netfile_sections import LEAST_MTU, MOST_MTU
    from hyroads.mininet.programs import EmulationError

    snmp, given = getattr(args, "snmp", False), _errors(args)
    if args.publish is not None and not 0 <= args.publish <= 0xFFFF:
        raise EmulationError(f"--publish {args.publish}: expected a port number, or 0")
    pages = getattr(args, "dashboard", None)
    if pages is not None and not 0 <= pages <= 0xFFFF:
        raise EmulationError(f"--dashboard {pages}: expected a port number")
    if pages is not None and getattr(args, "no_controller", False):
        raise EmulationError("--dashboard: not with --no-controller: it shows what a controller knows")
    if args.margin is not None and not 0 <= args.margin < 1:
        raise EmulationError(f"--margin {args.margin}: expected a share from 0 to below 1")
    if args.mtu is not None and not LEAST_MTU <= args.mtu <= MOST_MTU:
        raise EmulationError(f"--mtu {args.mtu}: expected {LEAST_MTU} to {MOST_MTU} bytes")
    _check_controllers(args)
    if getattr(args, "wireless", False) and not snmp:
        raise EmulationError("--wireless: only with --snmp")
    _check_radio(args)
    for option in ("discover", "pair_tests"):
        if getattr(args, option) and not args.measured:
            raise EmulationError(f"--{option.replace('_', '-')}: only with --measured")
    if given and not (args.measured or args.radios or snmp):
        option = ERRORS[next(iter(given))][0]
        raise EmulationError(f"{option}: only with --measured, --radios or --snmp: nothing else has errors")
    for name, value in given.items():
        if not (0 < value <= 60 if name == "hold_s" else 0 <= value <= 1):
            expected = "more than 0, at most 60 s" if name == "hold_s" else "a share from 0 to 1"
            raise EmulationError(f"{ERRORS[name][0]} {value:g}: expected {expected}")


def _check_controllers(args: argparse.Namespace) -> None:
    """Raise an EmulationError for options of several controllers that are out of their bounds."""
    from hyroads.mininet.etcd import MEMBER_COUNTS
    from hyroads.mininet.programs import EmulationError

    if args.controllers is not None and not 1 <= args.controllers <= MOST_CONTROLLERS:
        raise EmulationError(f"--controllers {args.controllers}: expected 1 to {MOST_CONTROLLERS}")
    if args.controllers is not None and args.controllers > 1 and getattr(args, "no_controller", False):
        raise EmulationError("--controllers: not with --no-controller")
    if args.etcd_members is not None and (args.controllers or 1) == 1:
        raise EmulationError("--etcd-members: only with --controllers 2 or more: one keeps its state in a file")
    if args.etcd_members is not None and args.etcd_members not in MEMBER_COUNTS:
        raise EmulationError(f"--etcd-members {args.etcd_members}: expected {', '.join(map(str, MEMBER_COUNTS))}")


def _check_radio(args: argparse.Namespace) -> None:
    """Raise an EmulationError for options that do not go with ``--radio``, or without it."""
    from hyroads.mininet.programs import EmulationError

    if args.radio_medium and not args.radio:
        raise EmulationError("--radio-medium: only with --radio")
    for option in ("measured", "radios", "snmp"):
        if args.radio and getattr(args, option, False):
            raise EmulationError(f"--{option}: not with --radio: it reads HyRoads' own medium")
    if args.radio and args.contention == "csma":
        raise EmulationError("--contention csma: not with --radio: 802.11 has its own")


def check_radio_file(network: Network, document: str, args: argparse.Namespace) -> None:
    """Raise an EmulationError if ``--radio`` is given and the network has nothing that runs on radios."""
    from hyroads.mininet.programs import EmulationError

    if args.radio and not network.radios:
        raise EmulationError(
            f"{document}: --radio: no technology has a radio (expected, for example, "
            "technologies: {wifi: {radio: {channel: 1}}})"
        )


def use_regions(network: Network, document: str, args: argparse.Namespace) -> None:
    """With ``--regions``, ``--controllers`` is for each of them: make it that of all. EmulationError."""
    args.etcd_members = _members(args)
    args.controllers = _controllers(network, document, args)


def _controllers(network: Network, document: str, args: argparse.Namespace) -> int | None:
    """How many controllers there are to be; an EmulationError if ``--regions`` is given and the file has none."""
    from hyroads.mininet.programs import EmulationError

    if not args.regions:
        return int(args.controllers) if args.controllers else None
    for option in ("measured", "sliced", "radios", "snmp", "no_controller"):
        if getattr(args, option, False):
            raise EmulationError(f"--regions: not with --{option.replace('_', '-')}")
    if not network.regions:
        raise EmulationError(f"{document}: --regions: the file has no section regions")
    return len(network.regions) * (args.controllers or 1)


def _members(args: argparse.Namespace) -> int:
    """How many members etcd has; none for one controller. Of regions, ``args.controllers`` is for each one."""
    return (args.etcd_members or 1) if (args.controllers or 1) > 1 else 0


def _errors(args: argparse.Namespace) -> dict[str, float]:
    return {name: getattr(args, name) for name in ERRORS if getattr(args, name) is not None}


def options(args: argparse.Namespace) -> RunOptions:
    """The options of ``runner.run_network`` from a command's arguments, which :func:`check_options` has checked."""
    from hyroads.mininet.emulation import EmulationOptions
    from hyroads.mininet.runner import RunOptions

    settings = {"margin": args.margin, "mode": args.mode, "pair_tests": "idle" if args.pair_tests else None}
    given = _errors(args)
    emulation = EmulationOptions(
        controller=not getattr(args, "no_controller", False),
        realtime=not args.no_realtime,
        snmp=getattr(args, "snmp", False),
        wireless=getattr(args, "wireless", False),
        settings={name: value for name, value in settings.items() if value is not None},
        measured=args.measured,
        discover=args.discover,
        errors={"hold_s": RADIO_HOLD_S, **given} if args.measured or given else {},
        radios=args.radios,
        contention=args.contention,
        mtu=args.mtu,
        sliced=args.sliced,
        radio=args.radio,
        radio_medium=args.radio_medium,
        guest=getattr(args, "guest", False),
        controllers=args.controllers or 1,
        # With regions there are several controllers whether or not any of them stands by for another.
        etcd_members=args.etcd_members or 0 if args.regions else _members(args),
        regions=args.regions,
    )
    return RunOptions(publish=args.publish, dashboard=getattr(args, "dashboard", None), emulation=emulation)


def say(message: str) -> None:
    """Progress of the start-up, on stderr: stdout belongs to results."""
    print(f"hyroads: {message}", file=sys.stderr, flush=True)


COMMAND = Command(
    "Run a network file as an emulated network with agents and controller until Ctrl-C (needs root).",
    _run,
    argument("network", help="network file, or the name of one that comes with HyRoads (triangle)"),
    argument("--cli", action="store_true", help="Mininet's prompt; leaving it ends the network"),
    argument("--script", metavar="FILE", help="run a file of Mininet commands, then end"),
    argument(
        "--dashboard",
        type=int,
        nargs="?",
        const=DEFAULT_PORT,
        metavar="PORT",
        help=f"show the network in a browser: prints the address, on 127.0.0.1:PORT (default {DEFAULT_PORT})",
    ),
    *RUN_ARGUMENTS,
    argument("--snmp", action="store_true", help="a real snmpd per node (docs/reference/measurement.md)"),
    argument(
        "--wireless", action="store_true", help="with --snmp: access points take SSIDs (docs/reference/measurement.md)"
    ),
    argument("--guest", action="store_true", help="a guest network at the gateway, a guest, and a host outside"),
    argument("--no-controller", action="store_true", help="start no controller; switches dial 127.0.0.1:6653"),
)
