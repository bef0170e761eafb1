"""What a client or a waypoint changes of its host, with ``ip``, ``nft`` and ``/proc/sys``, and how it is undone.

Each step may be made again at any time, also by the successor of a daemon that was killed: what a sysctl was before is
written to a file before it is changed, routes and rules have a table and priorities of their own, the packet filter a
table of its own.

Routing of a client. hr0's default routes are in a table of their own. Rules ask, in this order: the host's table for
the waypoint itself, and for packets of sockets that are bound to another address than hr0's; its routes but for the
default ones (networks on the link stay where they are); hr0's table. Sockets that are bound to an interface find no
route over hr0, and a packet that finds hr0 without a carrier, because the program has ended, goes on to the host's own
default routes.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.files.private import write_atomically

MAPPED_PORTS = (20_000, 32_767)
"""To these ports of an interface's own address direct flows are mapped."""
TABLE = 5171
MARK = 0x48725244
_PRIORITIES = (5170, 5171, 5172, 5173)
_PROC = Path("/proc/sys/net")
_RESERVED_PORTS = "ipv4/ip_local_reserved_ports"
_COMMAND_WITHIN_S = 10.0
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


class HostError(HyroadsError):
    """The host refuses a step."""


def run(*command: str, text: str = "") -> str:
    """Output of a short command; :class:`HostError` with the command's own words."""
    try:
        done = subprocess.run(
            command, check=False, input=text, capture_output=True, text=True, timeout=_COMMAND_WITHIN_S
        )
    except subprocess.TimeoutExpired as error:
        raise HostError(f"{command[0]}: no answer within {_COMMAND_WITHIN_S:g} s: {' '.join(command)}") from error
    except OSError as error:
        package = {"ip": "iproute2", "nft": "nftables"}.get(command[0], command[0])
        raise HostError(f"{command[0]}: {error.strerror} (apt-get install {package})") from error
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise HostError(f"{' '.join(command)}: {words[0] if words else f'exit status {done.returncode}'}")
    return done.stdout


def read_sysctl(name: str) -> str | None:
    """A value below /proc/sys/net; None if there is none."""
    try:
        return (_PROC / name).read_text(encoding="ascii").strip()
    except OSError:
        return None


class Sysctls:
    """Values below /proc/sys/net that are changed for a while; the old ones are kept in a file meanwhile."""

    def __init__(self, saved: Path) -> None:
        self._file = saved
        self._before: dict[str, tuple[str, str]] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            document = json.loads(saved.read_text(encoding="utf-8"))
            self._before = {str(name): (str(old), str(new)) for name, (old, new) in document.items()}

    def set(self, name: str, value: str) -> None:
        """Change a value that is there; what it was before is kept."""
        now = read_sysctl(name)
        if now is None or now == value:
            return
        self._before[name] = self._before.get(name, (now, ""))[0], value
        write_atomically(self._file, json.dumps(self._before))
        self._write(name, value)

    def raise_to(self, family: str, interface: str, name: str, least: int) -> None:
        """See that at least a value counts for an interface: the greater of its own and that of ``all``."""
        values = [read_sysctl(f"{family}/conf/{each}/{name}") for each in ("all", interface)]
        if values[1] is not None and max(int(value or 0) for value in values) < least:
            self.set(f"{family}/conf/{interface}/{name}", str(least))

    def restore(self) -> None:
        """Everything as before, but for what somebody else changed meanwhile, and what is gone."""
        for name, (old, new) in self._before.items():
            now = read_sysctl(name)
            ports = name == _RESERVED_PORTS and now is not None
            if now != new and not ports:
                continue
            with contextlib.suppress(HostError):
                self._write(name, _without_mapped(str(now), old) if ports else old)
        self._before.clear()
        self._file.unlink(missing_ok=True)

    def _write(self, name: str, value: str) -> None:
        try:
            # An empty list of ports takes an empty line.
            (_PROC / name).write_text(f"{value}\n", encoding="ascii")
        except OSError as error:
            raise HostError(f"/proc/sys/net/{name}: {error.strerror}") from error


def _ports(text: str) -> set[int]:
    found: set[int] = set()
    for words in _RANGE.finditer(text):
        found |= set(range(int(words[1]), int(words[2] or words[1]) + 1))
    return found


def _port_text(ports: Collection[int]) -> str:
    ranges: list[list[int]] = []
    for port in sorted(ports):
        if ranges and ranges[-1][1] == port - 1:
            ranges[-1][1] = port
        else:
            ranges.append([port, port])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def _mapped() -> set[int]:
    return set(range(MAPPED_PORTS[0], MAPPED_PORTS[1] + 1))


def with_mapped(now: str) -> str:
    """A list of reserved ports with those of mapped flows."""
    return _port_text(_ports(now) | _mapped())


def _without_mapped(now: str, before: str) -> str:
    return _port_text((_ports(now) - _mapped()) | (_ports(before) & _mapped()))


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """What a client's host has to be: hr0's addresses, the interfaces below it, those that may carry nothing (their
    cap is used up), and the waypoint's address, which never goes over hr0.
    """

    interfaces: tuple[str, ...]
    address4: str | None
    address6: str | None
    waypoint: str | None = None
    used_up: tuple[str, ...] = ()
    tun: str = "hr0"
    waypoint_has_ipv6: bool = False


class ClientHost:
    """Makes a :class:`ClientPlan` true, and everything as before."""

    def __init__(self, folder: Path) -> None:
        self._sysctls = Sysctls(folder / "client-host.json")

    def apply(self, plan: ClientPlan, left_bytes: Mapping[str, int]) -> None:
        """Needs the TUN device; may be called again with the same or another plan. ``left_bytes`` is what interfaces
        with a cap may still carry.
        """
        name = "inet hyroads_client"
        lines = "\n".join(client_filter(plan, left_bytes))
        run("nft", "-f", "-", text=f"table {name}\ndelete table {name}\ntable {name} {{\n{lines}\n}}\n")
        self.prepare(plan)
        _set_addresses(plan.tun, {4: plan.address4, 6: plan.address6}, {4: 32, 6: 128})
        self._set_routes(plan)

    def undo(self, tun: str = "hr0") -> None:
        """All steps, however many of them were made; hr0 itself goes, too."""
        for version in (4, 6):
            _clear_rules(version)
            with contextlib.suppress(HostError):
                run("ip", f"-{version}", "route", "flush", "table", str(TABLE))
        with contextlib.suppress(HostError):
            run("ip", "link", "delete", tun)
        with contextlib.suppress(HostError):
            run("nft", "delete", "table", "inet", "hyroads_client")
        self._sysctls.restore()

    def prepare(self, plan: ClientPlan) -> None:
        """What connections over each single interface need, before there is a TUN."""
        sysctls = self._sysctls
        reserved = read_sysctl(_RESERVED_PORTS)
        if reserved is not None and not _mapped() <= _ports(reserved):
            sysctls.set(_RESERVED_PORTS, with_mapped(reserved))
        for family in ("ipv4", "ipv6"):
            sysctls.raise_to(family, plan.tun, "ignore_routes_with_linkdown", 1)
        for interface in plan.interfaces:
            # 1 drops what comes back by another interface than the host's own route has; 2 does not.
            strict = [read_sysctl(f"ipv4/conf/{each}/rp_filter") for each in ("all", interface)]
            if strict[1] is not None and "1" in strict and "2" not in strict:
                sysctls.set(f"ipv4/conf/{interface}/rp_filter", "2")
            _each_for_itself(sysctls, interface)

    def _set_routes(self, plan: ClientPlan) -> None:
        for version, address in ((4, plan.address4), (6, plan.address6)):
            wanted = list(_rules(plan, version)) if address is not None and _has_default(plan, version) else []
            if wanted:
                source = ("src", str(address)) if _has_address(plan.tun, str(address)) else ()
                route = ("default", "dev", plan.tun, *source, "table", str(TABLE))
                run("ip", f"-{version}", "route", "replace", *route)
            _set_rules(version, dict(wanted), plan.waypoint)


class CapsHost:
    """What a client with ``plane: kernel`` needs besides that plane itself: caps, and each interface for itself."""

    def __init__(self, folder: Path) -> None:
        self._sysctls = Sysctls(folder / "client-host.json")

    def prepare(self, plan: ClientPlan) -> None:
        """As :meth:`ClientHost.prepare`, but what the plane does itself."""
        for interface in plan.interfaces:
            _each_for_itself(self._sysctls, interface)

    def apply(self, plan: ClientPlan, left_bytes: Mapping[str, int]) -> None:
        """May be called again with the same or another plan."""
        lines = [*_quotas(left_bytes), "chain leave {", "type filter hook postrouting priority -160; policy accept;"]
        text = "\n".join([*lines, *_capped(plan.used_up, left_bytes), "}"])
        name = "inet hyroads_caps"
        run("nft", "-f", "-", text=f"table {name}\ndelete table {name}\ntable {name} {{\n{text}\n}}\n")
        self.prepare(plan)

    def undo(self, tun: str = "hr0") -> None:
        """All steps, however many of them were made."""
        with contextlib.suppress(HostError):
            run("nft", "delete", "table", "inet", "hyroads_caps")
        self._sysctls.restore()


def _each_for_itself(sysctls: Sysctls, interface: str) -> None:
    """With two interfaces in one subnet each answers and asks for its own address alone."""
    sysctls.raise_to("ipv4", interface, "arp_ignore", 1)
    sysctls.raise_to("ipv4", interface, "arp_announce", 2)


def client_filter(plan: ClientPlan, left_bytes: Mapping[str, int]) -> Iterator[str]:
    """The rules of the client's table of nftables."""
    low, high = MAPPED_PORTS
    own = [
        (family, address) for family, address in (("ip", plan.address4), ("ip6", plan.address6)) if address is not None
    ]
    yield from _quotas(left_bytes)
    if plan.interfaces:
        # Single packets of a mapped flow are the only ones that the kernel sees: to it the flow would be invalid.
        yield "chain untracked {"
        yield "type filter hook output priority raw; policy accept;"
        yield f"oifname {_set_of(plan.interfaces)} meta l4proto {{ tcp, udp }} th sport {low}-{high} notrack"
        yield "}"
    yield "chain input {"
    yield "type filter hook input priority -160; policy accept;"
    if plan.interfaces:
        # The kernel knows no socket there and would answer with a reset.
        yield f"iifname {_set_of(plan.interfaces)} meta l4proto {{ tcp, udp }} th dport {low}-{high} drop"
    yield "}"
    yield "chain reroute {"
    yield "type route hook output priority mangle; policy accept;"
    for family, address in own:
        groups = "224.0.0.0/3" if family == "ip" else "ff00::/8"
        # Connections that are older than hr0 stay where they are.
        yield f'oifname "{plan.tun}" {family} saddr != {address} {family} daddr != {groups} meta mark set {MARK:#x}'
    yield "}"
    yield "chain leave {"
    yield "type filter hook postrouting priority -160; policy accept;"
    for family, address in own:
        yield f'{family} saddr {address} oifname != {{ "{plan.tun}", "lo" }} drop'
    yield from _capped(plan.used_up, left_bytes)
    yield "}"


def _quotas(left_bytes: Mapping[str, int]) -> Iterator[str]:
    """The quotas, and the chain that counts what arrives; what leaves is counted where it may be dropped."""
    for number, bytes_left in enumerate(left_bytes.values()):
        yield f"quota cap{number} {{ over {bytes_left} bytes }}"
    yield "chain arrive {"
    yield "type filter hook prerouting priority -300; policy accept;"
    for number, name in enumerate(left_bytes):
        yield f'iifname "{name}" quota name "cap{number}"'
    yield "}"


def _capped(used_up: Sequence[str], left_bytes: Mapping[str, int]) -> Iterator[str]:
    """Whatever happens to our programs: not a byte more is sent than the cap allows but what keeps the address."""
    if left_bytes or used_up:
        yield f"oifname {_set_of([*left_bytes, *used_up])} udp dport {{ 67, 547 }} accept"
    for number, name in enumerate(left_bytes):
        yield f'oifname "{name}" quota name "cap{number}" meta l4proto != ipv6-icmp drop'
    if used_up:
        yield f"oifname {_set_of(used_up)} meta l4proto != ipv6-icmp drop"


def _set_of(names: Sequence[str]) -> str:
    return "{ " + ", ".join(f'"{name}"' for name in dict.fromkeys(names)) + " }"


def _rules(plan: ClientPlan, version: int) -> Iterator[tuple[int, tuple[str, ...]]]:
    if plan.waypoint is not None and (":" in plan.waypoint) == (version == 6):
        yield _PRIORITIES[0], ("to", plan.waypoint, "lookup", "main")
    yield _PRIORITIES[1], ("fwmark", f"{MARK:#x}", "lookup", "main")
    yield _PRIORITIES[2], ("lookup", "main", "suppress_prefixlength", "0")
    yield _PRIORITIES[3], ("lookup", str(TABLE))


def _set_rules(version: int, wanted: Mapping[int, Sequence[str]], waypoint: str | None) -> None:
    """Only what differs is touched: without a rule connections would begin with another address."""
    right = set()
    for rule in rules_of(version, _PRIORITIES):
        priority = rule["priority"]
        # The only rule that depends on anything is the first.
        changed = priority == _PRIORITIES[0] and rule.get("dst") != waypoint
        if priority not in wanted or priority in right or changed:
            run("ip", f"-{version}", "rule", "delete", "priority", str(priority))
        else:
            right.add(priority)
    for priority, words in wanted.items():
        if priority not in right:
            run("ip", f"-{version}", "rule", "add", "priority", str(priority), *words)


def rules_of(version: int, priorities: Collection[int]) -> list[dict[str, Any]]:
    """The rules of routing of an IP version that have one of these priorities."""
    listed = json.loads(run("ip", "-j", f"-{version}", "rule", "show") or "[]")
    return [rule for rule in listed if rule["priority"] in priorities]


def _clear_rules(version: int) -> None:
    with contextlib.suppress(HostError):
        _set_rules(version, {}, None)


def default_gateways(version: int) -> Mapping[str, str | None]:
    """Interface -> gateway of the host's own default routes, None if a route has none; the first of each."""
    found: dict[str, str | None] = {}
    for route in json.loads(run("ip", "-j", f"-{version}", "route", "show", "default") or "[]"):
        for hop in route.get("nexthops") or [route]:
            if "dev" in hop:
                found.setdefault(hop["dev"], hop.get("gateway"))
    return found


def _has_default(plan: ClientPlan, version: int) -> bool:
    """IPv6 goes over hr0 only if it gets out anywhere; the waypoint gives IPv6 where no interface has it."""
    if version == 4 or plan.waypoint_has_ipv6:
        return True
    return bool(default_gateways(6).keys() & set(plan.interfaces))


def _has_address(device: str, address: str) -> bool:
    return address in {each for each, _ in _addresses(device)}


def _addresses(device: str) -> list[tuple[str, int]]:
    """Addresses of a device with their prefix lengths, without those that the kernel gives it."""
    listed = json.loads(run("ip", "-j", "address", "show", "dev", device) or "[]")
    found = [each for link in listed for each in link.get("addr_info", [])]
    return [(each["local"], each["prefixlen"]) for each in found if each.get("scope") != "link"]


def _set_addresses(device: str, wanted: Mapping[int, str | None], lengths: Mapping[int, int]) -> None:
    """A device has these addresses and no others, and is up."""
    now = _addresses(device)
    right = {(address, lengths[version]) for version, address in wanted.items() if address is not None}
    for address, length in sorted(right - set(now)):
        if ":" in address and read_sysctl(f"ipv6/conf/{device}/disable_ipv6") != "0":
            continue
        more = ("nodad",) if ":" in address else ()
        run("ip", "address", "replace", f"{address}/{length}", "dev", device, *more)
    for address, length in now:
        if (address, length) not in right:
            run("ip", "address", "delete", f"{address}/{length}", "dev", device)
    run("ip", "link", "set", device, "up")


NOT_PUBLIC = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *("192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3"),
    *("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "fc00::/7", "fe80::/10", "ff00::/8"),
)
"""Networks that are not the public Internet (RFC 6890), or stand for IPv4 addresses."""
_TUNNELS = "hrk"
"""How the names of the kernel plane's tunnels begin."""


def closed_networks(tun: str) -> list[str]:
    """Destinations closed to clients of an isolated waypoint: addresses that are not public, networks of this host."""
    found = {ipaddress.ip_network(each) for each in NOT_PUBLIC}
    for version in (4, 6):
        for route in json.loads(run("ip", "-j", f"-{version}", "route", "show", "table", "main") or "[]"):
            is_ours = route.get("dev", "") == tun or route.get("dev", "").startswith(_TUNNELS)
            has_hops = "gateway" in route or "via" in route or "nexthops" in route
            if not is_ours and not has_hops and route["dst"] != "default":
                found.add(ipaddress.ip_network(route["dst"]))
    merged = [
        network
        for version in (4, 6)
        for network in ipaddress.collapse_addresses(each for each in found if each.version == version)  # type: ignore[type-var]
    ]
    return [str(network) for network in merged]


def isolation(tun: str, closed: Sequence[str]) -> Iterator[str]:
    """The rules, before the kernel decides whether a packet is for this host or is forwarded."""
    for family, colon in (("ip", False), ("ip6", True)):
        kind = "ipv6_addr" if colon else "ipv4_addr"
        networks = ", ".join(each for each in closed if (":" in each) == colon)
        yield f"set closed_{family} {{ type {kind}; flags interval; elements = {{ {networks} }} }}"
    yield "chain enter {"
    yield "type filter hook prerouting priority -90; policy accept;"
    for interface in (tun, f"{_TUNNELS}*"):
        for family in ("ip", "ip6"):
            yield f'iifname "{interface}" {family} daddr @closed_{family} drop'
    yield "}"


class WaypointHost:
    """Addresses of the TUN, forwarding and masquerading of a waypoint's host."""

    def __init__(self, folder: Path, tun: str = "hrw0", *, is_isolated: bool = False) -> None:
        """``is_isolated``: clients reach public addresses alone, and no network that this host is in."""
        self._sysctls, self._tun, self._is_isolated = Sysctls(folder / "waypoint-host.json"), tun, is_isolated
        self._closed: tuple[str, ...] = ()

    def apply(self, address4: str, length4: int, address6: str, length6: int) -> None:
        """The TUN's own addresses, with the lengths of the networks that clients' addresses are from."""
        name = "inet hyroads_waypoint"
        lines = "\n".join(self._filter(f"{address4}/{length4}", f"{address6}/{length6}"))
        run("nft", "-f", "-", text=f"table {name}\ndelete table {name}\ntable {name} {{\n{lines}\n}}\n")
        self.isolate()
        self._sysctls.set("ipv4/ip_forward", "1")
        if read_sysctl("ipv6/conf/all/forwarding") == "0":
            # A router learns no default route from others, unless this is 2.
            for folder in sorted((_PROC / "ipv6/conf").iterdir()):
                if folder.name != "all" and read_sysctl(f"ipv6/conf/{folder.name}/accept_ra") == "1":
                    self._sysctls.set(f"ipv6/conf/{folder.name}/accept_ra", "2")
            self._sysctls.set("ipv6/conf/all/forwarding", "1")
        _set_addresses(self._tun, {4: address4, 6: address6}, {4: length4, 6: length6})

    def isolate(self) -> None:
        """Closes what clients may not reach; called again when networks of this host may have changed."""
        name = "inet hyroads_isolated"
        if not self._is_isolated:
            with contextlib.suppress(HostError):
                run("nft", "delete", "table", *name.split())
            return
        closed = tuple(closed_networks(self._tun))
        if closed == self._closed:
            return
        lines = "\n".join(isolation(self._tun, closed))
        run("nft", "-f", "-", text=f"table {name}\ndelete table {name}\ntable {name} {{\n{lines}\n}}\n")
        self._closed = closed

    def undo(self) -> None:
        """All steps; the TUN itself goes, too."""
        with contextlib.suppress(HostError):
            run("nft", "delete", "table", "inet", "hyroads_isolated")
        with contextlib.suppress(HostError):
            run("ip", "link", "delete", self._tun)
        with contextlib.suppress(HostError):
            run("nft", "delete", "table", "inet", "hyroads_waypoint")
        self._sysctls.restore()

    def _filter(self, network4: str, network6: str) -> Iterator[str]:
        tun = self._tun
        yield "chain forward {"
        yield "type filter hook forward priority 0; policy accept;"
        # Clients see the world, not each other.
        yield f'iifname "{tun}" oifname "{tun}" drop'
        # Nobody translates their addresses: they would leave as they are, and be answered with a reset.
        yield f'iifname "{tun}" ct state invalid drop'
        yield f'iifname "{tun}" accept'
        yield f'oifname "{tun}" ct state established,related accept'
        yield f'oifname "{tun}" drop'
        yield "}"
        yield "chain postrouting {"
        yield "type nat hook postrouting priority srcnat; policy accept;"
        yield f'ip saddr {network4} oifname != {{ "{tun}", "lo" }} masquerade'
        yield f'ip6 saddr {network6} oifname != {{ "{tun}", "lo" }} masquerade'
        yield "}"
