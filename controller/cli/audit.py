"""``hyroads audit``: reads what an installation has, and shows what of it is weak (docs/security.md).

Everything is judged in ``core/audit.py``. Nothing is changed, and no secret is shown.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import socket
import stat
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.audit import (
    WEAK,
    BoxCertificate,
    Certificate,
    FileFacts,
    Finding,
    Installation,
    PluginFacts,
    Port,
    Running,
    TlsFacts,
    is_loopback,
    judge,
)
from hyroads.controller.core.checking import Endpoint, TlsFiles
from hyroads.controller.core.document import load_document
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.port_readings import SmallPort
from hyroads.controller.core.secret_places import files_in, secrets_in
from hyroads.controller.files.text import read_text
from hyroads.rest.client import Client, ClientError

from .main import Command, argument

if TYPE_CHECKING:
    from hyroads.controller.core.network import Network
    from hyroads.controller.settings.controller import Settings

FOUND = 1
CONTROLLER, SLICER, SNMPVISOR = "controller", "slicer", "snmpvisor"
_LISTENS = "0A"
_TABLES = {True: ("tcp", "tcp6"), False: ("udp", "udp6")}
_MOST_SECRET = 4096
_ASK_S = 2.0


def _run(args: argparse.Namespace) -> int:
    from hyroads.controller.settings.controller import DEFAULT_FILE

    name = args.config or os.environ.get("HYROADS_CONFIG") or DEFAULT_FILE
    installation, refused = read(name, os.environ)
    findings = judge(installation)
    if args.json:
        print(json.dumps(_document(installation, findings, refused), indent=2))
    else:
        print("\n".join(_lines(installation, findings, refused)))
    return FOUND if refused or any(finding.level == WEAK for finding in findings) else 0


def read(name: str, environment: Mapping[str, str]) -> tuple[Installation, str | None]:
    """The installation of a file of settings; :class:`ConfigError` if these are wrong. Settings that the program itself
    would refuse because of a file's mode are not looked at any further: the second value says why.
    """
    document = load_document(read_text(name), name)
    program = _program(document)
    files = tuple(_files(document, name))
    secrets = dict(secrets_in(document)) | _secrets_of(document, Path(name).parent)
    found: dict[str, Any] = {"files": files, "secrets": secrets, "now_s": time.time()}
    try:
        found |= _READERS[program](name, environment)
    except ConfigError as error:
        if not any(file.mode is not None and file.mode & 0o077 for file in files):
            raise
        return Installation(program, name, **found), str(error)
    return Installation(program, name, **found), None


def _program(document: object) -> str:
    """Whose settings these are, by the keys that only they have."""
    keys = document.keys() if isinstance(document, Mapping) else ()
    if "devices" in keys:
        return SNMPVISOR
    return SLICER if "slices" in keys and "network" not in keys else CONTROLLER


# -- files


def _files(document: object, name: str) -> Iterator[FileFacts]:
    """Those that hold secrets: the settings themselves if they do, and what they name."""
    if any(True for _ in secrets_in(document)):
        yield _facts("settings", Path(name))
    for file in files_in(document):
        yield _facts(file.place, Path(name).parent / file.name)


def _facts(place: str, path: Path) -> FileFacts:
    try:
        known = path.stat()
        folders = [folder for folder in path.resolve().parents if _is_open(folder)]
    except OSError:
        return FileFacts(place, str(path), None)
    return FileFacts(place, str(path), stat.S_IMODE(known.st_mode), known.st_uid, str(folders[0]) if folders else None)


def _is_open(folder: Path) -> bool:
    mode = folder.stat().st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _secrets_of(document: object, base: Path) -> dict[str, str]:
    """The secrets of the files of tokens, as far as they can be read."""
    found = {}
    for file in files_in(document):
        if file.place.endswith("token_file"):
            try:
                with (base / file.name).open("rb") as handle:
                    found[file.place] = handle.read(_MOST_SECRET).decode().strip()
            except (OSError, ValueError):
                continue
    return {place: secret for place, secret in found.items() if secret}


# -- ports


def _port(place: str, endpoint: Endpoint, *, stream: bool = True, **more: bool) -> Port:
    return Port(place, endpoint.host, endpoint.port, stream, running=tuple(_running(endpoint.port, stream)), **more)


def _running(port: int, stream: bool) -> Iterator[Running]:
    """Who listens at a port in this network namespace."""
    for table in _TABLES[stream]:
        try:
            rows = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            (
                _,
                local,
                remote,
                state,
                *_,
            ) = fields = row.split()
            address, _, number = local.partition(":")
            listens = state == _LISTENS if stream else remote.endswith(":0000")
            if listens and int(number, 16) == port:
                yield Running(_address(address), int(fields[7]))


def _address(text: str) -> str:
    """An address as the kernel writes it: words of 32 bits in the order of this machine."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))


def _tls(place: str, endpoint: Endpoint, files: TlsFiles | None, *, tokens: bool = False) -> Port:
    checks = files is not None and files.ca is not None
    return _port(place, endpoint, tls=files is not None, checks_certificates=checks, tokens=tokens)


def _certificates(places: Mapping[str, TlsFiles | None]) -> tuple[Certificate, ...]:
    from hyroads.controller.files.tls import certificate_ends

    return tuple(Certificate(place, ends_s) for place, ends_s in certificate_ends(places).items())


def _tls_facts(places: Mapping[str, TlsFiles | None]) -> Iterator[TlsFacts]:
    """What can't be read here is refused, with its reason, where it is loaded."""
    from hyroads.controller.files.tls import authorities_in, certificate_facts

    for place, files in places.items():
        if files is not None:
            with suppress(OSError, ValueError):
                roles = certificate_facts(Path(files.certificate).read_bytes()).roles
                yield TlsFacts(place, files.certificate, roles, authorities_in(files.ca) if files.ca else frozenset())


def _box_certificates(settings: Settings) -> Iterator[BoxCertificate]:
    """Those that adoption has signed, in the order in which it did."""
    from hyroads.controller.files.authority import REVOKED, Authority, revoked_in
    from hyroads.controller.files.tls import certificate_id

    if settings.boxes is None:
        return
    authority = Authority.of(Path(settings.boxes.authority))
    path = authority.folder / REVOKED
    listed = revoked_in(str(path)) if path.exists() else frozenset()
    for one in authority.issued():
        if one.box is not None:
            known = certificate_id(authority.certificate.subject, one.serial_number)
            refused = known in settings.revoked
            yield BoxCertificate(one.name, one.box, f"{one.serial_number:x}", known in listed, refused)


# -- programs


def _read_controller(name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    from hyroads.controller.runtime.files import read_files

    files = read_files({**environment, "HYROADS_CONFIG": name})
    settings, ha = files.settings, files.settings.ha
    snmp = settings.snmp.targets if settings.snmp is not None else ()
    agents = [("agent", node.id) for node in files.network.nodes.values() if node.agent]
    return {
        "ports": tuple(_ports_of(settings)),
        "certificates": _certificates(settings.tls_places),
        "tls": tuple(_tls_facts(settings.tls_places)),
        "box_certificates": tuple(_box_certificates(settings)),
        "plugins": tuple(PluginFacts(one.name, one.bounds.user, _uid(one.bounds.user)) for one in settings.plugins),
        "agent_nodes": len(settings.device_tokens.sharing(agents)),
        "any_switch": tuple(sorted(settings.any_switch)),
        "plain_etcd": tuple(url for url in (ha.etcd if ha else ()) if url.startswith("http:")),
        "small_ports": tuple(_small_ports(settings)),
        "unsealed": () if settings.seals_links else tuple(_link_technologies(files.network)),
        "communities": tuple(
            f"snmp.targets.{one.name}"
            for one in snmp
            if one.credentials.community is not None and not is_loopback(one.host)
        ),
    }


def _link_technologies(network: Network) -> list[str]:
    """Technologies of links between switches."""
    switched = Addressing.of(network).has_switch
    return sorted({link.technology for link in network.links if switched(link.source) and switched(link.target)})


def _small_ports(settings: Settings) -> Iterator[SmallPort]:
    """As the running controller says; none if it does not answer."""
    scheme, tls = ("http", None) if settings.rest_tls is None else ("https", settings.rest_tls)
    host = f"[{settings.rest.host}]" if ":" in settings.rest.host else settings.rest.host
    token = settings.api_tokens[0].token if settings.api_tokens else None
    url, ca = f"{scheme}://{host}:{settings.rest.port}", None if tls is None else tls.certificate
    try:
        with closing(Client(url, token, timeout_s=_ASK_S, tries=1, ca=ca)) as client:
            found = client.health().get("small_ports", [])
    except ClientError:
        return
    yield from (SmallPort(each["node"], each["port"], each["mtu_bytes"]) for each in found)


def _ports_of(settings: Settings) -> Iterator[Port]:
    tokens = bool(settings.api_tokens)
    yield _tls("listen.openflow", settings.openflow, settings.tls)
    agents = settings.device_tokens.are_asked_for
    yield _tls("listen.agents", settings.agents, settings.agents_tls, tokens=agents)
    yield _tls("listen.rest", settings.rest, settings.rest_tls, tokens=tokens)
    ha, region = settings.ha, settings.region
    if ha is not None:
        yield _tls("listen.peer", settings.peer, ha.tls, tokens=ha.peer_token is not None)
    if region is not None:
        place = "listen.peer" if region.listen is None else "region.listen"
        yield _tls(place, region.listen or settings.peer, region.tls, tokens=region.token is not None)
    if settings.sfnet is not None:
        yield _port("sfnet", Endpoint(settings.sfnet.host, settings.sfnet.port), tokens=tokens)


def _uid(user: str | None) -> int | None:
    try:
        return None if user is None else pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def _read_slicer(name: str, _: Mapping[str, str]) -> dict[str, Any]:
    from hyroads.slices.server.settings import load

    settings = load(name)
    ports = [_tls("listen.openflow", settings.openflow, settings.tls)]
    if settings.rest is not None:
        ports.append(_tls("listen.rest", settings.rest, settings.rest_tls, tokens=bool(settings.api_tokens)))
    places = {place: getattr(settings, place) for place in ("tls", "controllers_tls", "rest_tls")}
    found = {"ports": tuple(ports), "certificates": _certificates(places), "tls": tuple(_tls_facts(places))}
    return {**found, "any_switch": tuple(sorted(settings.any_switch))}


def _read_snmpvisor(name: str, _: Mapping[str, str]) -> dict[str, Any]:
    from hyroads.slices.snmpvisor.config import LOOPBACK, load

    settings = load(name)
    ports = [_port("listen", settings.listen, stream=False, tokens=True)]
    if settings.metrics is not None:
        ports.append(_port("metrics", settings.metrics))
    # A device may have a name, which is somewhere else as far as we know.
    away = [one for one in settings.devices.values() if one.address.host not in LOOPBACK]
    plain = tuple(f"devices.{one.name}" for one in away if one.access.community is not None)
    return {"ports": tuple(ports), "communities": plain}


_READERS = {CONTROLLER: _read_controller, SLICER: _read_slicer, SNMPVISOR: _read_snmpvisor}


# -- what is shown


def _document(found: Installation, findings: tuple[Finding, ...], refused: str | None) -> dict[str, Any]:
    ports = [
        {**asdict(port), "running": [asdict(one) for one in port.running], "loopback": port.is_loopback}
        for port in found.ports
    ]
    return {
        "program": found.program,
        "settings": found.document,
        "refused": refused,
        "ports": ports,
        "files": [asdict(file) for file in found.files],
        "certificates": [asdict(one) for one in found.certificates],
        "box_certificates": [asdict(one) for one in found.box_certificates],
        "findings": [asdict(finding) for finding in findings],
        "weak": sum(finding.level == WEAK for finding in findings),
    }


def _lines(found: Installation, findings: tuple[Finding, ...], refused: str | None) -> Iterator[str]:
    yield f"{found.document}: {found.program}"
    for port in found.ports:
        yield f"port  {port.place}: {port.address}, {_reach(port)}; {_asked(port)}; {_as_whom(port)}"
    for one in found.box_certificates:
        yield f"box  {one.node}: certificate {one.serial} of box {one.box}, {'revoked' if one.refused else 'good'}"
    for finding in findings:
        yield f"{finding.level}  {finding.place}: {finding.what}: {finding.do}"
    if refused is not None:
        yield f"{WEAK}  settings: the {found.program} refuses them, and the rest was not looked at: {refused}"
    weak = sum(finding.level == WEAK for finding in findings) + (refused is not None)
    yield f"{weak} weak, {sum(finding.level != WEAK for finding in findings)} notes"


def _reach(port: Port) -> str:
    return "this machine only" if port.is_loopback else "others can reach it"


def _asked(port: Port) -> str:
    asked = [
        *(["TLS with certificates of who dials"] if port.checks_certificates else ["TLS"] if port.tls else ["no TLS"]),
        "token or password" if port.tokens else "no token",
    ]
    return ", ".join(asked)


def _as_whom(port: Port) -> str:
    if not port.running:
        return "nobody listens now"
    return f"listens as user {', '.join(str(uid) for uid in sorted({one.uid for one in port.running}))}"


COMMAND = Command(
    "Show where an installation listens, what of it is weak, and what to do. Changes nothing. Exit status 1: something "
    "is weak (docs/security.md).",
    _run,
    argument(
        "--config",
        metavar="FILE",
        help="settings of a controller, slicer or SNMPVisor (default $HYROADS_CONFIG, /etc/hyroads/hyroads.yaml)",
    ),
    argument("--json", action="store_true", help="print everything as one JSON document"),
)
