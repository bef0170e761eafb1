"""A device with given variables that answers as RFC 3416 says; the oracle of the SNMP proxy's tests."""

from __future__ import annotations

from bisect import bisect_right

from hyroads.slices.snmpvisor.pdu import END_OF_VIEW, NO_SUCH_INSTANCE, Binding, Kind, Oid, Pdu


class Agent:
    """Counts what it is asked."""

    def __init__(self, variables: dict[Oid, bytes]) -> None:
        self.variables, self.order, self.asked = dict(variables), sorted(variables), 0

    def next(self, oid: Oid) -> Binding:
        at = bisect_right(self.order, oid)
        if at == len(self.order):
            return Binding(oid, END_OF_VIEW)
        return Binding(self.order[at], self.variables[self.order[at]])

    def answer(self, pdu: Pdu) -> Pdu:
        self.asked += 1
        if pdu.kind is Kind.GET:
            return pdu.response(
                tuple(Binding(b.oid, self.variables.get(b.oid, NO_SUCH_INSTANCE)) for b in pdu.bindings)
            )
        if pdu.kind is Kind.GET_NEXT:
            return pdu.response(tuple(self.next(b.oid) for b in pdu.bindings))
        if pdu.kind is Kind.SET:
            self.variables |= {b.oid: b.value for b in pdu.bindings}
            return pdu.response(pdu.bindings)
        found, now = [], [b.oid for b in pdu.bindings]
        for _ in range(pdu.index):
            row = [self.next(oid) for oid in now]
            found += row
            now = [b.oid for b in row]
        return pdu.response(tuple(found))
