"""Judges a box: :class:`BoxFacts`, as they were read, -> findings, one line each. Pure.

A *fault* keeps the box from working in the network or will do so soon; a *note* is worth knowing. A fault that follows
from another one is left out: the first cause is what has to be mended. Reading is in ``doctor_facts.py``.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hyroads.controller.core.frame_sizes import HOST_MTU, LEAST_MTU
from hyroads.controller.core.port_readings import SmallPort

FAULT, NOTE = "fault", "note"
SOON_S = 30 * 86400.0
MOST_CLOCK_ERROR_S = 60.0
MOST_PLC_MTU = HOST_MTU + 4
"""Adapters take frames of 1518 bytes with their check sum, and a VLAN tag more."""
LEAST_FREE_BYTES = 4 << 20
CARRIES_FOREIGN_ADDRESSES = frozenset({"mesh point", "IBSS", "AP", "AP/VLAN"})
"""Modes of 802.11 interfaces that forward frames of other stations."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``check`` names the kind of check, ``place`` the port, file or address; ``do`` is what mends it."""

    level: str
    check: str
    place: str
    what: str
    do: str


@dataclass(frozen=True, slots=True)
class PortFacts:
    """A port of the bridge, or an interface that the agent's file names.

    ``mtu_bytes`` is None if there is no such interface. ``merges`` names what joins received frames to larger ones
    (``gro``, ``lro``).
    """

    name: str
    mtu_bytes: int | None
    backend: str | None = None
    """How the agent reads it; None: the agent's file does not name it."""
    merges: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RadioFacts:
    """The mode of an 802.11 interface as ``iw`` writes it; ``problem`` if it could not be read."""

    name: str
    mode: str | None
    four_addresses: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PlcFacts:
    """Whether the power-line adapter behind an interface answers. ``problem`` is empty if it does."""

    name: str
    problem: str
    bridge: bool = False
    """The interface is a bridge."""
    answers_at: tuple[str, ...] = ()
    """Other ports at which an adapter answers."""


@dataclass(frozen=True, slots=True)
class SwitchConnection:
    """A controller of the bridge, as Open vSwitch shows it."""

    target: str
    connected: bool
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class SwitchFacts:
    """Open vSwitch and the bridge that has the agent's network port. ``problem``: it does not answer."""

    problem: str = ""
    vlan_limit: str | None = None
    bridge: str | None = None
    ports: tuple[str, ...] = ()
    port_errors: tuple[tuple[str, str], ...] = ()
    datapath: str = "system"
    """``system`` is the kernel's, ``netdev`` that of a process."""
    datapath_problem: str = ""
    kernel_datapath: bool = False
    """This kernel has a datapath of Open vSwitch."""
    fail_mode: str = "secure"
    controllers: tuple[SwitchConnection, ...] = ()


@dataclass(frozen=True, slots=True)
class SecretFacts:
    """A file that holds a secret; ``problem`` is empty if the agents can use it."""

    place: str
    path: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """A certificate file. Times are Unix time; ``names`` are those that it is made out to."""

    place: str
    path: str
    problem: str = ""
    begins_s: float = 0.0
    ends_s: float = float("inf")
    names: tuple[str, ...] = ()
    own: bool = True
    """It is the certificate of this box, not that of the authority."""


@dataclass(frozen=True, slots=True)
class ControllerFacts:
    """What happened when a controller was dialled; at most one of the problems is set, the first that occurred."""

    address: str
    unresolved: str = ""
    unreachable: str = ""
    tls: str = ""
    not_yet_valid: bool = False
    """The controller's certificate begins later than this box's clock says."""
    refused: str = ""
    """The controller does not admit this node, in its words."""
    clock_ahead_s: float | None = None
    """By how much the controller's clock is ahead of this box's; None: it was not read."""


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """A folder that programs of the box write to; ``free_bytes`` is 0 if no file can be added."""

    path: str
    read_only: bool
    free_bytes: int


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """A program of the box, and how it is started."""

    name: str
    running: bool
    start: str
    state: str = ""
    """As systemd shows it; empty without systemd."""


@dataclass(frozen=True)
class BoxFacts:
    """What was read. ``settings`` holds the problems of the box's own files, without which the rest is not known."""

    node: str
    now_s: float
    settings: tuple[tuple[str, str], ...] = ()
    switch: SwitchFacts = field(default_factory=SwitchFacts)
    ports: tuple[PortFacts, ...] = ()
    radios: tuple[RadioFacts, ...] = ()
    plc: tuple[PlcFacts, ...] = ()
    secrets: tuple[SecretFacts, ...] = ()
    certificates: tuple[CertificateFacts, ...] = ()
    controllers: tuple[ControllerFacts, ...] = ()
    disks: tuple[DiskFacts, ...] = ()
    services: tuple[ServiceFacts, ...] = ()


def judge(facts: BoxFacts) -> tuple[Finding, ...]:
    """All findings: faults first, each kind in the order of ``_CHECKS``."""
    found = [finding for check in _CHECKS for finding in check(facts)]
    return tuple(sorted(found, key=lambda finding: finding.level != FAULT))


def _settings(facts: BoxFacts) -> Iterator[Finding]:
    for place, problem in facts.settings:
        yield Finding(FAULT, "settings", place, problem, "write it, or join a network")


def _datapath(facts: BoxFacts) -> Iterator[Finding]:
    switch = facts.switch
    if switch.problem or switch.bridge is None:
        return
    place = f"bridge {switch.bridge}"
    user_space = f"ovs-vsctl set bridge {switch.bridge} datapath_type=netdev"
    if switch.datapath_problem:
        load = "modprobe openvswitch" if switch.kernel_datapath else f"use a kernel that has one, or {user_space}"
        yield Finding(FAULT, "datapath", place, f"it has no datapath: {switch.datapath_problem}", load)
    elif switch.datapath == "netdev":
        kernel = f"ovs-vsctl set bridge {switch.bridge} datapath_type=system"
        do = kernel if switch.kernel_datapath else "install a kernel with the module openvswitch for more throughput"
        yield Finding(NOTE, "datapath", place, "a process forwards its frames, not the kernel", do)


def _bridge(facts: BoxFacts) -> Iterator[Finding]:
    switch = facts.switch
    if switch.problem:
        yield Finding(FAULT, "switch", "Open vSwitch", switch.problem, "systemctl restart openvswitch-switch")
        return
    if not facts.node:
        return
    if switch.bridge is None:
        what = f"no bridge has the agent's port {facts.node}-net"
        yield Finding(FAULT, "switch", "Open vSwitch", what, "make the bridge and add its ports")
        return
    wanted = [f"{facts.node}-acc", *(port.name for port in facts.ports if port.backend is not None)]
    for name in dict.fromkeys(wanted):
        if name not in switch.ports and name != switch.bridge and _plc_place(facts, name) is None:
            what = f"port {name} is not in bridge {switch.bridge}"
            yield Finding(FAULT, "switch", name, what, f"ovs-vsctl add-port {switch.bridge} {name}")
    explained = _missing(facts) | _without_agent(facts)
    for name, error in switch.port_errors:
        if name not in explained and not switch.datapath_problem:
            yield Finding(FAULT, "switch", name, f"Open vSwitch cannot use it: {error}", f"ip link show {name}")
    if switch.fail_mode != "secure":
        what = "it forwards by itself without a controller, so frames can circle"
        do = f"ovs-vsctl set-fail-mode {switch.bridge} secure"
        yield Finding(FAULT, "switch", f"bridge {switch.bridge}", what, do)


def _missing(facts: BoxFacts) -> frozenset[str]:
    """Interfaces that do not exist."""
    return frozenset(port.name for port in facts.ports if port.mtu_bytes is None)


def _without_agent(facts: BoxFacts) -> frozenset[str]:
    """The two devices that the edge agent makes, if it does not run."""
    stopped = any(each.name.startswith("hyroads-edge") and not each.running for each in facts.services)
    return frozenset((f"{facts.node}-acc", f"{facts.node}-net") if stopped else ())


def _plc_place(facts: BoxFacts, name: str) -> PlcFacts | None:
    """The facts of a power-line interface that names the wrong port."""
    return next((each for each in facts.plc if each.name == name and each.answers_at), None)


def _vlan_limit(facts: BoxFacts) -> Iterator[Finding]:
    if not facts.switch.problem and facts.switch.vlan_limit != "0":
        what = f"it is {facts.switch.vlan_limit or '1, the default'}: tagged frames of hosts do not match the rules"
        do = "ovs-vsctl set Open_vSwitch . other_config:vlan-limit=0"
        yield Finding(FAULT, "vlan-limit", "Open vSwitch", what, do)


def _mtu(facts: BoxFacts) -> Iterator[Finding]:
    explained = _without_agent(facts)
    for port in facts.ports:
        if port.name in explained:
            continue
        if port.mtu_bytes is None:
            do = "plug the adapter in, or correct the name in the agent's file"
            yield Finding(FAULT, "port", port.name, "there is no such interface", do)
        elif port.backend is None:
            continue
        elif port.mtu_bytes < HOST_MTU:
            small = SmallPort(facts.node, port.name, port.mtu_bytes)
            level = FAULT if port.mtu_bytes < LEAST_MTU else NOTE
            what = f"its MTU is {port.mtu_bytes} bytes: {small.carries}"
            yield Finding(level, "mtu", port.name, what, f"ip link set {port.name} mtu {HOST_MTU}, if its medium can")
        elif port.backend in ("plc", "devolo") and port.mtu_bytes > MOST_PLC_MTU:
            what = f"its MTU is {port.mtu_bytes} bytes: power-line adapters drop frames of more than {HOST_MTU}"
            yield Finding(FAULT, "mtu", port.name, what, f"ip link set {port.name} mtu {HOST_MTU}")


def _offloads(facts: BoxFacts) -> Iterator[Finding]:
    in_process = facts.switch.datapath == "netdev"
    for port in facts.ports:
        wrong = sorted(each for each in port.merges if in_process or each == "lro")
        if wrong:
            what = f"{' and '.join(wrong)} on: it joins received frames to larger ones, which the datapath cannot send"
            do = f"ethtool -K {port.name} {' '.join(f'{each} off' for each in wrong)}"
            yield Finding(FAULT, "offloads", port.name, what, do)


def _radios(facts: BoxFacts) -> Iterator[Finding]:
    missing = _missing(facts)
    for radio in facts.radios:
        if radio.name in missing:
            continue
        if radio.problem:
            yield Finding(FAULT, "radio", radio.name, radio.problem, f"iw dev {radio.name} info shows what is wrong")
        elif radio.mode not in CARRIES_FOREIGN_ADDRESSES and not radio.four_addresses:
            what = f"its mode is {radio.mode}: a station cannot carry frames of other hosts"
            do = "make it a mesh point (802.11s), an IBSS or a station with 4addr on"
            yield Finding(FAULT, "radio", radio.name, what, do)


def _plc(facts: BoxFacts) -> Iterator[Finding]:
    missing = _missing(facts)
    for each in facts.plc:
        if not each.problem or each.name in missing:
            continue
        if each.answers_at:
            kind = "frames of type 0x88e1 do not pass the bridge" if each.bridge else "the adapter is elsewhere"
            port = each.answers_at[0]
            what = f"{kind}: the adapter answers at port {port}"
            yield Finding(FAULT, "0x88e1", each.name, what, f"name {port} instead of {each.name} in the agent's file")
        else:
            do = "check its plug and cable; an adapter that sleeps wakes up with traffic"
            yield Finding(FAULT, "plc", each.name, each.problem, do)


def _clock(facts: BoxFacts) -> Iterator[Finding]:
    wrong = _wrong_clock(facts)
    if wrong:
        yield Finding(FAULT, "clock", "this box", wrong, "timedatectl set-ntp true, or date -s")


def _wrong_clock(facts: BoxFacts) -> str:
    """What is wrong with the box's clock; empty if nothing is."""
    says = f"it says {_day(facts.now_s)}"
    for controller in facts.controllers:
        ahead_s = controller.clock_ahead_s
        if ahead_s is not None and abs(ahead_s) > MOST_CLOCK_ERROR_S:
            side = "behind" if ahead_s > 0 else "ahead of"
            return f"{says}, {abs(ahead_s):.0f} s {side} controller {controller.address}"
    for each in facts.certificates:
        if not each.problem and facts.now_s < each.begins_s:
            return f"{says}, before {each.path} begins ({_day(each.begins_s)})"
    for controller in facts.controllers:
        if controller.not_yet_valid:
            return f"{says}, before the certificate of controller {controller.address} begins"
    return ""


def _secrets(facts: BoxFacts) -> Iterator[Finding]:
    for secret in facts.secrets:
        if secret.problem:
            do = "copy it from the controller, mode 0600, owner hyroads-ap"
            yield Finding(FAULT, "token", secret.path, f"{secret.place}: {secret.problem}", do)


def _certificates(facts: BoxFacts) -> Iterator[Finding]:
    renew = "renew it at the controller (hyroads identity) and copy it here"
    for each in facts.certificates:
        if each.problem:
            yield Finding(FAULT, "certificate", each.path, f"{each.place}: {each.problem}", renew)
        elif each.ends_s <= facts.now_s:
            yield Finding(FAULT, "certificate", each.path, f"{each.place}: it ended on {_day(each.ends_s)}", renew)
        elif each.own and facts.node and facts.node not in each.names:
            names = ", ".join(each.names[:4]) or "no one"
            what = f"{each.place}: it is made out to {names}, not to {facts.node}"
            yield Finding(FAULT, "certificate", each.path, what, renew)
        elif each.ends_s - facts.now_s < SOON_S:
            yield Finding(NOTE, "certificate", each.path, f"{each.place}: it ends on {_day(each.ends_s)}", renew)


def _names(facts: BoxFacts) -> Iterator[Finding]:
    for controller in facts.controllers:
        if controller.unresolved:
            do = "correct the name, /etc/resolv.conf or /etc/hosts, or give an address"
            yield Finding(FAULT, "name", controller.address, f"no address: {controller.unresolved}", do)


def _reach(facts: BoxFacts) -> Iterator[Finding]:
    """Controllers that do not admit this box, unless another finding says why."""
    explained = bool(_wrong_clock(facts)) or _any_fault(_secrets, facts) or _any_fault(_certificates, facts)
    for controller in facts.controllers:
        if controller.unreachable:
            do = "check that the controller runs, its setting listen.agents, and the way to it"
            yield Finding(FAULT, "controller", controller.address, controller.unreachable, do)
        elif controller.tls and not explained:
            do = "compare ca.pem of both ends; the certificate must have the name or address that is dialled"
            yield Finding(FAULT, "controller", controller.address, f"no TLS: {controller.tls}", do)
        elif controller.refused and not explained:
            check = "token" if "token" in controller.refused else "controller"
            what = f"it refuses this box: {controller.refused}"
            do = "make the node's token and certificate at the controller (hyroads identity node) and copy them here"
            yield Finding(FAULT, check, controller.address, what, do)


def _any_fault(check: Callable[[BoxFacts], Iterator[Finding]], facts: BoxFacts) -> bool:
    return any(finding.level == FAULT for finding in check(facts))


def _switch_connection(facts: BoxFacts) -> Iterator[Finding]:
    """A bridge without its controller, unless the agents cannot reach theirs either."""
    if facts.switch.bridge is None or any(_any_fault(each, facts) for each in _CAUSES):
        return
    place = f"bridge {facts.switch.bridge}"
    if not facts.switch.controllers:
        do = f"ovs-vsctl set-controller {facts.switch.bridge} ssl:CONTROLLER:6653"
        yield Finding(FAULT, "switch", place, "it has no controller", do)
    for one in facts.switch.controllers:
        if not one.connected:
            error = f": {one.last_error}" if one.last_error else ""
            do = "check ovs-vsctl get-ssl, and the controller's setting listen.openflow"
            yield Finding(FAULT, "switch", place, f"not connected to {one.target}{error}", do)


def _disks(facts: BoxFacts) -> Iterator[Finding]:
    for disk in facts.disks:
        if disk.read_only:
            do = "mount it writable; a file system with errors is made read-only, see dmesg"
            yield Finding(FAULT, "disk", disk.path, "it is read-only", do)
        elif disk.free_bytes < LEAST_FREE_BYTES:
            what = f"{disk.free_bytes >> 10} KiB free: settings and the switch's database cannot be saved"
            yield Finding(FAULT, "disk", disk.path, what, "remove what is not needed, such as old logs")


def _services(facts: BoxFacts) -> Iterator[Finding]:
    for service in facts.services:
        if not service.running:
            state = f" ({service.state})" if service.state else ""
            yield Finding(FAULT, "service", service.name, f"it does not run{state}", service.start)


def _day(unix_s: float) -> str:
    return datetime.datetime.fromtimestamp(min(unix_s, 253402300799.0), datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


_CAUSES = (_clock, _secrets, _certificates, _names, _reach, _datapath)
"""What may keep the bridge from its controller as well."""
_CHECKS: tuple[Callable[[BoxFacts], Iterator[Finding]], ...] = (
    _settings, _disks, _clock, _services, _bridge, _datapath, _vlan_limit, _mtu, _offloads, _radios, _plc, _secrets,
    _certificates, _names, _reach, _switch_connection,
)  # fmt: skip
