"""A client's policy file (docs/reference/client.md): text -> :class:`Policy`. Pure.

Flows are tried in their order and the first that matches a packet wins, so the last one has no match; if the file ends
with another, a last one is added.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hyroads.controller.core.checking import (
    Place,
    Problems,
    Section,
    boolean_of,
    choice_of,
    describe,
    integer_of,
    path_of,
)
from hyroads.controller.core.document import load_document

from .flow_match import Match, parse_match

FULL_SPEED, COST_EFFICIENT, HIGH_ROBUSTNESS = MODES = ("full-speed", "cost-efficient", "high-robustness")
PLANES = AGENT, KERNEL, MPTCP = ("agent", "kernel", "mptcp")
SPREADS = ("flow", "packet")
DIRECT, WAYPOINT = VIAS = ("direct", "waypoint")
BLOCK = "block"
ON_LOSS = (DIRECT, BLOCK)
MAX_INTERFACES, MAX_FLOWS, MAX_DNS = 16, 256, 4
MAX_RULES, MAX_KERNEL_RULES = 1000, 249
"""Pairs of port ranges, of all flows together; with ``plane: kernel``."""
CONTROLLER_PORT, WAYPOINT_PORT = 6654, 6656
DEFAULT_ADDRESS4, DEFAULT_ADDRESS6 = "10.171.0.2", "fd68:7972:6f61::2"
DEFAULT_WAYPOINT_TOKEN, DEFAULT_WAYPOINT_CA = "waypoint.token", "waypoint-ca.pem"

_IFNAME = re.compile(r"(?!\.{1,2}$)[^\s/#\"'\\{},;]{1,15}")
_RESERVED = ("lo", "hr0", "hrw0")
_FLOW_NAME = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_MOST_MBPS, _LEAST_WEIGHT, _MOST_WEIGHT, _MOST_GIB = 1e6, 1e-3, 1e6, 1e9
_FLOW_KEYS = ("name", "match", "weight", "urgent", "mode", "interfaces", "spread", "via")
_TOP_KEYS = ("interfaces", "mode", "waypoint", "flows", "controller", "plane", "mptcp", "address4", "address6")


@dataclass(frozen=True, slots=True)
class InterfacePolicy:
    """An interface: its rate, Mb/s (None: found out), whether its traffic costs money, how many GiB it may carry in a
    month in both directions (None: any), and the DNS servers of its network.
    """

    name: str
    rate_mbps: float | None = None
    metered: bool = False
    cap_gib_month: float | None = None
    dns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlowPolicy:
    """How the flows that match are treated. ``mode`` None: the client's; ``via`` None: by the waypoint if there is
    one; ``interfaces`` are never left.
    """

    name: str
    match: Match
    interfaces: tuple[str, ...]
    weight: float = 1.0
    urgent: bool = False
    mode: str | None = None
    spread: str = "flow"
    via: str | None = None


@dataclass(frozen=True, slots=True)
class WaypointPolicy:
    """Where the waypoint is, how the client proves itself, and how the waypoint is recognised: by a certificate of
    ``ca_file`` for its address, or by the SHA-256 ``fingerprint`` of its certificate (hex digits).
    """

    address: str
    port: int
    token_file: str
    ca_file: str | None = None
    fingerprint: str | None = None
    name: str | None = None
    """As which client; None: the host's name."""
    on_loss: str = DIRECT
    """What becomes of new flows through the waypoint while it does not answer."""


@dataclass(frozen=True, slots=True)
class ControllerTls:
    """Files by which a controller is checked, and which it is shown."""

    ca: str
    certificate: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ControllerPolicy:
    """Agent address of a campus controller, to which the client reports."""

    address: str
    port: int
    token_file: str | None = None
    tls: ControllerTls | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The whole file."""

    interfaces: Mapping[str, InterfacePolicy]
    flows: tuple[FlowPolicy, ...]
    mode: str = FULL_SPEED
    waypoint: WaypointPolicy | None = None
    controller: ControllerPolicy | None = None
    plane: str = "agent"
    mptcp: bool = False
    """Whether the daemon manages the subflows of MPTCP connections."""
    address4: str = DEFAULT_ADDRESS4
    address6: str | None = DEFAULT_ADDRESS6
    document: str = field(default="policy", compare=False)
    """Name of the file, for errors."""
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The policy as it was written."""


def load_text(text: str, name: str) -> Policy:
    """The policy of a file's text; :class:`ConfigError` with every wrong place. Files that it names are relative to the
    folder of ``name``.
    """
    return parse(load_document(text, name), name)


def parse(raw: object, name: str) -> Policy:
    """The policy of a document, be it of a file or of a controller; errors as of :func:`load_text`."""
    problems, base = Problems(name), Path(name).parent
    top = Place(raw, problems).section(_TOP_KEYS, ("interfaces",))
    interfaces = _interfaces(top["interfaces"]) if "interfaces" in top else {}
    waypoint = _waypoint(top["waypoint"], base) if top.values.get("waypoint") is not None else None
    has_waypoint = top.values.get("waypoint") is not None
    mode = choice_of(top, "mode", MODES)
    if mode == HIGH_ROBUSTNESS and not has_waypoint:
        top["mode"].fail(f"{HIGH_ROBUSTNESS} needs a waypoint, which drops the copies")
    flows = _flows(top["flows"], tuple(interfaces), has_waypoint) if "flows" in top else []
    controller = _controller(top["controller"], base) if top.values.get("controller") is not None else None
    plane = choice_of(top, "plane", PLANES)
    mptcp = boolean_of(top, "mptcp", plane == MPTCP)
    if plane == MPTCP:
        _check_mptcp(top, mptcp=mptcp, has_waypoint=has_waypoint)
    elif plane == KERNEL:
        _check_kernel(top, mode, flows)
        if waypoint is not None and waypoint.on_loss == BLOCK:
            top["waypoint"].fail("on_loss: block needs plane: agent, which knows which flows want the waypoint")
    address4, address6 = (
        _own_address(top, "address4", DEFAULT_ADDRESS4),
        _own_address(top, "address6", DEFAULT_ADDRESS6),
    )
    problems.raise_if_any()
    return Policy(
        interfaces,
        _with_last(flows, tuple(interfaces)),
        mode,
        waypoint,
        controller,
        plane,
        mptcp,
        address4 or DEFAULT_ADDRESS4,
        address6,
        name,
        dict(raw) if isinstance(raw, Mapping) else {},
    )


def _check_kernel(top: Section, mode: str, flows: Sequence[FlowPolicy]) -> None:
    """The kernel binds each packet of a flow to one interface: no copies, no packets spread."""
    if mode == HIGH_ROBUSTNESS:
        top["mode"].fail(f"{HIGH_ROBUSTNESS} needs plane: agent, which makes copies")
    for entry, flow in zip(top["flows"].items() if "flows" in top else (), flows, strict=False):
        if flow.mode == HIGH_ROBUSTNESS:
            entry.problems.add(f"{entry.path}.mode", f"{HIGH_ROBUSTNESS} needs plane: agent, which makes copies")
        if flow.match.application is not None:
            entry.problems.add(f"{entry.path}.match.application", "needs plane: agent, which knows the flows' sockets")
        if flow.spread == "packet":
            entry.problems.add(f"{entry.path}.spread", "expected flow: the kernel keeps a flow on one interface")
    if _rules(flows) > MAX_KERNEL_RULES:
        top["flows"].fail(
            f"expected at most {MAX_KERNEL_RULES} pairs of source and destination ports, got {_rules(flows)}"
        )


def _check_mptcp(top: Section, *, mptcp: bool, has_waypoint: bool) -> None:
    """Without hr0 there is nothing that could go by a waypoint."""
    if not mptcp:
        top["mptcp"].fail("plane: mptcp does nothing else")
    if has_waypoint:
        top["waypoint"].fail("needs plane: agent or kernel, which have hr0")


def _rules(flows: Sequence[FlowPolicy]) -> int:
    return sum(len(flow.match.source_ports or " ") * len(flow.match.destination_ports or " ") for flow in flows)


def _with_last(flows: list[FlowPolicy], interfaces: tuple[str, ...]) -> tuple[FlowPolicy, ...]:
    if flows and flows[-1].match == Match():
        return tuple(flows)
    taken = {flow.name for flow in flows}
    names = ("rest", *(f"rest-{number}" for number in range(2, MAX_FLOWS + 3)))
    return (*flows, FlowPolicy(next(name for name in names if name not in taken), Match(), interfaces))


def _interfaces(place: Place) -> dict[str, InterfacePolicy]:
    found = {}
    for name, entry in place.entries():
        if not _IFNAME.fullmatch(name):
            entry.fail("expected an interface's name of at most 15 characters")
        elif name in _RESERVED:
            entry.fail(f"expected one of the host's own interfaces, not {name}")
        else:
            found[name] = _interface(name, entry)
    if isinstance(place.value, Mapping) and not 1 <= len(place.value) <= MAX_INTERFACES:
        place.fail(f"expected 1 to {MAX_INTERFACES} interfaces, got {len(place.value)}")
    return found


def _interface(name: str, place: Place) -> InterfacePolicy:
    if place.value is None:
        return InterfacePolicy(name)
    section = place.section(("rate_mbps", "metered", "cap_gib_month", "dns"))
    rate = cap = None
    if "rate_mbps" in section and not section["rate_mbps"].says("auto"):
        what = "auto or a rate above 0 Mb/s"
        rate = section["rate_mbps"].number(1.0, 0.0, _MOST_MBPS, open_low=True, what=what)
    metered = boolean_of(section, "metered", False)
    if section.values.get("cap_gib_month") is not None:
        what = "a number of GiB above 0"
        cap = section["cap_gib_month"].number(1.0, 0.0, _MOST_GIB, open_low=True, what=what)
        if not metered:
            section["cap_gib_month"].fail("a cap needs metered: true")
    return InterfacePolicy(name, rate, metered, cap, _dns(section))


def _dns(section: Section) -> tuple[str, ...]:
    place = section.optional("dns")
    if place is None:
        return ()
    servers = []
    for item in place.items():
        try:
            servers.append(str(ipaddress.ip_address(item.value if isinstance(item.value, str) else "")))
        except ValueError:
            item.expected("the IP address of a DNS server")
    if len(servers) > MAX_DNS:
        place.fail(f"expected at most {MAX_DNS} DNS servers")
    return tuple(servers)


def _flows(place: Place, interfaces: tuple[str, ...], has_waypoint: bool) -> list[FlowPolicy]:
    entries = list(place.items())
    if len(entries) > MAX_FLOWS:
        place.fail(f"expected at most {MAX_FLOWS} flows, got {len(entries)}")
        return []
    flows: list[FlowPolicy] = []
    names: set[str] = set()
    for number, entry in enumerate(entries):
        section = entry.section(_FLOW_KEYS, ("name",))
        flow = _flow(section, interfaces, has_waypoint)
        if flow.name and flow.name in names:
            section["name"].fail(f"expected a name that no other flow has, got {describe(flow.name)}")
        names.add(flow.name)
        if section.valid and not section.values.get("match") and number < len(entries) - 1:
            entry.fail("a flow without a match takes everything: expected it to be the last one")
        flows.append(flow)
    if _rules(flows) > MAX_RULES:
        place.fail(f"expected at most {MAX_RULES} pairs of source and destination ports, got {_rules(flows)}")
    return flows


def _flow(section: Section, interfaces: tuple[str, ...], has_waypoint: bool) -> FlowPolicy:
    name, weight, accepted = "", 1.0, interfaces
    if "name" in section:
        name = _word(section["name"], _FLOW_NAME, "a name of 1 to 32 letters, digits, '.', '_' or '-'")
    if "weight" in section:
        weight = section["weight"].number(1.0, _LEAST_WEIGHT, _MOST_WEIGHT, what="a weight above 0")
    if "interfaces" in section:
        accepted = _accepted(section["interfaces"], interfaces)
    match = parse_match(section["match"]) if section.values.get("match") is not None else Match()
    mode = choice_of(section, "mode", MODES) if section.values.get("mode") is not None else None
    via = section["via"].choice(VIAS, DIRECT) if "via" in section else None
    spread = choice_of(section, "spread", SPREADS)
    needs = {"mode": mode == HIGH_ROBUSTNESS, "spread": spread == "packet", "via": via == WAYPOINT}
    for key in (key for key, needed in needs.items() if needed):
        if not has_waypoint:
            section[key].fail(f"{section.values[key]} needs a waypoint")
        elif via == DIRECT:
            section[key].fail(f"{section.values[key]} needs via: waypoint")
    return FlowPolicy(name, match, accepted, weight, boolean_of(section, "urgent", False), mode, spread, via)


def _accepted(place: Place, interfaces: Collection[str]) -> tuple[str, ...]:
    names = [item.reference(interfaces, "interface") for item in place.items()]
    if place.value == []:
        place.expected("at least one interface")
    return tuple(dict.fromkeys(name for name in names if name))


def _word(place: Place, pattern: re.Pattern[str], expected: str) -> str:
    if isinstance(place.value, str) and pattern.fullmatch(place.value):
        return place.value
    place.expected(expected)
    return ""


def _address(place: Place, what: str) -> str | None:
    """An address that a host elsewhere may have."""
    try:
        address = ipaddress.ip_address(place.value if isinstance(place.value, str) else "")
    except ValueError:
        address = None
    if address is None or address.is_multicast or address.is_unspecified or address.is_link_local:
        place.expected(f"{what}, an IP address such as 192.0.2.1")
        return None
    return str(address)


def _own_address(top: Section, key: str, default: str) -> str | None:
    if key not in top:
        return default
    place, version = top[key], int(key[-1])
    if place.value is None and version == 6:
        return None
    try:
        address = ipaddress.ip_address(place.value if isinstance(place.value, str) else "")
    except ValueError:
        address = None
    wrong = address is None or address.version != version or address.is_loopback or address.is_link_local
    if wrong or address is None or address.is_multicast or address.is_unspecified:
        place.expected(f"an IPv{version} address for hr0")
        return default
    return str(address)


def _waypoint(place: Place, base: Path) -> WaypointPolicy | None:
    if isinstance(place.value, str):
        address = _address(place, "the waypoint's address, or null")
        files = str(base / DEFAULT_WAYPOINT_TOKEN), str(base / DEFAULT_WAYPOINT_CA)
        return None if address is None else WaypointPolicy(address, WAYPOINT_PORT, *files)
    keys = ("address", "port", "token_file", "ca_file", "fingerprint", "name", "on_loss")
    section = place.section(keys, ("address",))
    address = _address(section["address"], "the waypoint's address") if "address" in section else None
    fingerprint = None
    if section.values.get("fingerprint") is not None:
        fingerprint = _fingerprint(section["fingerprint"])
        if section.values.get("ca_file") is not None:
            section["fingerprint"].fail("expected either ca_file or fingerprint")
    ca_file = path_of(section, "ca_file", base)
    if ca_file is None and fingerprint is None:
        ca_file = str(base / DEFAULT_WAYPOINT_CA)
    name = section["name"].identifier() if section.values.get("name") is not None else None
    port = integer_of(section, "port", WAYPOINT_PORT, 1, 65535)
    token_file = path_of(section, "token_file", base) or str(base / DEFAULT_WAYPOINT_TOKEN)
    on_loss = choice_of(section, "on_loss", ON_LOSS)
    return None if address is None else WaypointPolicy(address, port, token_file, ca_file, fingerprint, name, on_loss)


def _fingerprint(place: Place) -> str | None:
    text = place.value.replace(":", "").lower() if isinstance(place.value, str) else ""
    if _FINGERPRINT.fullmatch(text):
        return text
    place.expected("a SHA-256 fingerprint: 64 hex digits, with or without colons")
    return None


def _controller(place: Place, base: Path) -> ControllerPolicy | None:
    raw: dict[str, Any] = {"address": place.value} if isinstance(place.value, str) else place.value
    known = ("address", "port", "token_file", "ca", "certificate", "key")
    section = Place(raw, place.problems, place.path).section(known, ("address",))
    if "address" not in section:
        return None
    address = _address(section["address"], "the controller's address")
    port = integer_of(section, "port", CONTROLLER_PORT, 1, 65535)
    ca, certificate, key = (path_of(section, name, base) for name in ("ca", "certificate", "key"))
    if (certificate is None) != (key is None) or (certificate is not None and ca is None):
        section.place.fail("expected certificate and key together, and ca with them")
        return None
    tls = None if ca is None else ControllerTls(ca, certificate, key)
    return None if address is None else ControllerPolicy(address, port, path_of(section, "token_file", base), tls)
