"""Reading ahead of a walk: who asks for what follows the last answer will ask for what follows that. Pure.

A manager's walk by GETNEXT is a request for each variable. Once two of them follow each other the device is asked for
the next 25 at once, and what it told answers the following requests, for a quarter of a second: a walk of hundreds of
variables takes less, and no value is older than that. Any SET to the device ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hyroads.slices.snmpvisor.ber import Oid
from hyroads.slices.snmpvisor.pdu import END_OF_VIEW, Binding, Kind, Pdu

ROWS = 25
KEPT_S = 0.25


@dataclass
class ReadAhead:
    """Of one slice at one device: what follows what, until when that counts, and what was answered last."""

    _next: dict[Oid, Binding] = field(default_factory=dict)
    _until_s: float = 0.0
    _last: Oid | None = None

    def find(self, oid: Oid, now_s: float) -> Binding | None:
        """What follows a variable, if it was told a moment ago."""
        found = self._next.get(oid) if now_s < self._until_s else None
        if found is not None:
            self._last = found.oid
        return found

    def request(self, pdu: Pdu) -> Pdu | None:
        """The request to make instead of a GETNEXT for one variable; None: as it is."""
        if pdu.kind is not Kind.GET_NEXT or len(pdu.bindings) != 1:
            return None
        if pdu.bindings[0].oid != self._last:
            return None
        return Pdu(Kind.GET_BULK, pdu.request_id, pdu.bindings, 0, ROWS)

    def answered(self, asked: Pdu, answer: Pdu, now_s: float) -> Pdu:
        """The answer to the GETNEXT, from that to the request made instead of it or to itself."""
        if answer.status or not answer.bindings or len(asked.bindings) != 1:
            return answer
        first = answer.bindings[0]
        if len(answer.bindings) > 1:
            starts = (asked.bindings[0].oid, *(each.oid for each in answer.bindings))
            pairs = zip(starts, answer.bindings, strict=False)
            self._next = {start: each for start, each in pairs if each.value != END_OF_VIEW or each.oid == start}
            self._until_s = now_s + KEPT_S
        self._last = first.oid
        return Pdu(Kind.RESPONSE, asked.request_id, (first,))

    def forget(self) -> None:
        """Something was set: what was told may be wrong."""
        self._next.clear()
