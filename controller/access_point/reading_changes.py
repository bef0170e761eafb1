"""Readings of radios as messages, and those that carry what changed since the last whole one
(docs/reference/telemetry.md, *Readings of what changed*). Pure.

Signals and rates on the air never rest. A row is sent again only if it differs from what the controller holds by more
than a dead band; smaller differences would cost the controller work and change no decision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .model import PowerLineEnd, Reading

Document = Mapping[str, Any]
SIGNAL_BAND_DB = 3
RATE_BAND = 0.05
LOSS_BAND = 0.02
"""What the controller holds of a neighbour may be this far from what the radio reads: in dB, as a share of the rate
that it holds, and as a share of frames."""
BAND_EVERY_S = 1.0
"""Rows that left the band are sent this often at most, all of them together."""
STEP_OF_RATES = 0.9
"""Two rates whose ratio is at most this are different modulations; the closest of 802.11n, ac and ax are 9:10."""
STEP_OF_LOSS = 0.1
BLOCK_ERRORS_BAND = 0.02
"""The same for the share of blocks that can't be decoded on a power line."""
HEARD_STEP_MS = 500
"""A row is sent at once if its rate has moved by a modulation or its loss by this share of frames, if a value appears
or disappears, or if the neighbour was heard this much longer or shorter ago than the controller holds."""
REFRESH_S = 0.3
"""A reading whose rows differ from the last whole one is itself whole if that one is this old: readings after it then
have no rows to repeat."""


def interface_document(technology: str, reading: Reading) -> Document:
    """A reading as an entry of ``interfaces``."""
    more = {"busy_source": reading.busy_source, "adapter": reading.adapter}
    return {
        "technology": technology,
        "busy_us": reading.busy_us,
        "active_us": reading.active_us,
        **{key: value for key, value in more.items() if value},
        "neighbours": [
            {
                "mac": n.mac.lower(),
                "tx_mbps": n.tx_capacity_kbps / 1000 or None,
                "rx_mbps": n.rx_capacity_kbps / 1000 or None,
                "loss": n.tx_loss,
                "signal_dbm": n.signal_dbm,
                "last_heard_ms": n.last_heard_ms,
                **({} if n.plc is None else {"plc": _plc_document(n.plc)}),
            }
            for n in reading.neighbours
        ],
    }


def _plc_document(end: PowerLineEnd) -> Document:
    slots = [round(mbps, 1) for mbps in end.slot_ble_mbps]
    errors = None if end.block_errors is None else round(end.block_errors, 4)
    return {"adapter": end.adapter.lower(), "block_errors": errors, "slot_ble_mbps": slots}


class Changes:
    """What one session was sent. Everything is sent each ``whole_s``."""

    def __init__(self, whole_s: float) -> None:
        self._whole_s = whole_s
        self._whole: Document | None = None
        self._whole_at_s = 0.0
        self._held: dict[tuple[str, str], Document] = {}
        """By technology and address: the row that the controller holds."""
        self._band_at_s = -math.inf
        """When rows that left the band were sent."""

    def message(self, reading: Document, now_s: float) -> dict[str, Any]:
        """The message for a whole reading: ``time_s`` and ``interfaces``, which must not change afterwards.

        The controller then holds, of each row, values within the bands of those of this reading, or of a reading of
        the last ``BAND_EVERY_S``.
        """
        steady = {**reading, "interfaces": self._steadied(reading["interfaces"], now_s)}
        age_s = now_s - self._whole_at_s
        if self._whole is not None and age_s < self._whole_s:
            changed = _changed(self._whole["interfaces"], steady["interfaces"])
            has_rows = changed is not None and any("neighbours" in entry for entry in changed)
            if changed is not None and not (has_rows and age_s >= REFRESH_S):
                return {"type": "radio-changes", "time_s": reading["time_s"], "interfaces": changed}
        self._whole, self._whole_at_s = steady, now_s
        return {"type": "radio", "seq": None, **steady}

    def _steadied(self, interfaces: list[Document], now_s: float) -> list[Document]:
        """The interfaces, with the row that the controller holds in the place of each row that need not be sent."""
        before, self._held = self._held, {}
        found: list[Document] = []
        is_due, leaves_band = now_s >= self._band_at_s + BAND_EVERY_S, not before
        for interface in interfaces:
            technology, rows = interface["technology"], []
            for row in interface["neighbours"]:
                held = before.get((technology, row["mac"]))
                is_sent = held is None or _is_urgent(held, row)
                if held is not None and not is_sent and is_due and _is_beyond_band(held, row):
                    is_sent = leaves_band = True
                row_sent = self._held[technology, row["mac"]] = row if is_sent or held is None else held
                rows.append(row_sent)
            found.append({**interface, "neighbours": rows})
        if is_due and leaves_band:
            self._band_at_s = now_s
        return found


def _changed(told: list[Document], now: list[Document]) -> list[dict[str, Any]] | None:
    """None if other interfaces, adapters or neighbours are there, or busy time is known by other means."""
    if [i["technology"] for i in told] != [i["technology"] for i in now]:
        return None
    found = []
    for before, interface in zip(told, now, strict=True):
        if any(interface.get(key) != before.get(key) for key in ("busy_source", "adapter")):
            return None
        rows, rows_before = interface["neighbours"], before["neighbours"]
        if [row["mac"] for row in rows] != [row["mac"] for row in rows_before]:
            return None
        entry = {key: interface[key] for key in ("technology", "busy_us", "active_us")}
        changed = [row for row, was in zip(rows, rows_before, strict=True) if row is not was and row != was]
        found.append({**entry, "neighbours": changed} if changed else entry)
    return found


def _is_urgent(held: Document, row: Document) -> bool:
    """Whether a row is to be sent at once."""
    if abs(row["last_heard_ms"] - held["last_heard_ms"]) >= HEARD_STEP_MS:
        return True
    if abs(row["loss"] - held["loss"]) >= STEP_OF_LOSS or (row["signal_dbm"] is None) != (held["signal_dbm"] is None):
        return True
    return any(_is_step(held[key], row[key]) for key in ("tx_mbps", "rx_mbps"))


def _is_step(held: float | None, rate: float | None) -> bool:
    if held is None or rate is None:
        return held is not rate
    return held != rate and min(held, rate) <= STEP_OF_RATES * max(held, rate)


def _is_beyond_band(held: Document, row: Document) -> bool:
    """Whether a row, which is not urgent, differs from the held one by more than the bands."""
    if row["signal_dbm"] is not None and abs(row["signal_dbm"] - held["signal_dbm"]) > SIGNAL_BAND_DB:
        return True
    if abs(row["loss"] - held["loss"]) > LOSS_BAND or _is_line_beyond_band(held.get("plc"), row.get("plc")):
        return True
    return any(
        held[key] is not None and abs(row[key] - held[key]) > RATE_BAND * held[key] for key in ("tx_mbps", "rx_mbps")
    )


def _is_line_beyond_band(held: Document | None, line: Document | None) -> bool:
    """The same of what is known of a power line."""
    if held is None or line is None:
        return held is not line
    slots, held_slots = line["slot_ble_mbps"], held["slot_ble_mbps"]
    if line["adapter"] != held["adapter"] or len(slots) != len(held_slots):
        return True
    errors, held_errors = line["block_errors"], held["block_errors"]
    if errors is None or held_errors is None:
        return errors is not held_errors
    pairs = zip(slots, held_slots, strict=True)
    return abs(errors - held_errors) > BLOCK_ERRORS_BAND or any(abs(a - b) > RATE_BAND * b for a, b in pairs)
