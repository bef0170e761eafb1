"""Reads what :mod:`.doctor` judges: files, interfaces, Open vSwitch, adapters and controllers of this box.

Nothing is changed. Each part has a bound on its time, and what cannot be read is a fact as well.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from hyroads.controller.kernel.generic_netlink import DATAPATH_FAMILY, family_id
from hyroads.controller.kernel.netlink import NetlinkError

from .backends import run_command
from .certificate_dates import certificate_dates
from .doctor import (
    BoxFacts,
    CertificateFacts,
    ControllerFacts,
    DiskFacts,
    PlcFacts,
    PortFacts,
    RadioFacts,
    SecretFacts,
    ServiceFacts,
    SwitchConnection,
    SwitchFacts,
)
from .doctor_controller import controller_facts
from .doctor_settings import BoxSettings, Secret
from .model import RadioError
from .plc_reader import HomePlugReader

Run = Callable[[list[str]], str]
NET = Path("/sys/class/net")
PROC = Path("/proc")
STATE_FOLDERS = (Path("/var/lib"), Path("/run"))
SYSTEMD = Path("/run/systemd/system")
MOST_PROBED_PORTS = 8
STATUS_S = 5.0
"""So often ovs-vswitchd writes into its database which controllers it is connected to."""
_LOOK_S = 0.5
_OVS_S = "--timeout=2"
_SIOCETHTOOL, _GET_GRO, _GET_FLAGS, _LRO = 0x8946, 0x2B, 0x25, 1 << 15


def read_facts(settings: BoxSettings, run: Run = run_command) -> BoxFacts:
    """Everything of this box."""
    switch = switch_facts(settings.node, run)
    named = {each.name: each for each in settings.interfaces}
    names = dict.fromkeys([*named, *switch.ports])
    radios = [each.name for each in settings.interfaces if each.backend == "linux-wifi"]
    lines = [each.name for each in settings.interfaces if each.backend == "plc"]
    ports = tuple(port_facts(name, named[name].backend if name in named else None) for name in names)
    present = [port.name for port in ports if port.mtu_bytes is not None]
    controllers = tuple(controller_facts(address, settings) for address in settings.controllers)
    if not any(_is_out_of_reach(one) for one in controllers):
        switch = with_fresh_connections(switch, run)
    return BoxFacts(
        node=settings.node,
        now_s=time.time(),
        settings=settings.problems,
        switch=switch,
        ports=ports,
        radios=tuple(radio_facts(name, run) for name in radios),
        plc=tuple(plc_facts(name, [port for port in present if port not in named]) for name in lines),
        secrets=tuple(_secrets(settings)),
        certificates=tuple(_certificates(settings)),
        controllers=controllers,
        disks=tuple(disk_facts(path) for path in dict.fromkeys((*settings.folders, *STATE_FOLDERS)) if path.is_dir()),
        services=tuple(_services(settings, run)),
    )


def _is_out_of_reach(controller: ControllerFacts) -> bool:
    return bool(controller.unresolved or controller.unreachable or controller.tls or controller.refused)


# -- Open vSwitch


def with_fresh_connections(
    switch: SwitchFacts,
    run: Run,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> SwitchFacts:
    """Read the bridge's connections again until all are there, or the database has been written since the first read.

    A switch that has connected within the last ``STATUS_S`` seconds is not connected by its database.
    """
    until_s = clock() + STATUS_S + _LOOK_S
    while switch.bridge is not None and not all(one.connected for one in switch.controllers) and clock() < until_s:
        sleep(_LOOK_S)
        switch = replace(switch, controllers=tuple(_controllers(switch.bridge, run)) or switch.controllers)
    return switch


def switch_facts(node: str, run: Run) -> SwitchFacts:
    """Open vSwitch as ``ovs-vsctl`` and ``ovs-appctl`` show it, and the bridge with the port NODE-net."""
    try:
        limit = run(["ovs-vsctl", _OVS_S, "--if-exists", "get", "Open_vSwitch", ".", "other_config:vlan-limit"])
        run(["ovs-appctl", _OVS_S, "version"])
        bridges = _rows(run(["ovs-vsctl", _OVS_S, "-f", "json", "list", "Bridge"]))
        interfaces = _rows(run(["ovs-vsctl", _OVS_S, "-f", "json", "--columns=name,error", "list", "Interface"]))
    except RadioError as error:
        return SwitchFacts(problem=str(error))
    except (ValueError, KeyError, TypeError) as error:
        return SwitchFacts(problem=f"its answer cannot be read: {error}")
    ports = {str(bridge["name"]): _ports(str(bridge["name"]), run) for bridge in bridges}
    name = next((each for each, listed in ports.items() if f"{node}-net" in listed), None)
    vlan_limit = limit.strip().strip('"') or None
    if not node or name is None:
        return SwitchFacts(vlan_limit=vlan_limit)
    bridge = next(each for each in bridges if each["name"] == name)
    errors = {str(row["name"]): row["error"] for row in interfaces if isinstance(row["error"], str) and row["error"]}
    return SwitchFacts(
        vlan_limit=vlan_limit,
        bridge=name,
        ports=ports[name],
        port_errors=tuple((port, errors[port]) for port in ports[name] if port in errors),
        datapath=bridge["datapath_type"] or "system",
        datapath_problem=_datapath_problem(name, errors, run),
        kernel_datapath=_kernel_datapath(run),
        fail_mode=bridge["fail_mode"] or "standalone",
        controllers=tuple(_controllers(name, run)),
    )


def _rows(text: str) -> list[dict[str, Any]]:
    """Rows of a table that ``ovs-vsctl -f json`` prints; an empty set is None."""
    table = json.loads(text)
    return [dict(zip(table["headings"], map(_value, row), strict=True)) for row in table["data"]]


def _value(cell: Any) -> Any:
    if isinstance(cell, list) and len(cell) == 2:
        kind, content = cell
        if kind == "map":
            return {key: _value(value) for key, value in content}
        if kind == "set":
            return content or None
    return cell


def _ports(bridge: str, run: Run) -> tuple[str, ...]:
    try:
        return tuple(run(["ovs-vsctl", _OVS_S, "list-ports", bridge]).split())
    except RadioError:
        return ()


def _datapath_problem(bridge: str, errors: Mapping[str, str], run: Run) -> str:
    """Why the bridge has no datapath; Open vSwitch then does not show it to ``ovs-ofctl`` or ``ovs-appctl``."""
    try:
        run(["ovs-appctl", _OVS_S, "fdb/show", bridge])
    except RadioError:
        return errors.get(bridge, "Open vSwitch could not create it")
    return ""


def _kernel_datapath(run: Run) -> bool:
    try:
        if family_id(DATAPATH_FAMILY) is not None:
            return True
    except NetlinkError:
        pass
    try:
        run(["modinfo", "-n", "openvswitch"])
    except RadioError:
        return False
    return True


def _controllers(bridge: str, run: Run) -> Iterator[SwitchConnection]:
    try:
        wanted = set(run(["ovs-vsctl", _OVS_S, "get-controller", bridge]).split())
        rows = _rows(run(["ovs-vsctl", _OVS_S, "-f", "json", "list", "Controller"]))
    except (RadioError, ValueError, KeyError, TypeError):
        return
    for row in rows:
        if row["target"] in wanted:
            error = (row["status"] or {}).get("last_error", "")
            yield SwitchConnection(str(row["target"]), row["is_connected"] is True, str(error))


# -- interfaces


def port_facts(name: str, backend: str | None) -> PortFacts:
    """MTU and receive offloads of an interface."""
    try:
        mtu = int((NET / name / "mtu").read_text())
    except (OSError, ValueError):
        return PortFacts(name, None, backend)
    # A TAP device joins nothing: what a program writes to it comes as it is.
    is_tap = (NET / name / "tun_flags").exists()
    return PortFacts(name, mtu, backend, frozenset() if is_tap else frozenset(_merges(name)))


def _merges(name: str) -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        if _ethtool(probe, name, _GET_GRO):
            yield "gro"
        if _ethtool(probe, name, _GET_FLAGS) & _LRO:
            yield "lro"


def _ethtool(probe: socket.socket, name: str, command: int) -> int:
    """The value of an ethtool command that reads one number; 0 if the driver does not know it."""
    value = ctypes.create_string_buffer(struct.pack("=II", command, 0))
    request = struct.pack("16sP16x", name.encode()[:15], ctypes.addressof(value))
    try:
        fcntl.ioctl(probe, _SIOCETHTOOL, request)
    except OSError:
        return 0
    return int(struct.unpack("=II", value.raw[:8])[1])


def radio_facts(name: str, run: Run) -> RadioFacts:
    """The mode of an 802.11 interface, from ``iw dev NAME info``."""
    try:
        text = run(["iw", "dev", name, "info"])
    except RadioError as error:
        return RadioFacts(name, None, problem=str(error))
    mode = re.search(r"(?m)^\s*type (.+)$", text)
    four = re.search(r"(?m)^\s*4addr: on$", text)
    if mode is None:
        return RadioFacts(name, None, problem="iw shows no mode")
    return RadioFacts(name, mode[1].strip(), four is not None)


def plc_facts(name: str, others: Iterable[str]) -> PlcFacts:
    """Whether an adapter answers at an interface; if none does, at which of the ``others`` one answers."""
    problem = _silence(name)
    if not problem:
        return PlcFacts(name, "")
    taps = (each for each in others if each != name and not (NET / each / "tun_flags").exists())
    found = tuple(each for each, _ in zip(taps, range(MOST_PROBED_PORTS), strict=False) if not _silence(each))
    return PlcFacts(name, problem, is_bridge(name), found)


def is_bridge(name: str) -> bool:
    """Whether an interface is a bridge of the kernel, or the own port of one of Open vSwitch in a process or kernel."""
    if (NET / name / "bridge").is_dir():
        return True
    try:
        return name in run_command(["ovs-vsctl", _OVS_S, "list-br"]).split()
    except RadioError:
        return False


def _silence(name: str) -> str:
    """Why no adapter answers at an interface; empty if one does."""
    try:
        HomePlugReader(name).view(time.monotonic())
    except RadioError as error:
        return str(error)
    return ""


# -- files


def _secrets(settings: BoxSettings) -> Iterator[SecretFacts]:
    for secret in {each.path: each for each in settings.secrets}.values():
        yield SecretFacts(secret.place, secret.path, secret_problem(secret))
    if settings.key is not None:
        yield SecretFacts("key", settings.key, _file_problem(Path(settings.key)))


def secret_problem(secret: Secret) -> str:
    """What is wrong with a token; empty if nothing is."""
    if secret.token is not None:
        return _file_problem(Path(secret.path))
    return _file_problem(Path(secret.path)) or ("" if secret.read() else "it is empty")


def _file_problem(path: Path) -> str:
    try:
        status = path.stat()
    except OSError as error:
        return error.strerror or str(error)
    if status.st_mode & 0o077:
        return f"its mode is {status.st_mode & 0o777:04o}: others can read it, expected 0600"
    return ""


def _certificates(settings: BoxSettings) -> Iterator[CertificateFacts]:
    for place, path, own in (("ca", settings.ca, False), ("certificate", settings.certificate, True)):
        if path is not None:
            yield certificate_facts(place, path, own=own)


def certificate_facts(place: str, path: str, *, own: bool) -> CertificateFacts:
    """What a certificate file says of itself."""
    try:
        found = certificate_dates(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        return CertificateFacts(place, path, str(getattr(error, "strerror", None) or error), own=own)
    return CertificateFacts(place, path, "", found.begins_s, found.ends_s, found.names, own)


def disk_facts(path: Path) -> DiskFacts:
    """Space of the file system that a folder is on, for programs that are not root's."""
    status = os.statvfs(path)
    full = status.f_files > 0 and status.f_favail == 0
    free = 0 if full else status.f_bavail * status.f_frsize
    return DiskFacts(str(path), bool(status.f_flag & os.ST_RDONLY), free)


# -- programs


def _services(settings: BoxSettings, run: Run) -> Iterator[ServiceFacts]:
    if not settings.node:
        return
    running = list(command_lines())
    edge = any(_is(words, "hyroads-edge") and _value_of(words, "--node") == settings.node for words in running)
    yield _service(f"hyroads-edge@{settings.node}", "hyroads-edge", edge, run)
    if settings.interfaces:
        agent = any("ap-agent" in words[:8] or _is(words, "hyroads-ap-agent") for words in running)
        yield _service("hyroads-ap-agent", "hyroads-ap", agent, run)


def command_lines() -> Iterator[list[str]]:
    """The words of the command lines of all processes in this process's network namespace.

    A program in another namespace, for example in a container, may serve another box of the same name.
    """
    for folder in PROC.glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
            shares_network = _shares_network(folder)
        except OSError:
            continue
        if words and shares_network:
            yield words


def _shares_network(process: Path) -> bool:
    try:
        return (process / "ns" / "net").readlink() == (PROC / "self" / "ns" / "net").readlink()
    except PermissionError:
        # Only root reads the namespaces of root's programs; without root each program counts as one of this box.
        return True


def _is(words: list[str], program: str) -> bool:
    return Path(words[0]).name == program


def _value_of(words: list[str], option: str) -> str | None:
    return next((value for word, value in pairwise(words) if word == option), None)


def _service(unit: str, init: str, running: bool, run: Run) -> ServiceFacts:
    if not SYSTEMD.exists():
        script = Path("/etc/init.d", init)
        return ServiceFacts(unit, running, f"{script} start" if script.exists() else f"start {init}")
    state = ""
    if not running:
        try:
            shown = run(["systemctl", "show", "-p", "ActiveState,Result,UnitFileState", unit]).split()
            state = ", ".join(word.partition("=")[2] for word in shown if word.partition("=")[2])
        except RadioError:
            state = "unknown to systemd"
    return ServiceFacts(unit, running, f"systemctl enable --now {unit}; journalctl -u {unit} says why", state)
