"""The controller's settings (docs/reference/settings.md): document -> validated :class:`Settings`.

Pure: :func:`parse` takes the document and the environment; :func:`load` reads the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hyroads.controller.core.checking import (
    Endpoint,
    Place,
    Problems,
    Section,
    TlsFiles,
    boolean_of,
    choice_of,
    endpoint_of,
    integer_of,
    number_of,
    path_of,
    tls_files,
)
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.frame_sizes import LINK_MTU
from hyroads.controller.core.identity import DeviceTokens
from hyroads.controller.core.reverse_trees import ALL_ROUTES_NODES
from hyroads.controller.files.authority import revoked_in
from hyroads.controller.files.documents import read_settings
from hyroads.controller.files.text import read_private
from hyroads.controller.measure.targets import CollectorConfig
from hyroads.controller.measure.targets import parse as parse_targets
from hyroads.plugins.policies.placement import POLICY as PLACEMENT
from hyroads.plugins.policies.placement import Placement

from .boxes import BoxSettings, parse_boxes
from .clients import AccessSettings, QuerierSettings, parse_access, parse_clients, parse_identities, parse_querier
from .ha import DEFAULT_PEER_PORT, HaSettings, parse_ha
from .mptcp import MptcpSettings, parse_mptcp
from .plugins import PluginSetting, SfnetSettings, parse_placement, parse_plugins, parse_policies, parse_sfnet
from .region import RegionSettings, parse_region
from .rest import (
    DEFAULT_LIMITS,
    ApiLimits,
    ApiToken,
    SlicerPlace,
    any_switch,
    api_limits,
    api_tokens,
    slicer_place,
    token_of,
)
from .slices import NO_SLICES, SliceSettings, parse_slices

DEFAULT_FILE = "/etc/hyroads/hyroads.yaml"
_TOP = (
    "network", "state_file", "margin", "agent_token", "agent_token_file", "api_tokens", "listen", "tls", "timings",
    "link_mtu", "queue_ms", "max_hold_ms", "capacities", "snmp", "mode", "slot_ms", "tcp_margin", "flap_damping",
    "plugins", "policies", "sfnet", "api_limits", "access", "querier", "pair_tests", "group_frames", "burst_ms",
    "seal_frames", "slices", "slicer", "clients", "mptcp", "placement", "all_routes_nodes", "ha", "region",
    "identities", "agents_tls", "rest_tls", "any_switch", "boxes", "revoked",
)  # fmt: skip
FILE, MEASURED = "file", "measured"
_MODES = ("solver", "controller")
OFF, IDLE = "off", "idle"
ALL = "all"


@dataclass(frozen=True, slots=True)
class Timings:
    """Periods and bounds; ``_ms`` in milliseconds, ``_s`` in seconds."""

    hello_interval_ms: int = 40
    hello_dead_ms: int = 140
    ping_ms: int = 200
    agent_dead_ms: int = 600
    report_ms: int = 100
    grace_s: float = 3.0
    switch_grace_s: float = 15.0
    coalesce_ms: float = 3.0


@dataclass(frozen=True)
class Settings:
    """Everything the controller is told; secrets don't show in its ``repr``."""

    network: str
    state_file: str | None = None
    margin: float | None = None
    agent_token: str | None = field(default=None, repr=False)
    api_tokens: tuple[ApiToken, ...] = ()
    api_limits: ApiLimits = DEFAULT_LIMITS
    openflow: Endpoint = field(default=Endpoint("127.0.0.1", 6653))
    agents: Endpoint = field(default=Endpoint("127.0.0.1", 6654))
    rest: Endpoint = field(default=Endpoint("127.0.0.1", 8080))
    tls: TlsFiles | None = None
    """Of the OpenFlow listener; with ``ca`` switches are checked."""
    any_switch: frozenset[str] = frozenset()
    """Names of certificates that may speak for every switch; ``*``: all of the authority."""
    agents_tls: TlsFiles | None = None
    """Of the agents' listener; with ``ca`` agents, radios and clients need a certificate with their node's name."""
    rest_tls: TlsFiles | None = None
    """Of the REST listener."""
    identities: Mapping[tuple[str, str], str] = field(default_factory=dict, repr=False)
    """Hashes of the tokens of devices by (role, node)."""
    revoked: frozenset[str] = frozenset()
    """Ids of certificates that are taken nowhere."""
    boxes: BoxSettings | None = None
    """How boxes join and are adopted; None: none can."""
    timings: Timings = Timings()
    link_mtu: int = LINK_MTU
    queue_ms: int = 60
    max_hold_ms: int = 100
    burst_ms: int = 60
    capacities: str = FILE
    """``file``, or ``measured`` by access points."""
    mode: str = "solver"
    """``solver``: the exact optimum each slot; ``controller``: the papers' slotted controller."""
    slot_ms: int = 100
    tcp_margin: float = 0.05
    flap_damping: bool = True
    group_frames: bool = True
    seal_frames: bool | str = True
    """Agents that can seal their frames get keys; ``all``: they also seal what switches send to each other."""
    all_routes_nodes: int = ALL_ROUTES_NODES
    """With more switches these have rules for the nodes and hosts that their own hosts talk to."""
    pair_tests: str = OFF
    """``idle``: which links conflict is tested where nobody sends."""
    snmp: CollectorConfig | None = None
    """The access points that the SNMP collector polls."""
    plugins: tuple[PluginSetting, ...] = ()
    policies: tuple[str, ...] = ()
    """Built-in ones that are on."""
    placement: Placement = PLACEMENT
    """Settings of the policy of that name."""
    sfnet: SfnetSettings | None = None
    access: AccessSettings = field(default_factory=AccessSettings)
    querier: QuerierSettings = field(default_factory=QuerierSettings)
    clients: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Tokens of the multi-homed clients that may connect at the agents' port, by id."""
    mptcp: MptcpSettings = field(default_factory=MptcpSettings)
    slices: SliceSettings = NO_SLICES
    """Which slices flows may name, and their shares of airtime."""
    slicer: SlicerPlace | None = None
    """The slicer between us and the switches, if there is one."""
    ha: HaSettings | None = None
    """Hot standby; None: there is one controller."""
    peer: Endpoint = field(default=Endpoint("127.0.0.1", DEFAULT_PEER_PORT))
    """Where other instances dial, with ``ha``, and the controllers of other regions, with ``region``."""
    region: RegionSettings | None = None
    """The region that this controller runs; None: the whole network."""

    @property
    def seals_links(self) -> bool:
        """Whether switches send each other nothing without a seal."""
        return self.seal_frames == ALL

    @property
    def device_tokens(self) -> DeviceTokens:
        """By which tokens agents and radios are known."""
        return DeviceTokens(self.identities, self.agent_token, required=self.boxes is not None)

    @property
    def dialled_by_boxes(self) -> dict[str, TlsFiles | None]:
        """Our certificates where switches and agents connect, by place."""
        return {"tls": self.tls, "agents_tls": self.agents_tls}

    @property
    def tls_places(self) -> dict[str, TlsFiles | None]:
        """Our certificates, by place."""
        of_ha, of_region = self.ha.tls if self.ha else None, self.region.tls if self.region else None
        ours = {"tls": self.tls, "agents_tls": self.agents_tls, "rest_tls": self.rest_tls}
        return {**ours, "ha.tls": of_ha, "region.tls": of_region}


def load(environment: Mapping[str, str]) -> Settings:
    """Settings from the file that the environment names, or from a bare ``HYROADS_NETWORK``."""
    network = environment.get("HYROADS_NETWORK")
    name = environment.get("HYROADS_CONFIG") or (None if network else DEFAULT_FILE)
    document: object = {}
    if name is not None:
        document = read_settings(name)
    return parse(document, name or "HYROADS_NETWORK", environment)


def parse(document: object, name: str, environment: Mapping[str, str]) -> Settings:
    """Validate; relative paths are taken from the folder of the document ``name``."""
    problems = Problems(name)
    top = Place({} if document is None else document, problems).section(_TOP)
    base = Path(name).parent
    override = environment.get("HYROADS_NETWORK")
    network = override or path_of(top, "network", base)
    if not network and top.valid:
        top.place.key("network", None).fail("is missing")
    listen = top["listen"].section(("openflow", "agents", "rest", "peer")) if "listen" in top else None
    ha = parse_ha(top.optional("ha"), base)
    openflow, plaintext = _endpoint(listen, "openflow", 6653, environment)
    slot_ms = integer_of(top, "slot_ms", 100, 20, 10_000)
    settings = Settings(
        network=network or "",
        state_file=path_of(top, "state_file", base),
        margin=top["margin"].number(0.05, 0.0, 0.9) if "margin" in top else None,
        agent_token=_agent_token(top, base, problems),
        api_tokens=api_tokens(top["api_tokens"]) if top.values.get("api_tokens") is not None else (),
        api_limits=api_limits(top["api_limits"]) if "api_limits" in top else DEFAULT_LIMITS,
        openflow=openflow,
        agents=_endpoint(listen, "agents", 6654, environment)[0],
        rest=_endpoint(listen, "rest", 8080, environment)[0],
        tls=tls_files(top, "tls", base),
        any_switch=any_switch(top.optional("any_switch")),
        agents_tls=tls_files(top, "agents_tls", base),
        rest_tls=_rest_tls(top, base),
        identities=_identities(top, base),
        revoked=_revoked(top, base),
        boxes=parse_boxes(top.optional("boxes"), base),
        timings=_timings(top, slot_ms),
        link_mtu=integer_of(top, "link_mtu", LINK_MTU, 1280, 65000),
        queue_ms=integer_of(top, "queue_ms", 60, 1, 10_000),
        max_hold_ms=integer_of(top, "max_hold_ms", 100, 1, 10_000),
        burst_ms=integer_of(top, "burst_ms", 60, 0, 1000),
        capacities=choice_of(top, "capacities", (FILE, MEASURED)),
        mode=choice_of(top, "mode", _MODES),
        slot_ms=slot_ms,
        tcp_margin=number_of(top, "tcp_margin", 0.05, 0.0, 0.9),
        flap_damping=boolean_of(top, "flap_damping", True),
        group_frames=boolean_of(top, "group_frames", True),
        seal_frames=_seals(top),
        all_routes_nodes=integer_of(top, "all_routes_nodes", ALL_ROUTES_NODES, 0, 65_535),
        snmp=_snmp(top, base, name),
        plugins=parse_plugins(top.optional("plugins"), base),
        policies=parse_policies(top.optional("policies")),
        placement=parse_placement(top.optional("placement")),
        sfnet=parse_sfnet(top.optional("sfnet")),
        access=parse_access(top),
        querier=parse_querier(top.optional("querier")),
        clients=parse_clients(top.optional("clients"), base),
        slicer=slicer_place(top["slicer"], base) if top.values.get("slicer") is not None else None,
        pair_tests=choice_of(top, "pair_tests", (OFF, IDLE)),
        slices=parse_slices(top.optional("slices"), base),
        mptcp=parse_mptcp(top.optional("mptcp")),
        ha=ha,
        region=parse_region(top.optional("region"), base),
        peer=_endpoint(listen, "peer", DEFAULT_PEER_PORT if ha is None else ha.peer.port, environment)[0],
    )
    _check_together(settings, top)
    _check_exposure(settings, plaintext, Place(None, problems, "listen"))
    problems.raise_if_any()
    return settings


def _check_together(settings: Settings, top: Section) -> None:
    """What goes with some values of other settings only."""
    if settings.ha is not None and settings.state_file is not None:
        top["state_file"].fail("with ha the state is in etcd; hyroads ha import takes a state file over")
    if settings.region is not None and settings.ha is not None and settings.region.listen in (None, settings.peer):
        top["region"].fail("with ha needs listen, because controllers of this region dial listen.peer")
    if settings.region is not None and settings.capacities == MEASURED:
        top["region"].fail("needs capacities: file, because no region measures the links of others")
    if settings.pair_tests == IDLE and settings.capacities != MEASURED:
        top["pair_tests"].fail("idle needs capacities: measured, because only access points can tell what is idle")
    if settings.boxes is not None and settings.rest_tls is None:
        top["boxes"].fail("needs rest_tls: boxes know the controller by its certificate")
    if settings.boxes is not None and settings.boxes.announce and settings.rest.is_loopback:
        Place(None, top["boxes"].problems, "boxes.announce").fail("needs listen.rest beyond loopback")
    if settings.seals_links and settings.region is not None:
        top["seal_frames"].fail("all: not with region, because flows between regions have no keys")
    if settings.seals_links and settings.slicer is not None:
        top["seal_frames"].fail("all: not with slicer, because a slice may not hand all frames to its agents")
    if settings.mode != _MODES[0] and any(settings.slices.shares.values()):
        top["slices"].fail(f"shares of airtime need mode: {_MODES[0]}")


def _seals(top: Section) -> bool | str:
    """Whether agents seal frames, or ``all`` of them."""
    value = top.values.get("seal_frames", True)
    if isinstance(value, bool) or value == ALL:
        return value if isinstance(value, bool) else ALL
    top["seal_frames"].expected(f"true, false or {ALL}")
    return True


def _endpoint(listen: Section | None, key: str, port: int, environment: Mapping[str, str]) -> tuple[Endpoint, bool]:
    """The endpoint, the port as the environment says, and whether plain text is allowed beyond loopback."""
    endpoint, plaintext = endpoint_of(listen, key, port, may_be_plain=key == "openflow")
    variable = f"HYROADS_{key.upper()}_PORT"
    if variable in environment:
        text = environment[variable]
        if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= 65535:
            raise ConfigError("environment", variable, "expected a port number from 1 to 65535")
        endpoint = replace(endpoint, port=int(text))
    return endpoint, plaintext


def _agent_token(top: Section, base: Path, problems: Problems) -> str | None:
    if "agent_token" in top and top.values["agent_token"] is not None:
        return token_of(top["agent_token"])
    name = path_of(top, "agent_token_file", base)
    return None if name is None else token_of(Place(read_private(name).strip(), problems, "agent_token_file"))


def _identities(top: Section, base: Path) -> Mapping[tuple[str, str], str]:
    name = path_of(top, "identities", base)
    return {} if name is None else parse_identities(name)


def _revoked(top: Section, base: Path) -> frozenset[str]:
    name = path_of(top, "revoked", base)
    return frozenset() if name is None else revoked_in(name)


def _rest_tls(top: Section, base: Path) -> TlsFiles | None:
    files = tls_files(top, "rest_tls", base)
    if files is not None and files.ca is not None:
        top["rest_tls"].key("ca", None).fail("not here: clients of REST show tokens, and no certificates")
    return files


def _snmp(top: Section, base: Path, name: str) -> CollectorConfig | None:
    """The collector's document (docs/reference/measurement.md, section 4), or the file that holds it."""
    if top.values.get("snmp") is None:
        return None
    place = top["snmp"]
    if isinstance(place.value, str):
        path = base / place.value
        return parse_targets(read_private(path), str(path))
    if not isinstance(place.value, Mapping):
        place.expected("a mapping with targets, or the name of a file with one")
        return None
    return parse_targets(json.dumps(place.value, default=str), f"{name}: snmp")


_TIMINGS: dict[str, tuple[float, float]] = {
    "hello_interval_ms": (5, 10_000),
    "hello_dead_ms": (20, 60_000),
    "ping_ms": (20, 60_000),
    "agent_dead_ms": (100, 600_000),
    "report_ms": (20, 60_000),
    "grace_s": (0, 600),
    "switch_grace_s": (0, 600),
    "coalesce_ms": (0, 1000),
}


def _timings(top: Section, slot_ms: int) -> Timings:
    """Agents report once per slot unless told otherwise."""
    if top.values.get("timings") is None:
        return Timings(report_ms=slot_ms)
    section = top["timings"].section(tuple(_TIMINGS))
    values: dict[str, Any] = {"report_ms": slot_ms}
    for key, (low, high) in _TIMINGS.items():
        default = getattr(Timings(), key)
        if key in section and isinstance(default, int):
            values[key] = section[key].integer(default, int(low), int(high))
        elif key in section:
            values[key] = section[key].number(default, low, high)
    timings = Timings(**values)
    for short, long in (("hello_interval_ms", "hello_dead_ms"), ("ping_ms", "agent_dead_ms")):
        if getattr(timings, long) < 2 * getattr(timings, short):
            section.place.key(long, None).fail(f"expected at least twice {short}")
    return timings


def _check_exposure(settings: Settings, plaintext: bool, listen: Place) -> None:
    """What others can reach must ask who they are."""
    if not settings.openflow.is_loopback and settings.tls is None and not plaintext:
        listen.key("openflow", None).fail("beyond loopback needs tls, or allow_plaintext: true on a trusted network")
    certified = settings.agents_tls is not None and settings.agents_tls.ca is not None
    if not settings.agents.is_loopback and not settings.device_tokens.are_asked_for and not certified:
        what = "beyond loopback needs agent_token or agent_token_file, or identities, or agents_tls with ca"
        listen.key("agents", None).fail(what)
    if settings.sfnet is not None and not settings.sfnet.is_loopback and not settings.api_tokens:
        listen.problems.add("sfnet.host", "beyond loopback needs api_tokens")
    if settings.ha is not None and not settings.peer.is_loopback and settings.ha.tls is None:
        listen.key("peer", None).fail("beyond loopback needs ha.tls")
    region = settings.region
    if region is not None and region.tls is None and not (region.listen or settings.peer).is_loopback:
        where = listen.key("peer", None) if region.listen is None else Place(None, listen.problems, "region.listen")
        where.fail("beyond loopback needs region.tls")
    if not settings.rest.is_loopback and not settings.api_tokens:
        listen.key("rest", None).fail("beyond loopback needs api_tokens")
