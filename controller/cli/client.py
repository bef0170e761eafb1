"""``hyroads client``: a multi-homed client's daemon, what it does, and the waypoint's end of it."""

from __future__ import annotations

import argparse
import ipaddress
import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyroads.controller.core.errors import ConfigError

from .main import Argument, Command, add_all, argument

if TYPE_CHECKING:
    from hyroads.controller.client.policy import Policy
    from hyroads.controller.core.checking import Endpoint

POLICY, NETWORK = "/etc/hyroads/client.yaml", "/etc/hyroads/network.yaml"
RUN_DIRECTORY, STATE_DIRECTORY = "/run/hyroads", "/var/lib/hyroads"
WAYPOINT_TOKENS = "/etc/hyroads/waypoint.tokens"
SERVICE_DIRECTORY = "/run/hyroads-waypoint"
"""Where the waypoint's sockets are if systemd runs it."""
_DAEMON = "hyroads client run"
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def _run(args: argparse.Namespace) -> int:
    return VERBS[args.verb][0](args)


def _run_daemon(args: argparse.Namespace) -> int:
    from hyroads.controller.client.daemon import ClientSettings, Daemon

    folders = Path(args.run_directory), Path(args.state_directory)
    settings = ClientSettings(args.config, *folders, realtime=not args.no_realtime)
    if not _checked(args.config):
        return 2
    return _serve("hyroads client run", lambda: Daemon(settings).run())


def _serve(command: str, run: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Runs a daemon, which logs to stderr, until it ends."""
    import asyncio
    import logging

    from hyroads.controller.client.process import check_prerequisites

    async def serve() -> None:
        await run()

    check_prerequisites(command)
    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT)
    asyncio.run(serve())
    return 0


def _checked(path: str) -> Policy | None:
    """The policy; None if it is wrong, after every error was said."""
    from hyroads.controller.client.policy import load_text
    from hyroads.controller.files.text import read_text

    try:
        return load_text(read_text(path), path)
    except ConfigError as error:
        for each in (error, *error.more):
            print(each, file=sys.stderr)
        return None


def _check(args: argparse.Namespace) -> int:
    policy = _checked(args.file)
    if policy is None:
        return 2
    if any(flow.match.application for flow in policy.flows) and not _has_cgroups():
        raise ConfigError(
            args.file, "flows", "match.application needs a cgroup v2 file system, and none is mounted here"
        )
    waypoint = "none" if policy.waypoint is None else f"{policy.waypoint.address} port {policy.waypoint.port}"
    names = ", ".join(policy.interfaces)
    print(f"{args.file}: mode {policy.mode}, interfaces {names}, {len(policy.flows)} flows, waypoint {waypoint}")
    absent = [name for name in policy.interfaces if not Path("/sys/class/net", name).exists()]
    if absent:
        print(f"not there now: {', '.join(absent)}")
    if args.connect and policy.waypoint is not None:
        import asyncio

        from hyroads.controller.client.session import SessionClient, usable_interfaces

        async def unused(_: object) -> None:
            """No session is kept."""

        found = usable_interfaces(list(policy.interfaces))
        session = asyncio.run(SessionClient(policy.waypoint, lambda: found, unused, print).check())
        print(f"waypoint {session.address}: session {session.session}, addresses {session.address4} {session.address6}")
    return 0


def _has_cgroups() -> bool:
    """Whether control groups of version 2 are mounted."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return " - cgroup2 " in mounts


def _ask(args: argparse.Namespace, request: dict[str, Any], name: str = "client", daemon: str = _DAEMON) -> Any:
    from hyroads.controller.client.json_lines import ask

    path = Path(args.run_directory, f"{name}.sock")
    of_service = Path(SERVICE_DIRECTORY, f"{name}.sock")
    if args.run_directory == RUN_DIRECTORY and of_service.exists() and not path.exists():
        path = of_service
    return ask(path, request, daemon)


def _status(args: argparse.Namespace) -> int:
    if args.waypoint:
        answer = _ask(args, {"type": "status"}, "waypoint", "hyroads client waypoint")
    else:
        answer = _ask(args, {"type": "status"})
    del answer["type"]
    if args.json:
        print(json.dumps(answer, indent=2))
    elif args.waypoint:
        _print_waypoint(answer)
    else:
        _print_status(answer)
    return 0


def _migrate(args: argparse.Namespace) -> int:
    answer = _ask(args, {"type": "migrate", "flow": args.flow, "interface": args.interface})
    print(f"flow {args.flow} goes over {args.interface} ({1000 * answer['took_s']:.1f} ms)")
    return 0


def _mode(args: argparse.Namespace) -> int:
    request = {"type": "mode", "mode": args.mode, "flow": args.flow}
    answer = _ask(args, request if args.connection is None else {**request, "connection": args.connection})
    print(f"{args.flow or args.connection or 'client'}: {answer['mode']} ({1000 * answer['took_s']:.1f} ms)")
    return 0


def _run_waypoint(args: argparse.Namespace) -> int:
    from hyroads.controller.client.waypoint import Waypoint, WaypointSettings
    from hyroads.controller.core.checking import TlsFiles

    if (args.key is None) != (args.certificate is None):
        raise ConfigError("command line", "--key", "expected --certificate and --key, or neither")
    files = None if args.key is None else TlsFiles(args.key, args.certificate)
    listen, isolated = (_endpoint(args.listen or "6656"), args.isolated) if args.node is None else _of_gateway(args)
    if files is None and ipaddress.ip_address(listen.host).is_unspecified:
        raise ConfigError("command line", "--listen", "expected clients' ADDRESS:PORT, or a --certificate")
    folders, realtime = (Path(args.run_directory), Path(args.state_directory)), not args.no_realtime
    settings = WaypointSettings(
        listen, files, args.tokens, *folders, realtime=realtime, node=args.node, is_isolated=isolated
    )
    return _serve("hyroads client waypoint", lambda: Waypoint(settings).run())


def _of_gateway(args: argparse.Namespace) -> tuple[Endpoint, bool]:
    """Where the network file says that clients reach the gateway ``--node``, and whether it isolates them."""
    from hyroads.controller.core.addressing import Addressing
    from hyroads.controller.core.checking import Endpoint, describe
    from hyroads.controller.files.documents import read_file

    if args.listen is not None:
        raise ConfigError("command line", "--listen", "not with --node: the network file says it")
    network = read_file(args.network, measured=True)
    node = network.nodes.get(args.node)
    if node is None or node.waypoint is None:
        known = ", ".join(name for name, each in network.nodes.items() if each.waypoint is not None)
        expected = f"expected a node that has a waypoint in {args.network} ({known or 'there is none'})"
        raise ConfigError("command line", "--node", f"{expected}, got {describe(args.node)}")
    address = node.waypoint.address or Addressing.of(network, args.network).host_ip[args.node]
    return Endpoint(address, node.waypoint.port), node.waypoint.isolated or args.isolated


def _endpoint(text: str) -> Endpoint:
    """[ADDRESS:]PORT of a command line."""
    from hyroads.controller.core.checking import Endpoint

    host, _, port = text.rpartition(":")
    try:
        address = str(ipaddress.ip_address(host.strip("[]"))) if host else "0.0.0.0"  # noqa: S104 - the default is said
    except ValueError:
        address = ""
    if not address or not port.isascii() or not port.isdecimal() or not 0 < int(port[:6]) < 0x10000:
        raise ConfigError("command line", "--listen", f"expected [ADDRESS:]PORT such as 6656, got {text[:80]!a}")
    return Endpoint(address, int(port))


def _print_status(answer: dict[str, Any]) -> None:
    print(f"mode {answer['mode']}" + "".join(f", {name}: {mode}" for name, mode in answer["flow_modes"].items()))
    if answer["waypoint"] is not None:
        state = "connected" if answer["waypoint"]["connected"] else f"not connected: {answer['waypoint']['problem']}"
        print(f"waypoint {answer['waypoint']['address']} {state}")
    heads = ["interface", "up", "at", "rate, Mb/s", "sent, Mb/s", "received, Mb/s", "queue, packets", "month, GiB", ""]
    _print_rows(heads, [_interface_row(name, each) for name, each in answer["interfaces"].items()])
    heads = ["flow", "name", "from", "to", "by", "sent, Mb/s", "received, Mb/s", "per weight, Mb/s", "migrations"]
    _print_rows(heads, [_flow_row(each) for each in answer["flows"]])
    if answer["mptcp"]:
        heads = ["MPTCP token", "name", "to", "mode", "subflows (backups in brackets)"]
        _print_rows(heads, [_connection_row(each) for each in answer["mptcp"]])


def _interface_row(name: str, each: dict[str, Any]) -> list[str]:
    month = f"{each['month_gib']:.3g}" + (f" of {each['cap_gib_month']:g}" if each["cap_gib_month"] else "")
    notes = [word for word in ("metered" if each["metered"] else "", each["problem"] or "") if word]
    rates = [_number(each[key]) for key in ("rate_mbps", "sent_mbps", "received_mbps")]
    up = "yes" if each["up"] else "no"
    return [name, up, each["at"] or "-", *rates, str(each["queue_packets"]), month, "; ".join(notes)]


def _flow_row(each: dict[str, Any]) -> list[str]:
    rates = [_number(each[key]) for key in ("rate_mbps", "received_mbps", "level_mbps")]
    ends = [str(each["source"]), str(each["destination"])]
    by = each["interface"] or "+".join(each["interfaces"])
    return [str(each["id"]), each["name"], *ends, by, *rates, str(each["migrations"])]


def _connection_row(each: dict[str, Any]) -> list[str]:
    names = [(subflow["interface"] or "hr0", subflow["backup"]) for subflow in each["subflows"]]
    subflows = " ".join(f"({name})" if backup else name for name, backup in names)
    return [each["token"], each["name"], each["destination"], each["mode"], subflows]


def _print_waypoint(answer: dict[str, Any]) -> None:
    node = "" if answer["node"] is None else f"node {answer['node']}, "
    print(f"{node}address {answer['address']} port {answer['port']}, fingerprint {answer['fingerprint']}")
    keys = ("session", "client", "connected", "address4", "address6")
    _print_rows(list(keys), [[str(each[key]) for key in keys] for each in answer["sessions"]])
    counters = {**answer["counters"], "restarts": answer["restarts"]}
    print(", ".join(f"{name} {count}" for name, count in counters.items()))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _print_rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Without a library of tables, which takes longer to import than the daemon to answer."""
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    print()
    for row in (heads, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


_FOLDER = argument(
    "--run-directory", default=RUN_DIRECTORY, metavar="FOLDER", help="where sockets are (default %(default)s)"
)
_STATE = argument(
    "--state-directory",
    default=STATE_DIRECTORY,
    metavar="FOLDER",
    help="where what outlives a boot is (default %(default)s)",
)
_CONFIG = argument("--config", default=POLICY, metavar="FILE", help="the policy (default %(default)s)")
_NO_REALTIME = argument("--no-realtime", action="store_true", help="hyroads-client at normal priority (later packets)")

VERBS: dict[str, tuple[Callable[[argparse.Namespace], int], str, tuple[Argument, ...]]] = {
    "run": (
        _run_daemon,
        "the daemon, until Ctrl-C; SIGHUP reads the policy again (root)",
        (_CONFIG, _NO_REALTIME, _FOLDER, _STATE),
    ),
    "status": (
        _status,
        "who uses which interface, and how much",
        (
            argument("--json", action="store_true", help="print one JSON document"),
            argument("--waypoint", action="store_true", help="of this host's waypoint instead"),
            _FOLDER,
        ),
    ),
    "migrate": (
        _migrate,
        "move a running flow to another interface",
        (
            argument("flow", type=int, metavar="FLOW", help="its number in the status"),
            argument("interface", metavar="IF"),
            _FOLDER,
        ),
    ),
    "mode": (
        _mode,
        "choose a mode until the policy is read again; it is changed when the command ends",
        (
            argument("mode", metavar="MODE", help="full-speed, cost-efficient or high-robustness"),
            argument("--flow", metavar="NAME", help="of one flow of the policy, instead of the client's"),
            argument("--connection", metavar="TOKEN", help="of one MPTCP connection, by its token in the status"),
            _FOLDER,
        ),
    ),
    "check": (
        _check,
        "check a policy and list all its errors",
        (
            argument("file", nargs="?", default=POLICY, metavar="FILE", help="the policy (default %(default)s)"),
            argument("--connect", action="store_true", help="also see whether the waypoint answers and knows us"),
        ),
    ),
    "waypoint": (
        _run_waypoint,
        "be the waypoint of other clients, until Ctrl-C (root)",
        (
            argument("--listen", metavar="[ADDRESS:]PORT", help="TCP and UDP (default 6656)"),
            argument("--node", metavar="NODE", help="a gateway of the network file, which says where to listen"),
            argument("--network", default=NETWORK, metavar="FILE", help="with --node (default %(default)s)"),
            argument(
                "--isolated", action="store_true", help="clients reach the Internet alone, no network of this host"
            ),
            argument("--certificate", metavar="FILE", help="PEM (default: one of its own, in the state directory)"),
            argument("--key", metavar="FILE", help="PEM, without password"),
            argument(
                "--tokens",
                default=WAYPOINT_TOKENS,
                metavar="FILE",
                help="lines CLIENT TOKEN, mode 0600 (default %(default)s)",
            ),
            _NO_REALTIME,
            _FOLDER,
            _STATE,
        ),
    ),
}


class _ClientCommand(Command):
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verbs."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", title="verbs")
        for name, (_, words, arguments) in VERBS.items():
            add_all(verbs.add_parser(name, help=words, description=words), arguments)


COMMAND = _ClientCommand("A host with several interfaces uses them all (docs/reference/client.md).", _run)
