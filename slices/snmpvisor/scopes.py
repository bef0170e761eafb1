"""Settings and a device's interface numbers -> what each slice sees of the device. Pure.

A slice sees the system group and the rows of its own interfaces and of the radios that it shares. ``ifNumber`` counts
what it sees. Rows of its own may be changed; those of a shared radio by the radio's owner, or as the rule says. A
virtual interface of its own has its wireless network with it: SSID, security, passphrase and whether it is on the air
are the slice's affair, how much airtime it gets is the radio's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hyroads.slices.snmpvisor import ber
from hyroads.slices.snmpvisor.ber import Oid
from hyroads.slices.snmpvisor.config import Interface
from hyroads.slices.snmpvisor.pdu import Binding, Status
from hyroads.slices.snmpvisor.requests import Scope
from hyroads.slices.snmpvisor.view import Access, Subtree, View, name_key

SYSTEM: Oid = (1, 3, 6, 1, 2, 1, 1)
IF_NUMBER: Oid = (1, 3, 6, 1, 2, 1, 2, 1)
IF_ENTRY: Oid = (1, 3, 6, 1, 2, 1, 2, 2, 1)
IF_X_ENTRY: Oid = (1, 3, 6, 1, 2, 1, 31, 1, 1, 1)
IF_NAME: Oid = (*IF_X_ENTRY, 1)
HYROADS: Oid = (1, 3, 6, 1, 4, 1, 8072, 9999, 9999, 18514, 1)
RADIO_ENTRY: Oid = (*HYROADS, 4, 1, 1)
BSS_ENTRY: Oid = (*HYROADS, 4, 2, 1)
ADMIN_STATUS, ALIAS = 7, 18
CHANNEL, POWER, RADIO_ADMIN = 2, 4, 5
SSID, SECURITY, PASSPHRASE, ENABLED, WEIGHT = 3, 4, 5, 6, 8
BSS_RADIO: Oid = (*BSS_ENTRY, 2)
BSS_SLICE: Oid = (*BSS_ENTRY, 7)
SECRETS: Oid = (*BSS_ENTRY, PASSPHRASE)
"""Variables whose values nobody is shown."""
SUBTREES = (
    Subtree(SYSTEM),
    Subtree(IF_NUMBER),
    Subtree(IF_ENTRY, frozenset({ADMIN_STATUS})),
    Subtree(IF_X_ENTRY, frozenset({ALIAS})),
    Subtree((*HYROADS, 1)),
    Subtree((*HYROADS, 2, 1), frozenset()),
    Subtree((*HYROADS, 3, 1), frozenset()),
    Subtree(RADIO_ENTRY, frozenset({CHANNEL, POWER, RADIO_ADMIN})),
    Subtree(
        BSS_ENTRY, frozenset({SSID, SECURITY, PASSPHRASE, ENABLED, WEIGHT}), by_name=True, shared=frozenset({WEIGHT})
    ),
)
"""What exists on an access point (IF-MIB, HYROADS-MIB); the columns that may be changed."""

Ask = Callable[[str, str, Oid, bytes], Status | None]
"""(slice, name of the interface, variable, value) -> None: it may be set; else why not."""


def scope_of(slice_name: str, interfaces: Mapping[str, Interface], index_of: Mapping[str, int], ask: Ask) -> Scope:
    """What a slice sees of a device whose interfaces have these numbers (by name)."""
    names = {name: access for name, each in interfaces.items() if (access := _access(slice_name, each))}
    rows = {index_of[name]: access for name, access in names.items() if name in index_of}
    # The network on a radio's own interface is its owner's alone, however many share the radio.
    view = View.of(SUBTREES, rows, {name: access for name, access in names.items() if access is Access.WRITE})
    values = {(*IF_NUMBER, 0): ber.of_integer(len(rows))}
    name_of = {(index_of[name],): name for name in names if name in index_of} | {name_key(name): name for name in names}

    def ask_for(oid: Oid, value: bytes) -> Status | None:
        row = view.row(oid)
        return Status.NOT_WRITABLE if row is None else ask(slice_name, name_of[row], oid, value)

    return Scope(view, values, ask_for)


def _access(slice_name: str, interface: Interface) -> Access:
    if slice_name == interface.owner:
        return Access.WRITE
    return Access.ASK if slice_name in interface.shared else Access.NONE


def sees_device(slice_name: str, interfaces: Mapping[str, Interface]) -> bool:
    """Whether a slice has anything to do with a device."""
    return any(slice_name == each.owner or slice_name in each.shared for each in interfaces.values())


def interface_numbers(bindings: Iterable[Binding]) -> dict[str, int]:
    """Interfaces by name, as IF-MIB numbers them."""
    size = len(IF_NAME)
    found = ((each.oid, _text(each)) for each in bindings if each.oid[:size] == IF_NAME and len(each.oid) == size + 1)
    return {name: oid[-1] for oid, name in found if name is not None}


def networks(bindings: Iterable[Binding]) -> dict[str, Interface]:
    """Wireless networks that belong to slices: who may change the device's own configuration says whose they are."""
    size = len(BSS_SLICE)
    texts = {each.oid: text for each in bindings if each.oid[:size] in (BSS_SLICE, BSS_RADIO) and (text := _text(each))}
    found = {}
    for oid, owner in texts.items():
        name = bytes(min(arc, 255) for arc in oid[size + 1 :]).decode("ascii", "replace")
        if oid[:size] == BSS_SLICE and oid[size:] == name_key(name):
            found[name] = Interface(owner, radio=texts.get((*BSS_RADIO, *oid[size:])))
    return found


def _text(binding: Binding) -> str | None:
    value = binding.value
    return value[2:].decode("utf-8", "replace") if value[:1] == bytes((ber.OCTETS,)) and value[1] < 0x80 else None
