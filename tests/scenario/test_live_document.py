"""``GET /live`` on real packets: what links are said to carry is what was sent, and idle links carry nothing."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from network_names import network_name

from hyroads.controller.files.documents import read_file
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.run_directory import find_network
from hyroads.mininet.runner import RunOptions, run_network

PAYLOAD_BYTES, IP_AND_UDP_BYTES = 1400, 28
SECONDS, OFFERED_MBPS = 9, 8
TOLERANCE = 0.05


def samples(emulation: Emulation, count: int) -> list[dict[str, Any]]:
    """The whole document, about once a second."""
    found = []
    for _ in range(count):
        time.sleep(1.0)
        found.append(emulation.rest.live())
    return found


def exchange(emulation: Emulation) -> dict[str, Any]:
    """The document of the idle network, and while UDP runs from a to c."""
    emulation.wait_ready()
    time.sleep(3.0)
    idle = samples(emulation, 2)
    server = subprocess.Popen([*emulation.inside("c"), "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    words = f"-u -b {OFFERED_MBPS}M -l {PAYLOAD_BYTES} -t {SECONDS} --json".split()
    command = [*emulation.inside("a"), "iperf3", "-c", emulation.addressing.host_ip["c"], *words]
    sending = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(2.5)
        busy = samples(emulation, 5)
        said, _ = sending.communicate(timeout=SECONDS + 20)
    finally:
        for process in (sending, server):
            process.kill()
            process.wait()
    account = json.loads(said)["end"]["sum"]
    sent_mbps = account["packets"] * (PAYLOAD_BYTES + IP_AND_UDP_BYTES) * 8e-6 / account["seconds"]
    since = emulation.rest.live(since=busy[-1]["version"])
    return {"idle": idle, "busy": busy, "sent_mbps": sent_mbps, "since": since}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    result = tmp_path_factory.mktemp("live") / "result.json"

    def body(emulation: Emulation) -> int:
        result.write_text(json.dumps(exchange(emulation)))
        return 0

    said: list[str] = []
    network = read_file(find_network("triangle"))
    options = RunOptions(publish=0, emulation=EmulationOptions())
    assert run_network(network, network_name("live"), body, options, said.append) == 0, said
    document: dict[str, Any] = json.loads(Path(result).read_text())
    return document


def column(document: dict[str, Any], part: str, name: str, columns: dict[str, list[str]]) -> dict[str, Any]:
    """A place of all rows."""
    return {one: row[columns[part].index(name)] for one, row in document[part].items()}


def test_an_idle_network_carries_nothing(found: dict[str, Any]) -> None:
    for document in found["idle"]:
        columns = document["columns"]
        assert set(column(document, "links", "rate_mbps", columns).values()) == {0}
        assert set(column(document, "links", "up", columns).values()) == {1}
        assert max(column(document, "links", "planned_mbps", columns).values()) > 1, "planned all the same"


def test_links_of_the_paths_carry_what_was_sent_and_others_nothing(found: dict[str, Any]) -> None:
    columns = found["busy"][0]["columns"]
    rows = [column(document, "links", "rate_mbps", columns) for document in found["busy"]]
    rates = {link: statistics.median(row[link] for row in rows) for link in rows[0]}
    used = {link for row in found["busy"][0]["paths"].values() for link in row[0]}
    assert rates["ab-plc"] + rates["ab-wifi"] == pytest.approx(found["sent_mbps"], rel=TOLERANCE), rates
    assert rates["bc-wifi"] == pytest.approx(found["sent_mbps"], rel=TOLERANCE), rates
    assert {link: rate for link, rate in rates.items() if link not in used and rate} == {}


def test_paths_and_flow_say_the_same(found: dict[str, Any]) -> None:
    columns = found["busy"][0]["columns"]
    for name in ("sent_mbps", "delivered_mbps"):
        totals = [sum(column(document, "paths", name, columns).values()) for document in found["busy"]]
        assert statistics.median(totals) == pytest.approx(found["sent_mbps"], rel=TOLERANCE), name
    delivered = [sum(column(document, "flows", "delivered_mbps", columns).values()) for document in found["busy"]]
    assert statistics.median(delivered) == pytest.approx(found["sent_mbps"], rel=TOLERANCE)


def test_a_later_answer_goes_on_from_an_earlier_one(found: dict[str, Any]) -> None:
    assert found["since"]["from"] == found["busy"][-1]["version"] and not found["since"]["complete"]
    assert found["since"]["version"] > found["since"]["from"], "the traffic ended in between"
