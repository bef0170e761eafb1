"""Scripted devices in Rust send the rows that the Python code of access points sends, and the rig judges itself."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

from campus_devices import compiled, verdict
from noisy_air import NoisyAir
from slot_log import SlotLog

from hyroads.controller.access_point.reading_changes import Changes

WHOLE_S = 2.0
READINGS = 200


def rows(seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {"mac": f"m{i}", "tx_mbps": round(rng.uniform(1, 300), 3), "rx_mbps": None, "loss": 0.0, "signal_dbm": -50,
         "last_heard_ms": 5}
        for i in range(12)
    ]  # fmt: skip


def readings(seed: int) -> list[dict[str, Any]]:
    """Noise, moves, losses, values that come and go, and neighbours that fall silent."""
    rng = random.Random(seed)
    air = NoisyAir({"wifi": rows(seed), "plc": rows(seed + 1)}, str(seed), moving=0.01)
    # Numbers that are exact in binary: a parser of JSON may round the last bit.
    found, now_s = [], 10.0
    for _ in range(READINGS):
        now_s += rng.choice([0.125, 0.125, 0.125, 0.375])
        interfaces = []
        for technology, noisy in air.read().items():
            odd = [{"loss": 0.05}, {"loss": 0.3}, {"rx_mbps": 7.5}, {"signal_dbm": None}, {"last_heard_ms": 900}]
            neighbours = [{**row, **(rng.choice(odd) if rng.random() < 0.02 else {})} for row in noisy]
            interfaces.append({"technology": technology, "busy_us": 1, "active_us": 2, "neighbours": neighbours})
        found.append({"now_s": now_s, "interfaces": interfaces})
    return found


def by_python(reading: dict[str, Any], changes: Changes) -> dict[str, Any]:
    message = changes.message({"time_s": reading["now_s"], "interfaces": reading["interfaces"]}, reading["now_s"])
    kind = message["type"]
    places = [[(int(row["mac"][1:]), without_mac(row)) for row in each.get("neighbours", ())]
              for each in message["interfaces"]]  # fmt: skip
    return {"type": kind, "rows": places}


def without_mac(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "mac"}


def test_compiled_dead_bands_send_the_rows_that_the_python_ones_send() -> None:
    drawn = readings(5)
    said = [
        {
            "now_s": each["now_s"],
            "interfaces": [[without_mac(row) for row in i["neighbours"]] for i in each["interfaces"]],
        }
        for each in drawn
    ]
    lines = "".join(json.dumps(each) + "\n" for each in said)
    output = subprocess.run(
        [compiled(), "--bands", str(WHOLE_S)], input=lines, capture_output=True, text=True, check=True, timeout=30
    ).stdout
    found = [json.loads(line) for line in output.splitlines()]
    changes = Changes(WHOLE_S)
    expected = [json.loads(json.dumps(by_python(reading, changes))) for reading in drawn]
    assert found == expected
    assert {message["type"] for message in found} == {"radio", "radio-changes"}
    assert 0 < sum(message["type"] == "radio-changes" and any(message["rows"]) for message in found) < READINGS


def test_figures_are_not_believed_when_devices_were_late() -> None:
    in_time, late = {"p99_ms": 4.9}, {"p99_ms": 5.1}
    assert verdict({"in force": in_time}) == "believed"
    assert verdict({"in force": in_time, "cuts": late}) == (
        "not believed: p99 of the devices' lateness is 5.1 ms (cuts), and 5 ms are allowed"
    )
    assert verdict({"in force": None}).startswith("not believed")


def test_slots_before_a_place_are_not_in_the_figures(tmp_path: Any) -> None:
    log = SlotLog(tmp_path / "slots")
    code = log.program.split("from hyroads.controller.framework")[0] + (
        "clock = slots.SlotClock(0.1, iter([0.0, 5.0, 5.0, 5.002, 5.1, 5.104]).__next__)\n"
        "for _ in range(3):\n    with clock:\n        pass\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    assert log.place() == 3
    figures = log.figures(1)
    assert (figures["slots"], round(figures["p50_ms"], 3), round(figures["max_ms"], 3)) == (2, 2.0, 4.0)
    assert log.figures(3) == {"slots": 0}
