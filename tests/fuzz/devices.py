"""Access points, agents and clients: lines of the agents' protocol, hostapd and its control socket, AgentX."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from inputs import Script
from targets import target

from hyroads.controller.access_point import (
    agentx,
    homeplug,
    hostapd,
    hostapd_conf,
    ieee1905_entity,
    neighbours,
    nl80211,
)
from hyroads.controller.access_point.homeplug_events import HomePlugError, ToneMap
from hyroads.controller.access_point.ieee1905_tlvs import MessageError
from hyroads.controller.access_point.mib import BASE, Value
from hyroads.controller.agents import al_devices, clients, markers, protocol, telemetry
from hyroads.controller.agents.changes import WholeReport
from hyroads.controller.agents.lead import in_force_of
from hyroads.controller.agents.protocol import ProtocolError
from hyroads.controller.core.dhcp_vendor import controller_in, option_of_dhclient, option_of_networkd
from hyroads.controller.core.dns_service import DnsError, instances, servers
from hyroads.controller.core.errors import HyroadsError

_CHECKED_LATER: dict[str, Any] = {
    "passed": markers.parse_passed,
    "station": telemetry.parse_station,
    "bss": telemetry.parse_bss,
    "transition": telemetry.parse_transition,
    "dot1x": telemetry.parse_authentication,
    "devices": al_devices.parse_al_devices,
    "client-report": clients.parse_report,
    "client-event": clients.parse_event,
    "client-policy": clients.parse_policy,
}


@target("agent-lines", "controller.agents", "controller.core.strict_json", longest=3000)
def agent_lines(data: bytes) -> None:
    """Lines of one session, of any role: reports, readings and what changed since, each refused or checked."""
    report, reading = WholeReport(), telemetry.WholeReading()
    for line in data.split(b"\n"):
        try:
            message = protocol.parse_line(line)
            _session(message, report, reading)
        except ProtocolError as error:
            assert str(error)


def _session(message: dict[str, Any], report: WholeReport, reading: telemetry.WholeReading) -> None:
    match message["type"]:
        case "hello":
            protocol.parse_hello(message)
        case "ok":
            markers.parse_first(message)
            in_force_of(message)
        case "report":
            assert math.isfinite(message["time_s"])
            report.take(message)
            report.columns  # noqa: B018 - it is worked out when asked for
        case "changes":
            changed, _ = report.changed(message)
            assert math.isfinite(changed["time_s"])
        case "radio":
            reading.take(message)
            reading.technologies  # noqa: B018
        case "radio-changes":
            reading.changed(message)
        case kind if kind in _CHECKED_LATER:
            _CHECKED_LATER[kind](message)


_BSSID = "02:00:00:00:00:09"


@target("hostapd-answers", "controller.access_point")
def hostapd_answers(data: bytes) -> None:
    """What hostapd writes; names and SSIDs in it come from the air."""
    hostapd.news_of(data)
    hostapd.station_of(data)
    for found in (neighbours.own_neighbour(data, _BSSID), neighbours.described_neighbour(data, _BSSID)):
        if found is not None:
            assert neighbours.is_neighbour(found), found
            bytes.fromhex(neighbours.listed_neighbour(found))
    own = neighbours.own_bss(data, "wlan0")
    if own is not None:
        neighbours.is_ssid(own[1])
    hostapd_conf.on_air(hostapd_conf.fields_of(data.decode("utf-8", "replace")))


@target("nl80211", "controller.access_point")
def nl80211_answers(data: bytes) -> None:
    """Answers of a driver: of surveys and stations."""
    for read in (nl80211.survey_times, nl80211.stations):
        try:
            read([data])
        except HyroadsError:
            continue


class _Served:
    """Some objects, none of which can be set."""

    values: ClassVar = {(*BASE, 1, 4, n): Value("integer", n) for n in range(1, 6)}

    def get(self, oid: tuple[int, ...]) -> Value | None:
        return self.values.get(oid)

    def following(self, oid: tuple[int, ...]) -> tuple[int, ...] | None:
        return min((each for each in self.values if each > oid), default=None)

    def test(self, bindings: object) -> None:
        """Takes anything."""

    commit = undo = cleanup = lambda self: None


@target("agentx", "controller.access_point.agentx", longest=800)
def agentx_messages(data: bytes) -> None:
    """Messages of a master agent, after a session was opened."""
    session = agentx.Session(_Served(), (*BASE, 1, 4), "fuzz")  # type: ignore[arg-type]
    session.begin()
    script = Script(data)
    while script.data:
        try:
            session.received(script.bytes())
        except agentx.AgentXError:
            return


@target("homeplug", "controller.access_point.homeplug", "controller.access_point.homeplug_events", longest=8000)
def homeplug_frames(data: bytes) -> None:
    """Frames of power-line adapters in their order, each with its length in front; fragments are joined."""
    joiner, script = homeplug.Fragments(), Script(data)
    while script.data:
        try:
            event = joiner.add(script.bytes())
        except HomePlugError as error:
            assert str(error).isprintable()
            continue
        if isinstance(event, ToneMap):
            assert math.isfinite(event.ble_mbps())
        assert len(joiner._pending) <= homeplug.MAX_PENDING


@target("ieee1905", "controller.access_point.ieee1905_entity", "controller.access_point.ieee1905_tlvs", longest=8000)
def ieee1905_frames(data: bytes) -> None:
    """Frames of neighbours in their order, each with its length in front, a second apart; all answers can be sent."""
    own = (ieee1905_entity.OwnInterface("eth1", "02:00:00:00:00:11", 0x0201),)
    known = ieee1905_entity.OwnLink(90.0, 40)
    entity = ieee1905_entity.AlEntity("42:00:00:00:00:11", own, lambda interface, mac: known, 0.0)
    script, now_s = Script(data), 0.0
    while script.data:
        now_s += 1.0
        try:
            sent = entity.received("eth1", script.bytes(), now_s)
        except MessageError as error:
            assert str(error).isprintable()
            continue
        for frame in (*sent, *entity.due(now_s)):
            assert 60 <= len(frame.data) <= 1514
    assert len(entity.devices()) <= ieee1905_entity.MAX_PEERS


@target("discovery", "controller.core.dns_service", "controller.core.dhcp_vendor", longest=1500)
def discovery_answers(data: bytes) -> None:
    """Answers to questions for the controller, each with its length in front; the first is a value of DHCP option 43.

    The rest is a lease, too.
    """
    script = Script(data)
    url = controller_in(script.bytes())
    assert url is None or (url.startswith("https://") and url.isprintable())
    lease = script.data.decode("latin-1")
    for option in (option_of_networkd(lease), option_of_dhclient(lease)):
        assert option is None or len(option) <= 255
    while script.data:
        message = script.bytes()
        number = int.from_bytes(message[:2], "big")
        try:
            found = servers(message, number)
            for each in instances(message, number, "_hyroads._tcp.local"):
                found += [(address, each.port) for address in each.addresses]
        except DnsError as error:
            assert str(error).isprintable()
            continue
        for host, port in found:
            assert 0 < port < 65536 and host.isprintable() and "/" not in host
