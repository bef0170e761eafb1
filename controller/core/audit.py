"""Judges how safe an installation is: :class:`Installation`, as it was read, -> findings, one line each. Pure.

What is *weak* can be mended by the operator; a *note* says what HyRoads itself does not hold, and what helps. Reading
is in ``cli/audit.py``, what is expected in docs/security.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import PurePath

from .identity import CertificateRole
from .port_readings import SmallPort

WEAK, NOTE = "weak", "note"
SOON_S = 30 * 86400.0
DAY_S = 86400.0
FEW_CHARACTERS = 8
"""A token with fewer different characters was not drawn at random."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``place`` is a key of the settings or a file; ``do`` is what mends or helps."""

    level: str
    place: str
    what: str
    do: str


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file that should hold secrets for its owner alone. ``mode`` is None if it is not there or can't be seen."""

    place: str
    path: str
    mode: int | None
    uid: int = 0
    open_folder: str | None = None
    """The first of its folders that everybody may write, without the sticky bit."""


@dataclass(frozen=True, slots=True)
class Running:
    """Who listens at a port, as the kernel says."""

    host: str
    uid: int


@dataclass(frozen=True, slots=True)
class Port:
    """A port that the settings open. ``tokens``: who speaks there must know one, or a secret like it."""

    place: str
    host: str
    port: int
    stream: bool = True
    """TCP; else UDP."""
    tokens: bool = False
    tls: bool = False
    checks_certificates: bool = False
    running: tuple[Running, ...] = ()

    @property
    def is_loopback(self) -> bool:
        """Whether the settings keep it on this machine."""
        return is_loopback(self.host)

    @property
    def address(self) -> str:
        """As it is written."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate, or the first to end of several in a file; Unix time."""

    place: str
    ends_s: float


@dataclass(frozen=True, slots=True)
class TlsFacts:
    """A section of TLS: the roles of its certificate, and its authorities by their SHA-256."""

    place: str
    certificate: str
    roles: frozenset[str]
    authorities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BoxCertificate:
    """A certificate that was signed for a box at its adoption. ``listed``: it is in the authority's ``revoked.pem``;
    ``refused``: it is in the file of the setting ``revoked``.
    """

    node: str
    box: str
    serial: str
    listed: bool
    refused: bool


@dataclass(frozen=True, slots=True)
class PluginFacts:
    """A plugin of the settings, and the user that it is given; ``uid`` is that user's."""

    name: str
    user: str | None
    uid: int | None = None


@dataclass(frozen=True)
class Installation:
    """What was read. ``program`` is ``controller``, ``slicer`` or ``snmpvisor``."""

    program: str
    document: str
    ports: tuple[Port, ...] = ()
    files: tuple[FileFacts, ...] = ()
    certificates: tuple[Certificate, ...] = ()
    tls: tuple[TlsFacts, ...] = ()
    box_certificates: tuple[BoxCertificate, ...] = ()
    secrets: Mapping[str, str] | None = None
    """Place of the settings -> secret; not shown."""
    plugins: tuple[PluginFacts, ...] = ()
    agent_nodes: int = 0
    """How many nodes share the one agent token, because they have none of their own."""
    any_switch: tuple[str, ...] = ()
    """Names of certificates that may speak for every switch."""
    plain_etcd: tuple[str, ...] = ()
    communities: tuple[str, ...] = ()
    """Where SNMP communities leave this machine in the clear."""
    now_s: float = 0.0
    small_ports: tuple[SmallPort, ...] = ()
    """As the running controller names them; none if it does not answer."""
    unsealed: tuple[str, ...] = ()
    """Technologies of links between switches on which plain traffic has no seals."""

    def __repr__(self) -> str:
        """Without secrets."""
        return f"Installation({self.program}, {self.document})"

    @property
    def uids(self) -> frozenset[int]:
        """As whom the program runs; empty if it does not."""
        return frozenset(one.uid for port in self.ports for one in port.running)


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    return host == "localhost" or ip_address(host).is_loopback


def judge(installation: Installation) -> tuple[Finding, ...]:
    """All findings: weak ones first, each kind in the order of ``_CHECKS``."""
    found = [finding for check in _CHECKS for finding in check(installation)]
    return tuple(sorted(found, key=lambda finding: finding.level != WEAK))


def _tokens(found: Installation) -> Iterator[Finding]:
    for port in found.ports:
        if port.tokens or (port.tls and port.checks_certificates):
            continue
        what, do = _WITHOUT_TOKENS.get((found.program, port.place), ("", ""))
        if what:
            yield Finding(WEAK, port.place, what, do)


_ADMIN = "any program of this machine is an admin there, because there are no api_tokens"
_ANY_PEER = (
    "any program of this machine can be another controller, because there is neither a token nor TLS",
    "give tls, or a token",
)
_WITHOUT_TOKENS = {
    ("controller", "listen.rest"): (_ADMIN, "give api_tokens"),
    ("controller", "sfnet"): (_ADMIN, "give api_tokens"),
    ("controller", "listen.agents"): (
        "any program of this machine can be the agent of any node, because there is no agent_token",
        "give agent_token_file",
    ),
    ("controller", "listen.peer"): _ANY_PEER,
    ("controller", "region.listen"): _ANY_PEER,
    ("slicer", "listen.rest"): (_ADMIN, "give api_tokens, or let the operator use listen.control alone"),
}


_REST = ("controller", "listen.rest")


def _in_the_clear(found: Installation) -> Iterator[Finding]:
    for port in found.ports:
        if port.is_loopback or not port.stream:
            continue
        openflow = port.place == "listen.openflow"
        if port.tls and openflow and not port.checks_certificates:
            what = "whoever reaches the port can be any switch, because no certificate is asked for"
            yield Finding(WEAK, port.place, what, "give tls.ca, and each switch a certificate of it")
        elif openflow and not port.tls:
            what = "switches speak in the clear beyond this machine, and whoever reaches the port can be one"
            yield Finding(WEAK, port.place, what, "give tls with ca instead of allow_plaintext")
        elif port.place == "listen.agents" and not port.tls:
            what = "agents speak in the clear beyond this machine, their tokens too"
            yield Finding(WEAK, port.place, what, "give agents_tls, and each node a certificate: hyroads identity")
        elif not port.tls:
            what = "tokens travel in the clear beyond this machine"
            has_tls = (found.program, port.place) == _REST
            do = "give rest_tls" if has_tls else "listen on loopback, behind a proxy with TLS"
            yield Finding(WEAK, port.place, what, do)


def _shared(found: Installation) -> Iterator[Finding]:
    agents = any(port.place == "listen.agents" and port.tokens for port in found.ports)
    if agents and found.agent_nodes > 1:
        what = f"one token is shared by {found.agent_nodes} nodes: who reads it on one of them can be any of them"
        yield Finding(WEAK, "agent_token", what, "give each its own: hyroads identity, and the setting identities")
    if "*" in found.any_switch:
        what = "each certificate of the authority may speak for every switch"
        yield Finding(WEAK, "any_switch", what, "give each switch a certificate that names it: hyroads identity")


def _secrets(found: Installation) -> Iterator[Finding]:
    places: dict[str, str] = {}
    for place, secret in (found.secrets or {}).items():
        if len(set(secret)) < FEW_CHARACTERS:
            what = f"has only {len(set(secret))} different characters, which is easy to guess"
            yield Finding(WEAK, place, what, "take a random one: openssl rand -hex 24")
        other = places.setdefault(secret, place)
        if other != place:
            what = f"is the same secret as {other}: who has one of them has the other"
            yield Finding(WEAK, place, what, "take a random one for each: openssl rand -hex 24")


def _open_files(found: Installation) -> Iterator[Finding]:
    for file in found.files:
        if file.mode is None:
            continue
        if file.mode & 0o077:
            what = f"{file.path} has secrets and mode {file.mode & 0o777:04o}: others than its owner may use it"
            yield Finding(WEAK, file.place, what, f"chmod 600 {file.path}")
        if file.open_folder is not None:
            what = f"{file.path} can be replaced by everybody, who may write {file.open_folder}"
            yield Finding(WEAK, file.place, what, f"chmod o-w {file.open_folder}")
        # Root reads all files, whomever they belong to: that of another user is changed by that one.
        if found.uids and file.uid not in {0, *found.uids}:
            what = f"{file.path} belongs to user {file.uid}, as whom the {found.program} does not run"
            yield Finding(WEAK, file.place, what, f"chown it to user {min(found.uids)}")


def _certificates(found: Installation) -> Iterator[Finding]:
    for one in found.certificates:
        left_s = one.ends_s - found.now_s
        if left_s < SOON_S:
            when = f"ended {-left_s / DAY_S:.0f} days ago" if left_s < 0 else f"ends in {left_s / DAY_S:.0f} days"
            yield Finding(WEAK, one.place, when, "make a new one, and reload or restart")


_ROLES = {
    ("controller", "tls"): CertificateRole.CONTROLLER,
    ("controller", "agents_tls"): CertificateRole.CONTROLLER,
    ("controller", "ha.tls"): CertificateRole.CONTROLLER,
    ("controller", "region.tls"): CertificateRole.REGION,
    ("slicer", "tls"): CertificateRole.SLICER,
    ("slicer", "controllers_tls"): CertificateRole.SLICER,
}
"""Which role the certificate of a section needs. Browsers and clients of REST check no roles."""
_OF_DEVICES = ("tls", "agents_tls")


def _roles(found: Installation) -> Iterator[Finding]:
    for one in found.tls:
        wanted = _ROLES.get((found.program, one.place))
        if wanted is None or wanted in one.roles:
            continue
        has = f"the role {' and '.join(sorted(one.roles))}, and not {wanted}" if one.roles else "no role"
        what = f"has {has}: programs that check it refuse it"
        do = f"hyroads identity renew {one.certificate} --role {wanted}, where its authority is"
        yield Finding(WEAK, f"{one.place}.certificate", what, do)


def _mixed(found: Installation) -> Iterator[Finding]:
    of_devices = {ca: one.place for one in found.tls if one.place in _OF_DEVICES for ca in one.authorities}
    for one in found.tls:
        shared = sorted(of_devices[ca] for ca in one.authorities if ca in of_devices)
        if not shared or found.program != "controller":
            continue
        what = f"is an authority of devices as well ({shared[0]}.ca): "
        do = "make another one in a folder of its own: hyroads identity authority"
        if one.place == "ha.tls":
            yield Finding(WEAK, "ha.tls.ca", f"{what}etcd knows no roles, so each device may write there", do)
        elif one.place == "region.tls":
            what += "switches know no roles, so a controller of any region can be theirs"
            yield Finding(WEAK, "region.tls.ca", what, do)


def _box_certificates(found: Installation) -> Iterator[Finding]:
    for node in dict.fromkeys(one.node for one in found.box_certificates if one.listed and not one.refused):
        what = f"a certificate of node {node} is revoked, and the file of the setting revoked does not list it"
        yield Finding(WEAK, "revoked", what, "name the revoked.pem of boxes.authority, or copy it, and reload")


def _reach(found: Installation) -> Iterator[Finding]:
    """Ports that are open to more than the settings say, or than they have to be."""
    for port in found.ports:
        wider = [one.host for one in port.running if not is_loopback(one.host)] if port.is_loopback else []
        if wider:
            what = f"port {port.port} is open at {wider[0]}, and the settings say {port.host}"
            yield Finding(WEAK, port.place, what, f"restart the {found.program}, or end what listens there")
        elif not port.is_loopback and ip_address(port.host).is_unspecified:
            what = "listens on all addresses of this machine"
            yield Finding(NOTE, port.place, what, "name the one address that others need, or bound it by a firewall")


def _root(found: Installation) -> Iterator[Finding]:
    if 0 in found.uids:
        unit = f"hyroads-{found.program}.service"
        yield Finding(WEAK, "user", f"the {found.program} runs as root", f"run it as a user of its own, as {unit} does")
    for plugin in found.plugins:
        place = f"plugins.{plugin.name}"
        if plugin.uid == 0 or (plugin.user is None and 0 in found.uids):
            yield Finding(WEAK, place, "the plugin runs as root", "give it a user")
        elif plugin.user is None:
            what = "the plugin runs as the controller's user, and can read its files"
            yield Finding(NOTE, place, what, "give it a user of its own if you do not trust it")


def _etcd(found: Installation) -> Iterator[Finding]:
    if found.plain_etcd:
        what = f"{', '.join(found.plain_etcd)}: any program of this machine can change all flows, there is no TLS"
        yield Finding(WEAK, "ha.etcd", what, "give etcd certificates (client-cert-auth), and ha.tls")


def _snmp(found: Installation) -> Iterator[Finding]:
    for place in found.communities:
        what = "the community travels in the clear, and who hears it may use it"
        yield Finding(WEAK, place, what, "give a user with passwords (SNMPv3)")


def _not_running(found: Installation) -> Iterator[Finding]:
    if found.ports and not found.uids:
        what = f"the {found.program} does not run: the settings and files alone were looked at"
        yield Finding(NOTE, PurePath(found.document).name, what, "audit it again once it runs")


def _small_ports(found: Installation) -> Iterator[Finding]:
    for small in found.small_ports:
        what = f"its MTU is {small.mtu_bytes} bytes: {small.carries}"
        level = WEAK if small.is_too_small else NOTE
        yield Finding(level, f"port {small.port}", what, f"give it {small.needed_bytes} bytes, if its medium can")


def _unsealed(found: Installation) -> Iterator[Finding]:
    for technology in found.unsealed:
        what = (
            "plain traffic between switches has no seals: who sends on the medium with a switch's address can forge it"
        )
        do = "encrypt these links (WPA, MACsec, the modems' network key), or set seal_frames: all"
        yield Finding(NOTE, f"links {technology}", what, do)


_CHECKS: tuple[Callable[[Installation], Iterator[Finding]], ...] = (
    _tokens, _in_the_clear, _reach, _open_files, _secrets, _certificates, _roles, _mixed, _box_certificates, _root,
    _etcd, _snmp, _shared, _not_running, _small_ports, _unsealed,
)  # fmt: skip
