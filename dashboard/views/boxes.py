"""What the page *Boxes* shows: boxes that wait to be adopted, adopted ones, and those that have left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hyroads.controller.core.errors import HyroadsError

from ..state import NetworkState
from .clients import age
from .tables import MAX_ROWS, Rows, items, mapping, number, short

BOXES, CODES, HEALTH = "/boxes", "/box-codes", "/health"
"""The documents that this page needs."""
KEY_SHOWN = 16
"""How many digits of the SHA-256 of its key a box shows."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an adoption stands. ``done``: the controller has confirmed it, or it has failed."""

    text: str
    done: bool = False


def pending_rows(state: NetworkState) -> Rows:
    """Boxes that wait: id, system, interfaces, when it was last heard, its key, whether it knew a join code."""
    return [
        [
            _text(box, "id"),
            _text(box, "system"),
            ", ".join(map(_interface, _list(box, "interfaces"))),
            _heard(box),
            _key(box),
            "yes" if box.get("verified") else "no",
        ]
        for box in _boxes(state, "pending")
    ]


def adopted_rows(state: NetworkState) -> Rows:
    """Adopted boxes: id, node, state, ports, when it was last heard, who adopted it."""
    return [
        [_text(box, "id"), _text(box, "node"), _state(box), short(box.get("ports") or {}), _heard(box),
         _text(box, "owner")]
        for box in _boxes(state, "adopted")
    ]  # fmt: skip


def left_rows(state: NetworkState) -> Rows:
    """Boxes that have left: id, why, when."""
    return [
        [_text(box, "id"), _text(box, "problem") or "its owner wanted it", _heard(box)] for box in _boxes(state, "left")
    ]


def pin_text(state: NetworkState) -> str:
    """The fingerprint by which boxes know the controller, or why there is none."""
    pin = _text(state.documents.get(CODES, {}), "pin")
    if pin:
        return f"Pin of this controller; a box shows the same: {pin}"
    reason = state.refusals.get(CODES)
    return f"The controller says: {reason}." if reason else ""


def empty_text(state: NetworkState) -> str:
    """What stands in place of the table while no box waits."""
    if CODES in state.refusals:
        return "No box waits."
    if BOXES not in state.documents:
        return "Nothing is known yet."
    pin = _text(state.documents.get(CODES, {}), "pin") or "PIN"
    return f"No box waits; on a box, type as root: hyroads box join https://HOST:PORT --pin {pin}"


def check_text(state: NetworkState, box: str) -> str:
    """What to compare before a box is adopted; empty if the box is not there."""
    found = _box(state, box)
    if found is None:
        return ""
    if found.get("verified"):
        return f"{box} joined with a join code of this controller, so its key is known to be its own."
    return f"Adopt it only if the box itself shows this key: {_key(found)}"


def free_nodes(state: NetworkState) -> list[str]:
    """Nodes that a box can become: neither their switch nor their agent is connected, and no box is adopted as them."""
    taken = {_text(box, "node") for box in _boxes(state, "adopted")}
    taken |= {_text(agent, "node") for agent in items(state, HEALTH, "agents") if agent.get("up")}
    found = {_text(switch, "node") for switch in items(state, HEALTH, "switches") if not switch.get("connected")}
    return sorted(found - taken - {""})


def ports_of(text: str) -> dict[str, str]:
    """Ports as they are typed, such as ``plc=eth1 host=eth2``: port -> interface of the box; HyroadsError."""
    found: dict[str, str] = {}
    for word in text.replace(",", " ").split():
        port, equals, interface = word.partition("=")
        if not (port and equals and interface) or port in found:
            raise HyroadsError(f"{word[:40]!r}: expected each port once, as PORT=INTERFACE")
        found[port] = interface
    return found


def outcome(state: NetworkState, box: str, node: str) -> Outcome:
    """How the adoption of a box as a node stands that the controller has accepted."""
    found = _box(state, box)
    if found is None:
        return Outcome(f"{box} is not adopted: the controller does not know it any more.", done=True)
    if found.get("state") == "left":
        return Outcome(f"{box} is not adopted: {_text(found, 'problem') or 'its owner took it away'}.", done=True)
    if found.get("state") == "adopted" and found.get("connected"):
        return Outcome(f"{box} is adopted as {_text(found, 'node')}.", done=True)
    return Outcome(f"{box} sets itself up as {node}: the controller waits for {_missing(found) or 'it'}.")


def _boxes(state: NetworkState, wanted: str) -> list[Mapping[str, Any]]:
    return [box for box in items(state, BOXES, "boxes") if box.get("state") == wanted][:MAX_ROWS]


def _box(state: NetworkState, box: str) -> Mapping[str, Any] | None:
    return next((found for found in items(state, BOXES, "boxes") if found.get("id") == box), None)


def _state(box: Mapping[str, Any]) -> str:
    """``adopted`` only once the controller has confirmed that."""
    missing = _missing(box)
    if not box.get("connected"):
        return f"sets itself up; not connected yet: {missing}" if missing else "sets itself up"
    return f"adopted; not connected: {missing}" if missing else "adopted"


def _missing(box: Mapping[str, Any]) -> str:
    return ", ".join(map(short, _list(box, "pending")))


def _interface(one: Any) -> str:
    found = mapping(one)
    words = [_text(found, "kind"), *(["to the controller"] if found.get("uplink") else [])]
    words += ["down"] if found.get("up") is False else []
    return f"{_text(found, 'name')} ({', '.join(words)})"


def _heard(box: Mapping[str, Any]) -> str:
    seen_ago_s = number(box.get("seen_ago_s"))
    return "not known" if seen_ago_s is None else age(seen_ago_s)


def _key(box: Mapping[str, Any]) -> str:
    return _text(box, "key")[:KEY_SHOWN]


def _list(document: Mapping[str, Any], name: str) -> list[Any]:
    value = document.get(name)
    return value if isinstance(value, list) else []


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    return short(value) if value is not None else ""
