"""What an adopted box changes: from the controller's answer to files and commands, each with its way back. Pure.

The answer is not trusted: every word that gets into a file or a command line has a narrow form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .box_application import HOST, INTERFACE, Interface, text_of
from .checking import Place, Problems, Section
from .errors import ConfigError

ETC, STATE = "/etc/hyroads", "/var/lib/hyroads-box"
DEFAULTS = "/etc/default/hyroads-ap"
PORTS_SERVICE = "hyroads-box-ports.service"
PORTS_UNIT = f"/etc/systemd/system/{PORTS_SERVICE}"
KEY, CERTIFICATE, AUTHORITY = (f"{ETC}/{name}" for name in ("node.key", "node.pem", "ca.pem"))
TOKENS = {"agent": f"{ETC}/agent.token", "radio": f"{ETC}/radio.token"}
RADIOS = f"{ETC}/ap.json"
OWNER = "hyroads-ap"
MOST_PORTS, MOST_CONTROLLERS = 16, 8
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,10}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,14}")
_TECHNOLOGY = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?")
_IPV6 = re.compile(r"\[[0-9a-fA-F:.]{2,45}\]")
_DPID = re.compile(r"[0-9a-f]{16}")
_PEM = re.compile(r"(-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n?)+")
RADIO, POWER_LINE = "linux-wifi", "plc"


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the node: a technology or ``host``, the box's interface, and the name that the controller expects."""

    what: str
    interface: str
    name: str


@dataclass(frozen=True, slots=True)
class Listener:
    """Where controllers listen for switches or agents, and whether over TLS."""

    port: int
    tls: bool


@dataclass(frozen=True)
class Setup:
    """What a controller says that an adopted box is."""

    node: str
    dpid: str
    bridge: str
    ports: Sequence[Port]
    controllers: Sequence[str]
    openflow: Listener
    agents: Listener | None
    vlan_limit: int
    certificate: str = field(repr=False)
    authority: str = field(repr=False)


@dataclass(frozen=True)
class Secrets:
    """What the box has made: its private key (PEM) and its tokens by role."""

    key: str = field(repr=False)
    tokens: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Present:
    """How a box is before it is set up. ``vlan_limit`` is Open vSwitch's setting as text; None: it has none."""

    interfaces: Sequence[Interface]
    bridges: Sequence[str] = ()
    has_certificate: bool = False
    """Whether Open vSwitch has one already."""
    vlan_limit: str | None = None
    kernel_datapath: bool = True


@dataclass(frozen=True, slots=True)
class Run:
    """A command; it is left out unless the path ``if_there`` exists, where one is given."""

    words: tuple[str, ...]
    if_there: str = ""


@dataclass(frozen=True)
class WriteFile:
    """A file with a text; the way back is its earlier content."""

    path: str
    text: str = field(repr=False)
    mode: int = 0o644
    owner: str = ""


@dataclass(frozen=True)
class MakeFolder:
    """A folder; the way back removes it if it was not there and is empty."""

    path: str


@dataclass(frozen=True)
class Commands:
    """Commands, and those that take back what they did, which do no harm if they did nothing."""

    do: tuple[Run, ...]
    undo: tuple[Run, ...]


Step = WriteFile | MakeFolder | Commands


def setup_of(document: object, dialled: str, name: str = "the controller's answer") -> Setup:
    """Read what the controller says; ConfigError. ``dialled`` is the host by which the box joined: without another
    word it is where controllers are.
    """
    problems = Problems(name)
    keys = (
        "node",
        "dpid",
        "bridge",
        "ports",
        "controllers",
        "openflow",
        "agents",
        "vlan_limit",
        "certificate",
        "authority",
    )
    section = Place(document, problems).section(keys, keys)
    problems.raise_if_any()
    if not _HOST.fullmatch(dialled) and not _IPV6.fullmatch(dialled):
        raise ConfigError(name, "controllers", "expected to be dialled by a host name or an address")
    hosts = [text_of(each, _HOST.fullmatch, "a host") for each in section["controllers"].items()]
    agents = section["agents"]
    found = Setup(
        text_of(section["node"], _NODE.fullmatch, "the id of a node, 11 characters at most"),
        text_of(section["dpid"], _DPID.fullmatch, "16 hex digits"),
        text_of(section["bridge"], _NAME.fullmatch, "the name of a bridge"),
        _ports(section),
        hosts[:MOST_CONTROLLERS] or [dialled],
        _listener(section["openflow"]),
        None if agents.value is None else _listener(agents),
        section["vlan_limit"].integer(0, 0, 2),
        text_of(section["certificate"], _is_pem, "a PEM certificate"),
        text_of(section["authority"], _is_pem, "PEM certificates"),
    )
    problems.raise_if_any()
    return found


def _is_pem(text: str) -> bool:
    return len(text) < 16384 and _PEM.fullmatch(text) is not None


def _listener(place: Place) -> Listener:
    section = place.section(("port", "tls"), ("port", "tls"))
    if "port" not in section or "tls" not in section:
        return Listener(0, False)
    return Listener(section["port"].integer(1, 1, 65535), section["tls"].boolean(True))


def _ports(top: Section) -> list[Port]:
    found = []
    for what, entry in top["ports"].entries():
        section = entry.section(("interface", "name"), ("interface", "name"))
        if _TECHNOLOGY.fullmatch(what) is None:
            entry.expected("a technology")
        elif "interface" in section and "name" in section:
            interface = text_of(section["interface"], INTERFACE.fullmatch, "the name of an interface")
            found.append(Port(what, interface, text_of(section["name"], _NAME.fullmatch, "the name of a port")))
    if len(found) > MOST_PORTS or len({port.interface for port in found}) < len(found):
        top["ports"].expected(f"{MOST_PORTS} ports at most, each with an interface of its own")
    return found


# -- the plan


def plan(setup: Setup, secrets: Secrets, present: Present) -> list[Step]:
    """All steps from a box that is ``present`` to the node, in order; ConfigError if the box is not ready for it."""
    _check(setup, present)
    steps: list[Step] = [MakeFolder(ETC)]
    steps += [
        WriteFile(CERTIFICATE, setup.certificate, 0o600, OWNER),
        WriteFile(AUTHORITY, setup.authority, 0o644, OWNER),
    ]
    steps += [WriteFile(KEY, secrets.key, 0o600, OWNER)]
    steps += [WriteFile(path, f"{secrets.tokens[role]}\n", 0o600, OWNER) for role, path in TOKENS.items()]
    steps += _port_steps(setup, present)
    if setup.agents is not None:
        steps += _agent_steps(setup, setup.agents, present)
    return [*steps, _bridge_step(setup, present)]


def _check(setup: Setup, present: Present) -> None:
    known = {each.name: each for each in present.interfaces}
    for port in setup.ports:
        if port.interface not in known:
            raise ConfigError("box", port.what, f"interface {port.interface} is not there")
        if known[port.interface].uplink:
            raise ConfigError("box", port.what, f"{port.interface} is the interface by which the controller is reached")
        if port.name != port.interface and port.name in known:
            raise ConfigError("box", port.what, f"an interface {port.name} is there already")
    if setup.bridge in present.bridges:
        raise ConfigError("box", "bridge", f"a bridge {setup.bridge} is there already: ovs-vsctl del-br {setup.bridge}")
    if setup.openflow.tls and present.has_certificate:
        raise ConfigError("box", "Open vSwitch", "it has a certificate already: ovs-vsctl del-ssl")


def _port_steps(setup: Setup, present: Present) -> list[Step]:
    """Interfaces have the controller's names and are up, also after a restart."""
    up = {each.name: each.up for each in present.interfaces}
    starts, undo = [], []
    for port in setup.ports:
        there = f"/sys/class/net/{port.name}"
        if port.name != port.interface:
            # After a restart with the new name there is nothing to do.
            starts += [f"-ip link set dev {port.interface} down"]
            starts += [f"-ip link set dev {port.interface} name {port.name}"]
            undo += [_ip(port.name, "down", if_there=there), _ip(port.name, "name", port.interface, if_there=there)]
        starts.append(f"ip link set dev {port.name} up")
        state = "up" if up.get(port.interface) else "down"
        undo.append(_ip(port.interface, state, if_there=f"/sys/class/net/{port.interface}"))
    text = "\n".join(
        [
            "[Unit]",
            f"Description=Ports of the HyRoads node {setup.node}",
            "Before=network-pre.target openvswitch-switch.service ovs-vswitchd.service",
            "Wants=network-pre.target",
            "DefaultDependencies=no",
            "StartLimitIntervalSec=0",
            "[Service]",
            "Type=oneshot",
            "RemainAfterExit=yes",
            # A radio may come later than the rest.
            "Restart=on-failure",
            "RestartSec=2",
            *(f"ExecStart={line}" for line in starts),
            "[Install]",
            "WantedBy=sysinit.target",
            "",
        ]
    )
    return [
        Commands((), (_systemctl("daemon-reload"),)),
        WriteFile(PORTS_UNIT, text),
        Commands(
            (_systemctl("daemon-reload"), _systemctl("enable", "--now", PORTS_SERVICE)),
            (_systemctl("disable", "--now", PORTS_SERVICE, if_there=PORTS_UNIT), *undo),
        ),
    ]


def _agent_steps(setup: Setup, agents: Listener, present: Present) -> list[Step]:
    own = f"--ca {AUTHORITY} --cert {CERTIFICATE} --key {KEY}" if agents.tls else ""
    where = ",".join(f"{host}:{agents.port}" for host in setup.controllers)
    radio = f"--token-file {TOKENS['radio']}"
    defaults = (
        "# Written by hyroads box join; hyroads box leave restores the earlier content.\n"
        f"CONTROLLER={where}\nTOKEN_FILE={TOKENS['agent']}\n"
        f'EDGE_OPTIONS="{own}"\nAP_OPTIONS="{radio}{" " if own else ""}{own}"\n'
    )
    units = [f"hyroads-edge@{setup.node}.service"]
    steps: list[Step] = [WriteFile(DEFAULTS, defaults)]
    radios = radios_document(setup, present)
    if radios["interfaces"]:
        steps.append(WriteFile(RADIOS, json.dumps(radios, indent=1) + "\n", 0o600, OWNER))
        units.append("hyroads-ap-agent.service")
    start, stop = _systemctl("enable", "--now", *units), _systemctl("disable", "--now", *units)
    return [*steps, Commands((start,), (stop,))]


def radios_document(setup: Setup, present: Present) -> dict[str, Any]:
    """The file ``ap.json``: ports that an access point's agent can read."""
    kinds = {each.name: each.kind for each in present.interfaces}
    interfaces = []
    for port in setup.ports:
        backend = _backend(port.what, kinds.get(port.interface))
        if port.what != HOST and backend is not None:
            entry = {"name": port.name, "technology": port.what, "medium": port.what, "backend": backend}
            interfaces.append(entry)
    return {"node": setup.node, "interfaces": interfaces}


def _backend(what: str, kind: str | None) -> str | None:
    """How an agent reads a port; None: it is plain Ethernet, which has nothing to read, whatever it is a port of."""
    if kind == "wifi" or (what == "wifi" and kind != "ethernet"):
        return RADIO
    return POWER_LINE if what == "plc" else None


def _bridge_step(setup: Setup, present: Present) -> Commands:
    """Open vSwitch is changed in one transaction."""
    scheme = "ssl" if setup.openflow.tls else "tcp"
    targets = [f"{scheme}:{host}:{setup.openflow.port}" for host in setup.controllers]
    names = [port.name for port in setup.ports]
    if setup.agents is not None:
        names += [f"{setup.node}-acc", f"{setup.node}-net"]
    options = ["protocols=OpenFlow13", "fail_mode=secure", f"other-config:datapath-id={setup.dpid}"]
    options += ["other-config:disable-in-band=true", *([] if present.kernel_datapath else ["datapath_type=netdev"])]
    parts = [["set-ssl", KEY, CERTIFICATE, AUTHORITY]] if setup.openflow.tls else []
    parts += [["set", "Open_vSwitch", ".", f"other_config:vlan-limit={setup.vlan_limit}"]]
    parts += [["add-br", setup.bridge], ["set", "bridge", setup.bridge, *options]]
    for number, target in enumerate(targets):
        parts += [[f"--id=@c{number}", "create", "Controller", f'target="{target}"', "max_backoff=1000"]]
    parts += [["set", "bridge", setup.bridge, f"controller={','.join(f'@c{i}' for i in range(len(targets)))}"]]
    parts += [["add-port", setup.bridge, name] for name in names]
    back = ["set", "Open_vSwitch", ".", f"other_config:vlan-limit={present.vlan_limit}"]
    if present.vlan_limit is None:
        back = ["remove", "Open_vSwitch", ".", "other_config", "vlan-limit"]
    undo = [["--if-exists", "del-br", setup.bridge], *([["del-ssl"]] if setup.openflow.tls else []), back]
    return Commands((_vsctl(parts),), (_vsctl(undo),))


def _vsctl(parts: Sequence[Sequence[str]]) -> Run:
    words = [word for part in parts for word in ("--", *part)]
    return Run(("ovs-vsctl", "--timeout=20", *words))


def _systemctl(*words: str, if_there: str = "") -> Run:
    return Run(("systemctl", *words), if_there)


def _ip(interface: str, *words: str, if_there: str) -> Run:
    return Run(("ip", "link", "set", "dev", interface, *words), if_there)
