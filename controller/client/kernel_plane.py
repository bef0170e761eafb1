"""``plane: kernel``: the kernel itself binds flows to interfaces and moves them; this module installs what it needs.

Meant for routers above 2 Gb/s. No packet passes through a program, so the plane goes on when the daemon dies; a daemon
that starts again finds what is installed and changes nothing that is right. Flows are bound, and those that go through
the waypoint migrate; there is no fair queueing and no late binding (``plane: agent`` has both).

:class:`KernelPlane` is the client's side, :class:`KernelWaypoint` the waypoint's. Both work in the network namespace of
the process and need root.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hyroads.controller.kernel.netlink import NetlinkError

from . import kernel_rules, kernel_waypoint
from .conntrack import Connection, connection_now, connections, forget, set_mark
from .kernel_document import Configuration, read_configuration
from .kernel_install import Footprint, Installer, KernelPlaneError, ip_json, read_sysctl, run
from .kernel_items import Link, mark_key, vni
from .kernel_rules import HR0, TUNNEL_PATHS, client_plan, flow_mark
from .kernel_waypoint import WaypointSession, read_sessions, remote_command, seen_ports, waypoint_plan
from .nfnetlink import NetfilterSocket

_SIOCGIFFLAGS = 0x8913
_UP, _RUNNING = 0x1, 0x40
_NEWS_GROUPS = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
"""Of links; of addresses and routes, IPv4 and IPv6."""
_ACCOUNTING = "net/netfilter/nf_conntrack_acct"
_FORWARDING = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")
_MOST_NUMBERS = 255


@dataclass(frozen=True)
class Flow:
    """A flow of the kernel plane; ``interface`` is the one it leaves by now, None while it has to wait."""

    id: int
    rule: str
    protocol: str
    source: tuple[str, int]
    destination: tuple[str, int]
    via: str
    interface: str | None
    sent_bytes: int | None
    received_bytes: int | None


CLIENT = Footprint(
    kernel_rules.TABLE,
    range(kernel_rules.ROUTES, kernel_rules.ROUTES + 2 * TUNNEL_PATHS + 1),
    kernel_rules.PREFERENCES,
    (HR0, "hrk"),
)
WAYPOINT = Footprint(
    kernel_waypoint.TABLE,
    range(kernel_waypoint.ROUTES, kernel_waypoint.ROUTES + TUNNEL_PATHS + 1),
    frozenset((kernel_waypoint.PREFERENCE,)),
    ("hrk",),
)


class KernelPlane:
    """The client's side. ``state`` is a file that survives the daemon but not the machine, such as one below /run."""

    def __init__(self, state: Path) -> None:
        self._installer = Installer(CLIENT, state)
        self._configuration: Configuration | None = None
        self._links: dict[str, Link] = {}
        self._down_since_s: dict[str, float] = {}
        self._known: dict[int, Connection] = {}

    def install(self, document: object, now_s: float) -> None:
        """Install a ``configure`` document as the whole wanted state; ``now_s`` is a monotonic time.

        Raises ConfigError if the document is wrong and KernelPlaneError if the kernel refuses; then nothing changes.
        """
        configuration = read_configuration(document)
        names = [each.name for each in configuration.interfaces]
        if HR0 in names or any(name.startswith("hrk") for name in names):
            raise KernelPlaneError(f"{HR0} and hrk... are the kernel plane's own, not interfaces for it to use")
        links = self._timed(discover(names), now_s)
        numbers = number_rules([rule.name for rule in configuration.rules], self._installer.state.numbers)
        plan = client_plan(configuration, links, numbers)
        self._installer.state.numbers = numbers
        self._installer.apply(plan, {**_reverse_path_filters(links), _ACCOUNTING: "1"})
        self._configuration, self._links = configuration, links

    def refresh(self, now_s: float) -> bool:
        """Follow the interfaces' carriers: in one batch, without a process. Whether anything had to change.

        Call it when netlink tells of a link, and once a second, as flows of an interface that stays away are reset
        after ``RESET_AFTER_S``. Other addresses, gateways or devices need ``install``.
        """
        if self._configuration is None:
            return False
        self._links = self._timed({n: replace(each, carrier=has_carrier(n)) for n, each in self._links.items()}, now_s)
        plan = client_plan(self._configuration, self._links, self._installer.state.numbers)
        return self._installer.set_elements(plan.elements)

    def is_outdated(self) -> bool:
        """Whether the interfaces have other devices, addresses or gateways than were installed. Asks ``ip``."""
        now = discover(list(self._names()))

        def without_time(links: Mapping[str, Link]) -> dict[str, Link]:
            return {name: replace(each, carrier=True, down_s=0.0) for name, each in links.items()}

        return without_time(now) != without_time(self._links)

    def carriers(self) -> dict[str, bool]:
        """The interfaces that are there, and whether they had a carrier at the last look."""
        return {name: link.carrier for name, link in self._links.items()}

    def ways(self) -> dict[str, tuple[dict[int, str], dict[int, str]]]:
        """Addresses and gateways of the interfaces, as they were installed."""
        return {name: (dict(link.addresses), dict(link.gateways)) for name, link in self._links.items()}

    def flows(self) -> list[Flow]:
        """All flows that the plane has bound."""
        with NetfilterSocket() as netfilter:
            self._known = {each.id: each for each in connections(netfilter)}
        return [self._flow(each) for each in self._known.values()]

    def migrate(self, flow: int, interface: str) -> None:
        """Move a running flow to another interface; raises KernelPlaneError if that can't be, and nothing changes."""
        configuration = self._configured()
        number = next((n for n, each in enumerate(configuration.interfaces, 1) if each.name == interface), 0)
        with NetfilterSocket() as netfilter:
            found = self._find(netfilter, flow)
            if found is None:
                raise KernelPlaneError(f"flow {flow} is unknown")
            rule = found.mark >> 8
            target = flow_mark(rule, number + TUNNEL_PATHS)
            if found.mark & 0xFF <= TUNNEL_PATHS:
                raise KernelPlaneError(f"flow {flow} goes directly and can't migrate; only one through a waypoint can")
            self._check_target(number, interface, target)
            set_mark(netfilter, found, target)

    def paths(self) -> list[dict[str, Any]]:
        """For the waypoint: ``{"number", "usable"}`` of each tunnel, to be told over the control connection."""
        configuration = self._configured()
        return [
            {"number": number, "usable": each.usable and each.name in self._links and self._links[each.name].carrier}
            for number, each in enumerate(configuration.interfaces, 1)
        ]

    def remove(self) -> None:
        """Take all away that the plane has installed, now or before the daemon died."""
        with NetfilterSocket() as netfilter:
            for each in connections(netfilter):
                _forget(netfilter, each)
        self._installer.remove()
        self._configuration = None

    def _find(self, netfilter: NetfilterSocket, flow: int) -> Connection | None:
        """A running connection by its id: from the last list if it is there, as a new list takes 20 ms."""
        if flow not in self._known:
            self._known = {each.id: each for each in connections(netfilter)}
        before = self._known.get(flow)
        return None if before is None else connection_now(netfilter, before)

    def _names(self) -> Iterable[str]:
        return () if self._configuration is None else (each.name for each in self._configuration.interfaces)

    def _configured(self) -> Configuration:
        if self._configuration is None:
            raise KernelPlaneError("the kernel plane is not installed")
        return self._configuration

    def _check_target(self, number: int, interface: str, mark: int) -> None:
        """A tunnel that the rule's flows may use now has an element that leads to itself."""
        if number == 0:
            raise KernelPlaneError(f"interface {interface!a} is unknown")
        route = self._installer.elements("route")
        itself = mark_key(kernel_rules.PACKET_MARK + TUNNEL_PATHS + number)
        if route.get(mark_key(mark)) != itself:
            raise KernelPlaneError(f"interface {interface} is not usable, or the flow's rule does not accept it")

    def _timed(self, links: dict[str, Link], now_s: float) -> dict[str, Link]:
        """The links with the time that they have been without carrier."""
        for name, link in links.items():
            if link.carrier:
                self._down_since_s.pop(name, None)
            else:
                self._down_since_s.setdefault(name, now_s)
        return {name: replace(each, down_s=now_s - self._down_since_s.get(name, now_s)) for name, each in links.items()}

    def _flow(self, found: Connection) -> Flow:
        configuration = self._configured()
        names = {number: name for name, number in self._installer.state.numbers.items()}
        route = self._installer.elements("route").get(mark_key(found.mark))
        path = struct.unpack("=I", route)[0] - kernel_rules.PACKET_MARK if route else 0
        interface = path - TUNNEL_PATHS if path > TUNNEL_PATHS else path
        return Flow(
            id=found.id,
            rule=names.get(found.mark >> 8, ""),
            protocol=found.protocol,
            source=found.source,
            destination=found.destination,
            via="waypoint" if found.mark & 0xFF > TUNNEL_PATHS else "direct",
            interface=configuration.interfaces[interface - 1].name if interface else None,
            sent_bytes=found.sent_bytes,
            received_bytes=found.received_bytes,
        )


class KernelWaypoint:
    """The waypoint's side: tunnels of its sessions, their way back and the address towards servers."""

    def __init__(self, state: Path, port: int) -> None:
        self._installer = Installer(WAYPOINT, state)
        self._port = port
        self._sessions: tuple[WaypointSession, ...] = ()
        self._ports: dict[int, int] = {}

    def install(self, document: object) -> None:
        """Install these sessions (see ``read_sessions``) as the whole wanted state.

        Raises ConfigError if the document is wrong and KernelPlaneError if the kernel refuses; then nothing changes.
        """
        sessions = read_sessions(document)
        plan = waypoint_plan(sessions, self._port)
        self._installer.apply(plan, dict.fromkeys(_FORWARDING, "1"))
        self._sessions = sessions
        self._ports = {}
        self.learn()

    def set_usable(self, document: object) -> None:
        """The same sessions and tunnels, but other ones are usable: in one batch, without a process."""
        sessions = read_sessions(document)
        self._installer.set_elements(waypoint_plan(sessions, self._port).elements)
        self._sessions = sessions

    def learn(self) -> None:
        """Follow clients whose NAT has given their tunnel another port. Call it when a client has shown itself."""
        with NetfilterSocket() as netfilter:
            seen = netfilter.elements(self._installer.table, "seen4") | netfilter.elements(
                self._installer.table, "seen6"
            )
        ports = seen_ports(seen)
        commands: list[str] = []
        for session in self._sessions:
            for path in session.paths:
                network = vni(session.session, path.number)
                port = ports.get(network, 0)
                if port and port != self._ports.get(network):
                    commands.append(remote_command(session.session, path, port))
                    self._ports[network] = port
        if commands:
            run(["bridge", "-batch", "-"], "\n".join(commands) + "\n")

    def remove(self) -> None:
        """Take all away that was installed, now or before the daemon died."""
        self._installer.remove()
        self._sessions = ()


def number_rules(names: Sequence[str], before: Mapping[str, int]) -> dict[str, int]:
    """A number for each rule: the one it had, else a free one. Rules that have gone keep theirs while there is room."""
    numbers = {name: number for name, number in before.items() if name in names}
    gone = {name: number for name, number in before.items() if name not in names}
    for name in names:
        if name not in numbers:
            taken = {*numbers.values(), *gone.values()}
            free = next((number for number in range(1, _MOST_NUMBERS + 1) if number not in taken), None)
            numbers[name] = gone.pop(next(iter(gone))) if free is None else free
    return {**gone, **numbers}


def discover(names: Sequence[str]) -> dict[str, Link]:
    """The interfaces of these names that the host has, with addresses, subnets and gateways."""
    found: dict[str, Link] = {}
    for each in ip_json("address", "show"):
        if each["ifname"] in names:
            found[each["ifname"]] = Link(
                each["ifname"], each["ifindex"], has_carrier(each["ifname"]), each["mtu"], _addresses(each)
            )
    for version in (4, 6):
        defaults: dict[str, str] = {}
        for route in reversed(ip_json(f"-{version}", "route", "show", "default", "table", "main")):
            for hop in (route, *route.get("nexthops", ())):
                if "dev" in hop:
                    defaults[hop["dev"]] = hop.get("gateway", "")
        for name, link in found.items():
            subnets = ip_json(f"-{version}", "route", "show", "dev", name, "proto", "kernel", "table", "main")
            networks = [
                route["dst"] for route in subnets if "/" in route["dst"] and not route["dst"].startswith("fe80")
            ]
            gateways = {version: defaults[name]} if name in defaults else {}
            found[name] = replace(
                link, gateways={**link.gateways, **gateways}, subnets={**link.subnets, version: networks}
            )
    return found


def _addresses(device: Mapping[str, Any]) -> dict[int, str]:
    """The first global address of each family."""
    families = {"inet": 4, "inet6": 6}
    addresses: dict[int, str] = {}
    for each in device.get("addr_info", ()):
        if each.get("scope") == "global" and each.get("family") in families and "local" in each:
            addresses.setdefault(families[each["family"]], each["local"])
    return addresses


def has_carrier(name: str) -> bool:
    """Whether an interface is up and its link is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16sH14x", name.encode(), 0))
        except OSError:
            return False
    flags = int(struct.unpack("16sH14x", answer)[1])
    return flags & _UP != 0 and flags & _RUNNING != 0


def link_events() -> socket.socket:
    """A socket that becomes readable whenever the kernel has news of a link, an address or a route; read and drop what
    it holds.
    """
    events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    events.bind((0, _NEWS_GROUPS))
    events.setblocking(False)
    return events


def _reverse_path_filters(links: Iterable[str]) -> dict[str, str]:
    """A strict filter becomes a loose one: the route to who answers names hr0, not the interface he answers by."""
    everywhere = read_sysctl("net/ipv4/conf/all/rp_filter")
    names = (f"net/ipv4/conf/{name}/rp_filter" for name in links)
    return {name: "2" for name in names if "1" in (everywhere, read_sysctl(name))}


def _forget(netfilter: NetfilterSocket, connection: Connection) -> None:
    try:
        forget(netfilter, connection)
    except NetlinkError as error:
        if error.number != 2:  # ENOENT: it has just ended by itself.
            raise
