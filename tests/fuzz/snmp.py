"""SNMPVisor: BER, SNMPv2c and v3 of managers, answers and traps of devices."""

from __future__ import annotations

from inputs import Script
from targets import target

from hyroads.slices.snmpvisor import pdu as ber
from hyroads.slices.snmpvisor import usm
from hyroads.slices.snmpvisor.config import parse
from hyroads.slices.snmpvisor.frontend import Frontend
from hyroads.slices.snmpvisor.pdu import SnmpError
from hyroads.slices.snmpvisor.proxy import Proxy, ToDevice

ENGINE = bytes.fromhex("80001f8805abababababababab")
MANAGER = ("127.0.0.1", 40_000)
SETTINGS = parse(
    {
        "devices": {
            "ap": {
                "address": "127.0.0.1:161",
                "community": "secret",
                "interfaces": {"if1": {"owner": "even"}, "if2": {"owner": "odd"}},
            }
        },
        "slices": {"even": {"community": "e", "traps": "127.0.0.1:1162"}, "odd": {"community": "o"}},
    },
    "fuzz.yaml",
)


def proxy() -> Proxy:
    """With one device and two slices."""
    return Proxy(Frontend(SETTINGS, ENGINE, 1, 0.0))


@target("snmp-managers", "slices.snmpvisor", longest=700)
def managers(data: bytes) -> None:
    """Datagrams of managers; what is read is what is written."""
    visor, script = proxy(), Script(data)
    while script.data:
        datagram = script.bytes()
        visor.from_manager(datagram, MANAGER, 1.0)
        try:
            community, pdu = ber.parse_v2c(datagram)
        except SnmpError:
            pass
        else:
            assert ber.parse_v2c(ber.v2c_bytes(community, pdu)) == (community, pdu)
        try:
            usm.parse(datagram)
        except SnmpError:
            continue


@target("snmp-devices", "slices.snmpvisor", longest=700)
def devices(data: bytes) -> None:
    """A device that answers with anything: datagrams, or PDUs with the request's number (a byte 1 in front)."""
    visor, script = proxy(), Script(data)
    asked: list[bytes] = []
    for out in visor.tick(1.0):
        if isinstance(out, ToDevice):
            asked.append(out.data)
    while script.data:
        how, datagram = script.byte(), script.bytes()
        if how == 2:
            visor.from_trap(datagram, "127.0.0.1", 2.0)
            continue
        if how == 1 and asked:
            datagram = _numbered(datagram, asked[-1]) or datagram
        asked += [out.data for out in visor.from_device("ap", datagram, 2.0) if isinstance(out, ToDevice)]


def _numbered(datagram: bytes, asked: bytes) -> bytes | None:
    try:
        community, pdu = ber.parse_v2c(datagram)
        return ber.v2c_bytes(community, pdu.numbered(ber.parse_v2c(asked)[1].request_id))
    except SnmpError:
        return None
