"""The part ``querier`` of the settings: who asks hosts which groups they want. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from hyroads.controller.core.checking import Place
from hyroads.controller.core.services.querier import MAX_ROBUSTNESS, QueryTimes


@dataclass(frozen=True, slots=True)
class QuerierSettings:
    """``address`` is where IGMP queries come from; 0.0.0.0 gives way to every other querier."""

    address: str = "0.0.0.0"  # noqa: S104 - nothing listens there: it is the address of a querier without one
    times: QueryTimes = field(default_factory=QueryTimes)


def parse_querier(place: Place | None) -> QuerierSettings:
    """The section of the settings, if there is one."""
    plain = QuerierSettings()
    if place is None or place.value is None:
        return plain
    section, default = place.section(("address", "interval_s", "response_s", "robustness")), plain.times
    address = plain.address
    if "address" in section:
        try:
            address = str(ipaddress.IPv4Address(section.values["address"]))
        except ValueError:
            section["address"].expected("an IPv4 address that no host has")
    interval_s, response_s, robustness = default.interval_s, default.response_s, default.robustness
    if "interval_s" in section:
        interval_s = section["interval_s"].number(interval_s, 1, 1000)
    if "response_s" in section:
        response_s = section["response_s"].number(response_s, 0.1, 600)
    if "robustness" in section:
        robustness = section["robustness"].integer(robustness, 1, MAX_ROBUSTNESS)
    times = QueryTimes(interval_s, response_s, robustness)
    if times.response_s >= times.interval_s:
        section.place.key("response_s", None).fail("expected less than interval_s")
    return QuerierSettings(address, times)
