"""Schemas of what is measured, and of the controller's health (docs/reference/rest.md, section 5)."""

from __future__ import annotations

from typing import Any

from marshmallow import Schema, fields, validate

from .ha import HaHealthSchema
from .schemas import rate, required

_QUALITIES = ("good", "stale")


def _count(text: str = "") -> fields.Integer:
    """A counter of an agent; null: that side has not reported."""
    return fields.Integer(**required(text or None, allow_none=True))


def _maybe(text: str, **options: Any) -> fields.Float:
    return fields.Float(**required(text, allow_none=True, **options))


def _flags(text: str) -> Any:
    return fields.List(fields.String(), **required(text))


class MeasuredPathSchema(Schema):
    """A path of a flow, as its two ends count."""

    id = fields.Integer(**required())
    links = fields.List(fields.String(), **required())
    rate_mbps = rate()
    sent_frames = _count()
    sent_bytes = _count()
    sent_mbps = rate()
    received_frames = _count()
    received_bytes = _count()
    received_mbps = rate()
    delay_ms = _maybe("above the smallest that was seen")
    last_heard_ms = _maybe("ago")


class MeasuredFlowSchema(Schema):
    """A multipath flow, as the agents at its edges count."""

    id = fields.String(**required())
    number = fields.Integer(**required("in the frames' shim header"))
    ingress = fields.String(**required())
    egress = fields.String(**required())
    rate_mbps = rate()
    sent_mbps = rate()
    delivered_mbps = rate()
    queued = _count()
    dropped = _count("at the first edge: the queue was full")
    too_big = _count("for the links")
    sent = _count()
    delivered_frames = _count()
    delivered_bytes = _count()
    reordered = _count()
    late = _count()
    duplicate = _count()
    lost = _count()
    timed_out = _count()
    held = _count("now, until those before them come")
    held_max = _count()
    hold_mean_ms = _maybe("of those that were held")
    paths = fields.List(fields.Nested(MeasuredPathSchema), **required())


class HeardLinkSchema(Schema):
    """A link, as the agent at its end hears it."""

    id = fields.String(**required())
    node = fields.String(**required("whose agent tells it"))
    up = fields.Boolean(**required())
    last_heard_ms = _maybe("since the last hello frame")


class WokenLateSchema(Schema):
    """How late the machine woke an agent: the worst, and by how much all wake-ups later than a bound were late."""

    max_ms = _maybe("the worst so far")
    over_5_ms_s = _maybe("those more than 5 ms late, together")
    over_20_ms_s = _maybe("those more than 20 ms late, together")
    over_100_ms_s = _maybe("those more than 100 ms late, together")


class AgentReportSchema(Schema):
    """The latest report of an agent."""

    node = fields.String(**required())
    age_s = fields.Float(**required())
    revision = _count("of the configuration that it runs")
    unclassified = _count("frames of no flow")
    malformed = _count()
    forged = _maybe("frames that no agent with the key has sealed; null: it does not tell")
    replayed = _maybe("sealed frames that had come before; null: it does not tell")
    cpu_s = _maybe("processor time so far")
    woken_late = fields.Nested(WokenLateSchema, **required("null: it does not tell", allow_none=True))


class HeardInterfaceSchema(Schema):
    """The airtime of others, as an interface hears it."""

    node = fields.String(**required())
    technology = fields.String(**required())
    external = fields.Float(**required("as rates count on it"))
    external_raw = fields.Float(**required("as it was last heard"))
    age_s = _maybe("null: never heard")
    quality = fields.String(**required(validate=validate.OneOf(_QUALITIES)))


class PowerLineEndSchema(Schema):
    """What an adapter says of another one on its power line."""

    adapter = fields.String(**required("address of the neighbour's adapter"))
    block_errors = _maybe("share of blocks to it that can't be decoded; null: not known")
    slot_ble_mbps = fields.List(
        fields.Float(), **required("bit loading estimate to it by tone-map slot; empty: not known")
    )


class InterfaceSchema(Schema):
    """An interface on a medium."""

    node = fields.String(**required())
    technology = fields.String(**required())


class NeighbourSchema(Schema):
    """Whom a radio hears."""

    node = fields.String(**required("null: no node of this network, or several, have the address", allow_none=True))
    guess = fields.Nested(InterfaceSchema, **required("whose address it may be; null: no guess", allow_none=True))
    mac = fields.String(**required())
    tx_mbps = rate()
    rx_mbps = rate()
    loss = _maybe("share of frames")
    signal_dbm = _maybe("null: none is told")
    last_heard_ms = _maybe("ago")
    plc = fields.Nested(PowerLineEndSchema, **required("null: not on a power line", allow_none=True))


class RadioInterfaceSchema(Schema):
    """An interface of an access point."""

    technology = fields.String(**required())
    via = fields.String(
        **required("what counts now", allow_none=True, validate=validate.OneOf(["radio", "snmp", None]))
    )
    age_s = _maybe("null: never told")
    busy = _maybe("share of time")
    busy_source = fields.String(
        **required("how it is known; null: by the radio's driver, or nothing was read", allow_none=True),
        validate=validate.OneOf(["sniffer", "counters", "none", None]),
    )
    hears = fields.List(fields.String(), **required("nodes"))
    mac = fields.String(**required("its address"))
    mac_from = fields.String(
        **required("where it comes from", validate=validate.OneOf(["reported", "named", "derived"]))
    )
    neighbours = fields.List(fields.Nested(NeighbourSchema), **required())


class RadioSchema(Schema):
    """The radios of an access point."""

    node = fields.String(**required())
    up = fields.Boolean(**required("its session is there"))
    rtt_ms = _maybe("of its session")
    flags = _flags("doubts (docs/reference/measurement.md, section 4)")
    reason = fields.String(**required("the doubts in words", allow_none=True))
    interfaces = fields.List(fields.Nested(RadioInterfaceSchema), **required())


class HeardBySchema(Schema):
    """By which interface an access point hears a device."""

    node = fields.String(**required())
    interface = fields.String(**required("of the access point"))
    mac = fields.String(**required("of the device"))


class DeviceLinkSchema(Schema):
    """A link of a device, as it says itself."""

    mac = fields.String(**required("of its own interface"))
    to_al = fields.String(**required("AL address of the other device"))
    to_mac = fields.String(**required("of the other device's interface"))
    medium = fields.String(**required("null: one without a number in IEEE 1905.1", allow_none=True))
    capacity_mbps = fields.Float(**required())
    busy = fields.Float(**required("share of time"))


class DeviceSchema(Schema):
    """A device that speaks IEEE 1905.1 and is not of this network."""

    al = fields.String(**required("its AL address"))
    heard_by = fields.List(fields.Nested(HeardBySchema), **required("access points, and their interfaces"))
    links = fields.List(fields.Nested(DeviceLinkSchema), **required())


class PolledInterfaceSchema(Schema):
    """An interface, as SNMP tells it."""

    technology = fields.String(**required())
    busy = _maybe("share of time")
    in_mbps = rate()
    out_mbps = rate()
    flags = _flags("doubts")


class PolledSchema(Schema):
    """The last poll of an access point."""

    target = fields.String(**required("its name in the settings"))
    node = fields.String(**required("null: it has not answered yet", allow_none=True))
    age_s = _maybe("null: it has not answered yet")
    up = fields.Boolean(**required())
    reason = fields.String(**required("why it is not up", allow_none=True))
    failures = fields.Integer(**required("polls in a row"))
    flags = _flags("doubts")
    interfaces = fields.List(fields.Nested(PolledInterfaceSchema), **required())


class PortSchema(Schema):
    """Counters of a switch's port, compared with others."""

    node = fields.String(**required())
    technology = fields.String(**required())
    age_s = _maybe("null: it has not answered yet")
    in_mbps = rate()
    out_mbps = rate()
    dropped = fields.Integer(**required(allow_none=True))
    errors = fields.Integer(**required(allow_none=True))
    flags = _flags("stale, in-disagrees, out-disagrees")
    reason = fields.String(**required("which readings disagree", allow_none=True))


def _all(schema: type[Schema], text: str) -> Any:
    return fields.List(fields.Nested(schema), **required(text))


class SliceAirtimeSchema(Schema):
    """A slice on a technology."""

    slice = fields.String(**required())
    technology = fields.String(**required())
    airtime = fields.Float(**required("planned share of time of its flows, in the domain where it is most"))
    measured_airtime = _maybe("the same as agents measure it; null: nothing fresh is known of one of its flows")
    share = _maybe("of each domain's airtime when others want it; null: no bound")
    held = fields.Boolean(**required("somebody else wants what it would take"))


class MeasurementsSchema(Schema):
    """What was measured last."""

    time_s = fields.Float(**required("of the controller's clock"))
    flows = _all(MeasuredFlowSchema, "multipath flows that some agent has reported about")
    links = _all(HeardLinkSchema, "as agents hear them")
    agents = _all(AgentReportSchema, "their latest reports")
    interfaces = _all(HeardInterfaceSchema, "external airtime as interfaces hear it")
    slices = _all(SliceAirtimeSchema, "airtime of slices by the rates in force, and their shares")
    radios = _all(RadioSchema, "access points' radios: readings and doubts")
    devices = _all(DeviceSchema, "other people's devices near the access points, by IEEE 1905.1")
    snmp = _all(PolledSchema, "last polls of access points")
    ports = _all(PortSchema, "counters of switch ports, cross-checked")


# -- health


class SwitchHealthSchema(Schema):
    """A switch."""

    node = fields.String(**required())
    dpid = fields.Integer(**required())
    connected = fields.Boolean(**required())
    synced = fields.Boolean(**required("it has confirmed all that is wanted"))
    rules = fields.Integer(**required())
    flow_mods = fields.Integer(**required("sent since the controller started"))
    errors = fields.Integer(**required())
    vlan_tags = fields.String(
        validate=validate.OneOf(["whole", "rebuilt", "lost"]),
        **required("what becomes of VLAN tags that enter here; null: not known", allow_none=True),
    )
    syn_copies = fields.String(
        validate=validate.OneOf(["off", "on", "refused"]),
        **required("whether it copies TCP's SYNs, to recognise MPTCP; null: not known", allow_none=True),
    )


class ReadPortSchema(Schema):
    """A port as its agent reads it."""

    port = fields.String(**required())
    mtu_bytes = fields.Integer(**required("as the agent reads it"))
    mac = fields.String(**required())


class SmallPortSchema(Schema):
    """A port that does not carry every packet of a host as it is."""

    node = fields.String(**required())
    port = fields.String(**required())
    mtu_bytes = fields.Integer(**required("as the agent reads it"))
    needed_bytes = fields.Integer(**required("the MTU that it should have"))
    packet_bytes = fields.Integer(**required("the largest IP packet of a host that a single path carries over it"))
    too_small = fields.Boolean(**required("it does not carry what IPv6 needs, and ok is false"))


class AgentHealthSchema(Schema):
    """An agent."""

    node = fields.String(**required())
    up = fields.Boolean(**required())
    synced = fields.Boolean(**required("it has confirmed all that is wanted"))
    revision = fields.Integer(**required("of the configuration that it confirmed", allow_none=True))
    rtt_ms = _maybe("of its session")
    errors = fields.Integer(**required())
    ports = _all(ReadPortSchema, "what it read from its node's ports at links between switches")


class CountersSchema(Schema):
    """Since the controller started."""

    exceptions = fields.Integer(**required("defects of the controller or of a service"))
    openflow_errors = fields.Integer(**required())
    malformed_openflow = fields.Integer(**required())
    malformed_agent = fields.Integer(**required())
    plans = fields.Integer(**required())
    flow_mods = fields.Integer(**required())


class LastPlanSchema(Schema):
    """The last planning."""

    duration_ms = fields.Float(**required())
    at_s = fields.Float(**required("after the start"))


class SlotsSchema(Schema):
    """Figures of the slots."""

    mode = fields.String(**required(validate=validate.OneOf(["solver", "controller"])))
    capacities = fields.String(**required(validate=validate.OneOf(["file", "measured"])))
    slot_ms = fields.Integer(**required())
    count = fields.Integer(**required())
    missed = fields.Integer(**required("that did not take place, since the start"))
    missed_recently = fields.Integer(**required("that did not take place in the last 300 s"))
    p50_ms = _maybe("of the last 1000")
    p99_ms = _maybe("of the last 1000")
    max_ms = _maybe("of all")
    max_airtime = _maybe("of the busiest domain")
    estimates = fields.Dict(
        keys=fields.String(), values=fields.Integer(), **required("quality -> how many links are known so")
    )
    silent_interfaces = fields.List(fields.String(), **required("node and technology"))
    without_busy_time = fields.List(
        fields.String(), **required("node and technology: bandits take what arrives instead of busy times there")
    )


class HolderSchema(Schema):
    """Who has an address."""

    node = fields.String(**required())
    technology = fields.String(**required("null: the access host of the node", allow_none=True))


class SharedAddressSchema(Schema):
    """One address of several boxes."""

    mac = fields.String(**required())
    holders = _all(HolderSchema, "the interfaces and hosts that have it")


class FaultSchema(Schema):
    """Something that went wrong."""

    time_s = fields.Float(**required("after the start"))
    where = fields.String(**required())
    what = fields.String(**required())


class BrokenFileSchema(Schema):
    """A state file that was not what it should be."""

    file = fields.String(**required())
    problem = fields.String(**required())
    aside = fields.String(**required("its name now; null: it is gone, or could not be moved", allow_none=True))


class StateFileSchema(Schema):
    """The state file."""

    ok = fields.Boolean(**required("whether it could be written the last time"))
    reason = fields.String(**required("why it could not", allow_none=True))
    failing_s = fields.Float(**required("for how long", allow_none=True))
    started_from = fields.String(**required(validate=validate.OneOf(["file", "older copy", "nothing"])))
    broken = fields.List(fields.Nested(BrokenFileSchema), **required("what was found at the start"))


class HealthSchema(Schema):
    """What is connected, in sync, wrong."""

    ok = fields.Boolean(**required())
    version = fields.String(**required())
    uptime_s = fields.Float(**required())
    settling = fields.Boolean(**required())
    network = fields.String(**required())
    switches = fields.List(fields.Nested(SwitchHealthSchema), **required())
    agents = fields.List(fields.Nested(AgentHealthSchema), **required())
    pending = fields.List(fields.String(), **required("what has not confirmed"))
    shared_addresses = _all(SharedAddressSchema, "addresses that several boxes have: their frames are mixed up")
    small_ports = _all(SmallPortSchema, "ports that do not carry every packet of a host as it is")
    state_file = fields.Nested(StateFileSchema, **required("null: there is none", allow_none=True))
    ha = fields.Nested(HaHealthSchema, **required("null: there is one controller", allow_none=True))
    counters = fields.Nested(CountersSchema, **required())
    plan = fields.Nested(LastPlanSchema, **required("null: nothing is planned yet", allow_none=True))
    slots = fields.Nested(SlotsSchema, **required())
    last_errors = fields.List(fields.Nested(FaultSchema), **required())
