"""What one port may send to the controller: rules with a meter, in front of those without (docs/reference/openflow.md,
section 5).

A switch that knows no meters refuses them, and goes on with the rules without.
"""

from __future__ import annotations

from collections.abc import Iterator

from hyroads.controller.core.services.membership import MAC as CONTROLLER_MAC

from . import match as act
from .access import PORT_METER_FIRST, Entry, Meter
from .intents import AccessPort
from .match import Match
from .pipeline import Priority, Table
from .rule import Rule
from .rules import any_claim_matches, authentication_match, router_matches, server_matches

FRAMES_PER_S = 50
"""From one port, and as many at once; all ports of a switch together have the meter of what goes to the controller."""
_TO_CONTROLLER: tuple[act.Action, ...] = (act.Output(act.CONTROLLER),)


def metered_access_port(number: int, port: AccessPort, index: int) -> Entry:
    """Frames of unknown hosts (under 802.1X: of authentication) and of servers that may not be there, and claims, at an
    access port.
    """
    meter = _meter(index)
    if port.closed:
        match, to_hostapd = authentication_match(number), (act.Output(act.LOCAL),)
        asked = Rule(Table.PORT, Priority.METERED_AUTHENTICATION, match, to_hostapd, meter=meter.number)
        return Entry((asked, *_servers(number, meter), *_claims(number, meter)), meter, optional=True)
    rules = [Rule(Table.PORT, Priority.METERED, Match(in_port=number), _TO_CONTROLLER, meter=meter.number)]
    # A meter would drop what an allowed server says to its clients.
    servers = [*(() if port.serves_dhcp else server_matches(number)), *(() if port.routes else router_matches(number))]
    rules += [Rule(Table.PORT, Priority.METERED_SERVER, match, _TO_CONTROLLER, meter=meter.number) for match in servers]
    return Entry((*rules, *_claims(number, meter)), meter, optional=True)


def metered_station_port(number: int, index: int) -> Entry:
    """The same for plain clients at a medium port, where nobody else is let in."""
    meter = _meter(index)
    return Entry((*_servers(number, meter), *_claims(number, meter)), meter, optional=True)


def _meter(index: int) -> Meter:
    return Meter(PORT_METER_FIRST + index, packets_per_s=FRAMES_PER_S)


def _servers(number: int, meter: Meter) -> Iterator[Rule]:
    for match in (*server_matches(number), *router_matches(number)):
        yield Rule(Table.CHECK, Priority.METERED_SERVER, match, _TO_CONTROLLER, meter=meter.number)


def _claims(number: int, meter: Meter) -> Iterator[Rule]:
    for match in any_claim_matches(number):
        yield Rule(Table.CHECK, Priority.METERED, match, _TO_CONTROLLER, meter=meter.number)
    answer = Match(in_port=number, eth_dst=CONTROLLER_MAC)
    yield Rule(Table.CHECK, Priority.METERED_ANSWER, answer, _TO_CONTROLLER, meter=meter.number)
