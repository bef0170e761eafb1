"""``plane: kernel``: the kernel itself binds flows to interfaces and moves them; this module installs what it needs.

Meant for routers above 2 Gb/s. No packet passes through a program, so the plane goes on when the daemon dies; a daemon
that starts again finds what is installed and changes nothing that is right. Flows are bound, and those that go through
the waypoint migrate; there is no fair queueing and no late binding (``plane: agent`` has both).

:class:`KernelPlane` is the client's side, :class:`KernelWaypoint` the waypoint's. Both work in the network namespace of
the process and need root.
"""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hyroads.controller.core.errors import HyroadsError

from . import kernel_rules, kernel_waypoint
from .conntrack import Connection, connections, forget, set_mark
from .kernel_document import Configuration, read_configuration
from .kernel_rules import HR0, TUNNEL_PATHS, Item, Link, Plan, client_plan, flow_mark, script
from .kernel_waypoint import WaypointSession, read_sessions, remote_command, seen_ports, waypoint_plan
from .nfnetlink import Change, NetfilterSocket, NetlinkError

_COMMAND_TIMEOUT_S = 20.0
_SIOCGIFFLAGS = 0x8913
_UP, _RUNNING = 0x1, 0x40
_LINK_GROUP = 1
_ACCOUNTING = "net/netfilter/nf_conntrack_acct"
_FORWARDING = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")
_MOST_NUMBERS = 255


class KernelPlaneError(HyroadsError):
    """The kernel plane could not be installed or changed; what was there before is still there."""


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


@dataclass
class _State:
    """What is installed, kept in a file so that a daemon that starts again knows it."""

    items: list[Item] = field(default_factory=list)
    ruleset: str = ""
    sysctls: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Footprint:
    """All that a plane may ever install: its nftables table, routing tables, preferences of rules, and devices."""

    table: str
    routes: range
    preferences: frozenset[int]
    devices: tuple[str, ...]
    """How the names of the plane's own devices begin."""


CLIENT = Footprint(
    kernel_rules.TABLE,
    range(kernel_rules.ROUTES, kernel_rules.ROUTES + 2 * TUNNEL_PATHS + 1),
    kernel_rules.PREFERENCES,
    (HR0, "hrw"),
)
WAYPOINT = Footprint(
    kernel_waypoint.TABLE,
    range(kernel_waypoint.ROUTES, kernel_waypoint.ROUTES + TUNNEL_PATHS + 1),
    frozenset((kernel_waypoint.PREFERENCE,)),
    ("hrw",),
)


class Installer:
    """Brings the kernel from what is installed to what a plan wants. ``state`` names the file that remembers it."""

    def __init__(self, footprint: Footprint, state: Path) -> None:
        self._footprint = footprint
        self.table = footprint.table
        self._path = state
        self.state = _read_state(state)
        self._elements: dict[str, dict[bytes, bytes]] | None = None

    def apply(self, plan: Plan, sysctls: Mapping[str, str]) -> None:
        """Install a plan. If a part is refused, what is new of it is taken back and KernelPlaneError raised."""
        before, wanted = self._present(), set(plan.items)
        known = set(before)
        new = [item for item in plan.items if item not in known]
        self.state.items = before + new
        self._save()
        try:
            self._set_sysctls(sysctls)
            _ip([item.remove for item in reversed(before) if item not in wanted and item.remove], force=True)
            _ip([item.add for item in plan.items if item.again or item not in known])
            for name in tunnels_of(plan):
                _write_sysctl(f"net/ipv4/conf/{name}/rp_filter", "2")
            self._load(plan)
        except (KernelPlaneError, NetlinkError) as error:
            _ip([item.remove for item in reversed(new) if item.remove], force=True)
            self.state.items = [item for item in before if item in wanted]
            self._save()
            raise KernelPlaneError(str(error)) from error
        self.state.items = list(plan.items)
        self._save()

    def set_elements(self, elements: Mapping[str, Mapping[bytes, bytes]]) -> bool:
        """Bring all sets and maps to these elements in one batch; whether anything changed."""
        with NetfilterSocket() as netfilter:
            if self._elements is None:
                self._elements = {name: netfilter.elements(self.table, name) for name in elements}
            changes = [change_of(self.table, name, self._elements[name], each) for name, each in elements.items()]
            changes = [each for each in changes if each.remove or each.add]
            try:
                netfilter.change(changes)
            except NetlinkError:
                self._elements = None
                raise
        self._elements = {name: dict(each) for name, each in elements.items()}
        return bool(changes)

    def remove(self) -> None:
        """Take away all that this plane ever installs, whether the state file still names it or not."""
        self._sweep()
        for name, value in self.state.sysctls.items():
            _write_sysctl(name, value)
        self.state, self._elements = _State(), None
        self._path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        _run(["nft", "-f", "-"], f"table inet {self.table}\ndelete table inet {self.table}\n")
        own, commands = self._footprint, [f"link del {name}" for name in self._devices()]
        for version in (4, 6):
            found = [rule["priority"] for rule in _json(f"-{version}", "rule", "show")]
            commands += [f"-{version} rule del pref {number}" for number in found if number in own.preferences]
            commands += [f"-{version} route flush table {table}" for table in own.routes]
        _ip(commands, force=True)

    def _devices(self) -> set[str]:
        """The plane's own devices that there are."""
        return {each["ifname"] for each in _json("link", "show") if each["ifname"].startswith(self._footprint.devices)}

    def _present(self) -> list[Item]:
        """The installed items, but for devices that have gone. Without the table nothing else is believed either."""
        if not self._table_exists():
            self._sweep()
            return []
        devices = self._devices()
        return [item for item in self.state.items if not item.device or item.device in devices]

    def _load(self, plan: Plan) -> None:
        """The table is loaded by ``nft`` if its text has changed or it is gone, else only elements change."""
        if plan.ruleset != self.state.ruleset or not self._table_exists():
            marks = {name: each for name, each in plan.elements.items() if all(len(key) == 4 for key in each)}
            _run(["nft", "-f", "-"], script(self.table, replace(plan, elements=marks)))
            self.state.ruleset = plan.ruleset
            self._elements = None
        self.set_elements(plan.elements)

    def _table_exists(self) -> bool:
        with NetfilterSocket() as netfilter:
            try:
                netfilter.elements(self.table, "route")
            except NetlinkError:
                return False
        return True

    def _set_sysctls(self, sysctls: Mapping[str, str]) -> None:
        for name, value in sysctls.items():
            now = _read_sysctl(name)
            if now is not None and now != value:
                self.state.sysctls.setdefault(name, now)
                self._save()
                _write_sysctl(name, value)

    def _save(self) -> None:
        """Write the file as a whole: a reader sees the old or the new one."""
        document = {
            "items": [[item.add, item.remove, item.again, item.index] for item in self.state.items],
            "ruleset": self.state.ruleset,
            "sysctls": self.state.sysctls,
            "numbers": self.state.numbers,
        }
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside = self._path.with_name(self._path.name + ".new")
            beside.touch(mode=0o600)
            beside.write_text(json.dumps(document), encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            raise KernelPlaneError(f"{self._path}: {error.strerror}") from error


def change_of(table: str, name: str, now: Mapping[bytes, bytes], wanted: Mapping[bytes, bytes]) -> Change:
    """The difference between two states of a set or map."""
    add = {key: value for key, value in wanted.items() if now.get(key) != value}
    return Change(table, name, tuple(key for key in now if key not in wanted or key in add), add)


def tunnels_of(plan: Plan) -> list[str]:
    """Names of the tunnels' devices. Their reverse path filter is loose: answers come by the one that suits now."""
    return [item.device for item in plan.items if item.device.startswith("hrw")]


class KernelPlane:
    """The client's side. ``state`` is a file that survives the daemon but not the machine, such as one below /run."""

    def __init__(self, state: Path) -> None:
        self._installer = Installer(CLIENT, state)
        self._configuration: Configuration | None = None
        self._links: dict[str, Link] = {}
        self._down_since_s: dict[str, float] = {}

    def install(self, document: object, now_s: float) -> None:
        """Install a ``configure`` document as the whole wanted state; ``now_s`` is a monotonic time.

        Raises ConfigError if the document is wrong and KernelPlaneError if the kernel refuses; then nothing changes.
        """
        configuration = read_configuration(document)
        names = [each.name for each in configuration.interfaces]
        if HR0 in names or any(name.startswith("hrw") for name in names):
            raise KernelPlaneError(f"{HR0} and hrw... are the kernel plane's own, not interfaces for it to use")
        links = self._timed(_discover(names), now_s)
        numbers = number_rules([rule.name for rule in configuration.rules], self._installer.state.numbers)
        plan = client_plan(configuration, links, numbers)
        self._installer.state.numbers = numbers
        self._installer.apply(plan, {**_reverse_path_filters(links), _ACCOUNTING: "1"})
        self._configuration, self._links = configuration, links

    def refresh(self, now_s: float) -> bool:
        """Follow the interfaces' carriers: in one batch, without a process. Whether anything had to change.

        Call it when netlink tells of a link, and once a second, as flows of an interface that stays away are reset
        after ``RESET_AFTER_S``.
        """
        if self._configuration is None:
            return False
        self._links = self._timed({n: replace(each, carrier=_carrier(n)) for n, each in self._links.items()}, now_s)
        plan = client_plan(self._configuration, self._links, self._installer.state.numbers)
        return self._installer.set_elements(plan.elements)

    def flows(self) -> list[Flow]:
        """All flows that the plane has bound."""
        with NetfilterSocket() as netfilter:
            return [self._flow(each) for each in connections(netfilter)]

    def migrate(self, flow: int, interface: str) -> None:
        """Move a running flow to another interface; raises KernelPlaneError if that can't be, and nothing changes."""
        configuration = self._configured()
        number = next((n for n, each in enumerate(configuration.interfaces, 1) if each.name == interface), 0)
        with NetfilterSocket() as netfilter:
            found = next((each for each in connections(netfilter) if each.id == flow), None)
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

    def _configured(self) -> Configuration:
        if self._configuration is None:
            raise KernelPlaneError("the kernel plane is not installed")
        return self._configuration

    def _check_target(self, number: int, interface: str, mark: int) -> None:
        """A tunnel that the rule's flows may use now has an element that leads to itself."""
        if number == 0:
            raise KernelPlaneError(f"interface {interface!a} is unknown")
        configuration = self._configured()
        route = client_plan(configuration, self._links, self._installer.state.numbers).elements["route"]
        itself = kernel_rules.mark_key(kernel_rules.PACKET_MARK + TUNNEL_PATHS + number)
        if route.get(kernel_rules.mark_key(mark)) != itself:
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
        mark = kernel_rules.mark_key(found.mark)
        route = client_plan(configuration, self._links, self._installer.state.numbers).elements["route"].get(mark)
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
                network = kernel_rules.vni(session.session, path.number)
                port = ports.get(network, 0)
                if port and port != self._ports.get(network):
                    commands.append(remote_command(session.session, path, port))
                    self._ports[network] = port
        if commands:
            _run(["bridge", "-batch", "-"], "\n".join(commands) + "\n")

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


def _discover(names: Sequence[str]) -> dict[str, Link]:
    """The interfaces of these names that the host has, with addresses, subnets and gateways."""
    found: dict[str, Link] = {}
    for each in _json("address", "show"):
        if each["ifname"] in names:
            found[each["ifname"]] = Link(
                each["ifname"], each["ifindex"], _carrier(each["ifname"]), each["mtu"], _addresses(each)
            )
    for version in (4, 6):
        defaults: dict[str, str] = {}
        for route in reversed(_json(f"-{version}", "route", "show", "default", "table", "main")):
            for hop in (route, *route.get("nexthops", ())):
                if "dev" in hop:
                    defaults[hop["dev"]] = hop.get("gateway", "")
        for name, link in found.items():
            subnets = _json(f"-{version}", "route", "show", "dev", name, "proto", "kernel", "table", "main")
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


def _carrier(name: str) -> bool:
    """Whether an interface is up and its link is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16sH14x", name.encode(), 0))
        except OSError:
            return False
    flags = int(struct.unpack("16sH14x", answer)[1])
    return flags & _UP != 0 and flags & _RUNNING != 0


def link_events() -> socket.socket:
    """A socket that becomes readable whenever the kernel has news of a link; read and drop what it holds."""
    events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    events.bind((0, _LINK_GROUP))
    events.setblocking(False)
    return events


def _reverse_path_filters(links: Iterable[str]) -> dict[str, str]:
    """A strict filter becomes a loose one: the route to who answers names hr0, not the interface he answers by."""
    everywhere = _read_sysctl("net/ipv4/conf/all/rp_filter")
    names = (f"net/ipv4/conf/{name}/rp_filter" for name in links)
    return {name: "2" for name in names if "1" in (everywhere, _read_sysctl(name))}


def _forget(netfilter: NetfilterSocket, connection: Connection) -> None:
    try:
        forget(netfilter, connection)
    except NetlinkError as error:
        if error.number != 2:  # ENOENT: it has just ended by itself.
            raise


def _read_sysctl(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text(encoding="ascii").strip()
    except OSError:
        return None


def _write_sysctl(name: str, value: str) -> None:
    try:
        Path("/proc/sys", name).write_text(value, encoding="ascii")
    except FileNotFoundError:
        pass  # The interface has gone, and its setting with it.
    except OSError as error:
        raise KernelPlaneError(f"/proc/sys/{name}: {error.strerror}") from error


def _ip(commands: Sequence[str], *, force: bool = False) -> None:
    """Run commands of ``ip``: devices, IPv4, IPv6, a process each; with ``force`` what fails is passed over."""
    for family in ("", "-4 ", "-6 "):
        lines = [line.removeprefix(family) for line in commands if line[:3] == family or not (family or line[0] == "-")]
        if lines:
            options = [*family.split(), *(["-force"] if force else []), "-batch", "-"]
            _run(["ip", *options], "\n".join(lines) + "\n", may_fail=force)


def _json(*words: str) -> list[dict[str, Any]]:
    text = _run(["ip", "-json", *words], may_fail=True)
    try:
        found: list[dict[str, Any]] = json.loads(text or "[]")
    except ValueError as error:
        raise KernelPlaneError(f"ip {' '.join(words)}: no JSON in the answer") from error
    return [each for each in found if each]


def _run(command: Sequence[str], text: str = "", *, may_fail: bool = False) -> str:
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=_COMMAND_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelPlaneError(f"{command[0]}: {getattr(error, 'strerror', None) or 'no answer'}") from error
    if done.returncode and not may_fail:
        words = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise KernelPlaneError(f"{' '.join(command[:2])}: {words[0] if words else f'exit status {done.returncode}'}")
    return done.stdout


def _read_state(path: Path) -> _State:
    """What was installed; a file that is missing or broken counts as empty, ``remove`` finds all the same."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return _State(
            [Item(str(add), str(remove), bool(again), int(index)) for add, remove, again, index in document["items"]],
            str(document["ruleset"]),
            {str(name): str(value) for name, value in document["sysctls"].items()},
            {str(name): int(number) for name, number in document["numbers"].items()},
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return _State()
