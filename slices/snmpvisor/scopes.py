"""Settings and a device's interface numbers -> what each slice sees of the device. Pure.

A slice sees the system group and the rows of its own interfaces and of the radios that it shares. ``ifNumber`` counts
what it sees. Rows of its own may be changed; those of a shared radio by the radio's owner, or as the rule says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hyroads.slices.snmpvisor import ber
from hyroads.slices.snmpvisor.ber import Oid
from hyroads.slices.snmpvisor.config import Device
from hyroads.slices.snmpvisor.pdu import Status
from hyroads.slices.snmpvisor.requests import Scope
from hyroads.slices.snmpvisor.view import Access, Subtree, View

SYSTEM: Oid = (1, 3, 6, 1, 2, 1, 1)
IF_NUMBER: Oid = (1, 3, 6, 1, 2, 1, 2, 1)
IF_ENTRY: Oid = (1, 3, 6, 1, 2, 1, 2, 2, 1)
IF_X_ENTRY: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
IF_NAME: Oid = (*IF_X_ENTRY, 1)
HYROADS: Oid = (1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 18514, 1)
ADMIN_STATUS, ALIAS = 7, 18
SUBTREES = (
    Subtree(SYSTEM),
    Subtree(IF_NUMBER),
    Subtree(IF_ENTRY, frozenset({ADMIN_STATUS})),
    Subtree(IF_X_ENTRY, frozenset({ALIAS})),
    Subtree((*HYROADS, 1)),
    Subtree((*HYROADS, 2, 1), frozenset()),
    Subtree((*HYROADS, 3, 1), frozenset()),
)
"""What exists on an access point (IF-MIB, HYROADS-MIB); the columns that may be changed."""

Ask = Callable[[str, int, Oid, bytes], Status | None]
"""(slice, number of the interface, variable, value) -> None: it may be set; else why not."""


def scope_of(slice_name: str, device: Device, index_of: Mapping[str, int], ask: Ask) -> Scope:
    """What a slice sees of a device whose interfaces have these numbers (by name)."""
    rows: dict[int, Access] = {}
    for name, interface in device.interfaces.items():
        if name not in index_of:
            continue
        if slice_name in interface.shared:
            rows[index_of[name]] = Access.WRITE if interface.owner == slice_name else Access.ASK
        elif interface.owner == slice_name:
            rows[index_of[name]] = Access.WRITE
    view = View.of(SUBTREES, rows)
    values = {(*IF_NUMBER, 0): ber.of_integer(len(rows))}

    def ask_for(oid: Oid, value: bytes) -> Status | None:
        row = view.row(oid)
        return Status.NOT_WRITABLE if row is None else ask(slice_name, row, oid, value)

    return Scope(view, values, ask_for)


def sees_device(slice_name: str, device: Device) -> bool:
    """Whether a slice has anything to do with a device."""
    return any(slice_name == each.owner or slice_name in each.shared for each in device.interfaces.values())
