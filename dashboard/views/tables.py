"""Pages that are tables: clients, slices, sessions, events, health. Rows are texts with units."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..state import EventRow, NetworkState
from .clients import signal_dbm, signal_text
from .network import figure

Rows = list[list[str]]
MAX_ROWS = 200
MAX_TEXT = 300


def client_rows(state: NetworkState) -> Rows:
    """Clients' interfaces: client, interface, node, technology, signal."""
    rows = []
    for client, at in sorted(state.live["clients"].items()):
        for mac, place in sorted(at.items()):
            signal = signal_text(signal_dbm(state, client, mac, place)) if place else ""
            rows.append([client, mac, *(place or ["nowhere", ""]), signal])
    return rows[:MAX_ROWS]


def slice_rows(state: NetworkState) -> Rows:
    """Slices by technology: the share that they have been promised, what is planned and measured, and whether they are
    held to it.
    """
    columns, rows = state.columns.get("slices", {}), []
    for name, shares in sorted(state.live["slices"].items()):
        for technology, row in sorted(shares.items()):
            found = {column: row[at] for column, at in columns.items()}
            share = found.get("share_percent")
            rows.append(
                [
                    name,
                    technology,
                    "all that is idle" if share is None else f"{share:g} %",
                    figure(found.get("planned_busy_percent"), "%"),
                    figure(found.get("busy_percent"), "%"),
                    "yes" if found.get("held") else "no",
                ]
            )
    return rows[:MAX_ROWS]


def port_rows(state: NetworkState) -> Rows:
    """Which slice owns which ports of which switch, where the controller is behind a slicer."""
    rows = []
    for one in items(state, "/slices", "slices"):
        for switch, of in sorted(mapping(one.get("switches")).items()):
            rows.append([str(one.get("name")), str(switch), short(mapping(of).get("ports", []))])
    return rows[:MAX_ROWS]


def session_rows(state: NetworkState) -> Rows:
    """Multicast sessions: id, owner, group, participants, rate, state."""
    return [
        [
            str(one.get("id")),
            str(one.get("owner", "")),
            str(one.get("group", "")),
            ", ".join(map(_participant, one.get("participants") or [])),
            figure(number(one.get("rate_mbps")), "Mb/s"),
            str(one.get("state") or ""),
            str(one.get("reason") or ""),
        ]
        for one in items(state, "/sessions", "sessions")
    ][:MAX_ROWS]


def reservation_rows(state: NetworkState) -> Rows:
    """Reservations: id, owner, what for, promised rate, state."""
    return [
        [
            str(one.get("id")),
            str(one.get("owner", "")),
            str(one.get("flow") or one.get("session") or ""),
            figure(number(one.get("rate_mbps")), "Mb/s"),
            str(one.get("state") or ""),
            str(one.get("reason") or ""),
        ]
        for one in items(state, "/reservations", "reservations")
    ][:MAX_ROWS]


def event_rows(events: Sequence[EventRow], words: str) -> Rows:
    """The newest first: time (UTC), kind, what; those that have all words somewhere."""
    wanted, rows = words.lower().split(), []
    for event in reversed(events):
        content = {name: value for name, value in event.document.items() if name != "time_s"}
        row = [datetime.fromtimestamp(event.time_s, UTC).strftime("%H:%M:%S"), event.kind, short(content)]
        if all(word in " ".join(row).lower() for word in wanted):
            rows.append(row)
        if len(rows) >= MAX_ROWS:
            break
    return rows


def health_rows(state: NetworkState) -> Rows:
    """The controller in short: what, how."""
    found = state.documents.get("/health", {})
    if not found:
        return []
    slots, plan = mapping(found.get("slots")), mapping(found.get("plan"))
    count, missed, recently = (int(slots.get(name) or 0) for name in ("count", "missed", "missed_recently"))
    return [
        ["state", _state_of_controller(found, slots)],
        ["version", str(found.get("version", ""))],
        ["running for", figure(number(found.get("uptime_s")), "s")],
        ["not confirmed yet", ", ".join(map(str, found.get("pending") or [])) or "nothing"],
        ["slots missed", f"{missed} of {missed + count} since the start, {recently} in the last 5 min"],
        ["a slot takes (median; 99 %)", f"{_ms(slots.get('p50_ms'))}; {_ms(slots.get('p99_ms'))}"],
        ["latest plan took", _ms(plan.get("duration_ms"))],
    ]


def _state_of_controller(health: Mapping[str, Any], slots: Mapping[str, Any]) -> str:
    """Return one phrase for ``GET /health``: "all is well" only without a missing part and without recent misses."""
    if not health.get("ok"):
        return "something is missing"
    recently = int(slots.get("missed_recently") or 0)
    return f"{recently} slots missed in the last 5 min" if recently else "all is well"


def part_rows(state: NetworkState) -> Rows:
    """Switches and agents: part, node, up, in sync, errors."""
    found, rows = state.documents.get("/health", {}), []
    for kind, part, up in (("switches", "switch", "connected"), ("agents", "agent", "up")):
        for one in found.get(kind) or []:
            words = [_yes(one.get(up)), _yes(one.get("synced")), str(one.get("errors", 0))]
            rows.append([part, str(one.get("node")), *words])
    return rows[:MAX_ROWS]


def error_rows(state: NetworkState) -> Rows:
    """The latest errors: time (UTC), where, what."""
    found = state.documents.get("/health", {}).get("last_errors") or []
    return [
        [
            datetime.fromtimestamp(number(one.get("time_s")) or 0.0, UTC).strftime("%H:%M:%S"),
            str(one.get("where")),
            short(one.get("what")),
        ]
        for one in reversed(found)
    ][:MAX_ROWS]


def _participant(one: Any) -> str:
    found = mapping(one)
    return f"{found.get('name', one)}{'' if found.get('reached', True) else ' (not reached)'}"


def short(value: Any) -> str:
    """Any value as a text of bounded length."""
    if isinstance(value, Mapping):
        text = ", ".join(f"{name} {short(one)}" for name, one in value.items())
    elif isinstance(value, list):
        text = ", ".join(map(short, value))
    else:
        text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def items(state: NetworkState, path: str, name: str) -> list[Mapping[str, Any]]:
    """The objects of a list in a document of the API; none while it is not known."""
    found = state.documents.get(path, {}).get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def mapping(value: Any) -> Mapping[str, Any]:
    """An object of a document; an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}


def number(value: Any) -> float | None:
    """A number of a document; None in place of anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _ms(value: Any) -> str:
    return figure(number(value), "ms")


def _yes(value: Any) -> str:
    return "yes" if value else "no"
