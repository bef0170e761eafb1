"""A running controller on real packets: a reload loses nothing of flows that do not differ, its end loses nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from scene_process import make, see

from hyroads.mininet.emulation import Emulation
from hyroads.mininet.traffic import Traffic
from hyroads.rest.client import ApiError

INTERVAL_S, PACKET_BYTES, SECONDS = 0.002, 200, 8.0
NETWORK = {
    "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "ap"}},
    "links": [
        {"id": "ab-plc", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 20, "both": True},
        {"id": "ab-wifi", "from": "a", "to": "b", "technology": "wifi", "capacity_mbps": 15, "both": True},
        {"id": "ac-wifi5", "from": "a", "to": "c", "technology": "wifi5", "capacity_mbps": 30, "both": True},
    ],
    "interference": {"rule": "technology"},
    "flows": [{"id": "f1", "from": "a", "to": "b"}],
}
HANGUPS = 20
TRIES = 3


def reloads(emulation: Emulation) -> list[Any]:
    """One of another link and a new flow, one of a wrong file, then many signals at once. What was answered."""
    path = emulation.directory / "network.json"
    right = json.loads(path.read_text())
    right["links"] = [
        {**link, "capacity_mbps": 25} if link["technology"] == "wifi5" else link for link in right["links"]
    ]
    right["flows"] = [*right["flows"], {"id": "f2", "from": "a", "to": "c"}]
    time.sleep(1.0)
    path.write_text(json.dumps(right))
    try:
        emulation.rest.reload()
    except ApiError as error:
        # It is in force; a machine that is busy with other work may need longer to confirm the new flow.
        if error.status != 504:
            raise
    told = list(emulation.rest.events("controller.reloaded", last=0, follow=False))
    answers: list[Any] = [told[-1].document]
    path.write_text(json.dumps({**right, "flows": [{"id": "f1", "from": "a", "to": "nowhere"}]}))
    try:
        answers.append(emulation.rest.reload())
    except ApiError as error:
        answers.append([error.status, str(error)])
    path.write_text(json.dumps(right))
    for _ in range(HANGUPS):
        emulation.controller.kill(signal.SIGHUP)
        time.sleep(0.01)
    return answers


def body(emulation: Emulation) -> dict[str, Any]:
    """What one stream lost while the controller was reloaded, and one while it ended."""
    answers: list[Any] = []
    traffic = Traffic(emulation, "a", "b", lambda: None)
    during_reloads = traffic.stream(SECONDS, INTERVAL_S, PACKET_BYTES, lambda: answers.extend(reloads(emulation)))
    until_s = time.monotonic() + 20
    while not (health := emulation.rest.health())["ok"] and time.monotonic() < until_s:
        time.sleep(0.2)
    flows = [flow["state"] for flow in emulation.rest.flows()]
    link = emulation.rest.get("/links/ac-wifi5")["declared_mbps"]
    process = emulation.controller

    def end() -> None:
        began_s = time.monotonic()
        process.kill(signal.SIGTERM)
        while process.alive and time.monotonic() < began_s + 10:
            time.sleep(0.02)
        answers.append(time.monotonic() - began_s)

    during_end = traffic.stream(SECONDS, INTERVAL_S, PACKET_BYTES, end)
    ping = [*emulation.inside("a"), "ping", "-q", "-c", "5", "-i", "0.2", emulation.addressing.host_ip["c"]]
    pinged = subprocess.run(ping, capture_output=True, text=True, check=False).stdout
    return {
        "answers": answers,
        "lost": [len(during_reloads.lost), len(during_end.lost)],
        "sent": [during_reloads.sent, during_end.sent],
        "ok": health["ok"],
        "exceptions": health["counters"]["exceptions"],
        "flows": flows,
        "link_mbps": link,
        "ended": not process.alive,
        "ping": pinged,
        "log": process.log.read_text(),
    }


def scene(out: Path) -> int:
    """The whole network; for a process of its own."""
    return make(NETWORK, "it-reload", body, out)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What was seen. A machine that lost packets while others took it proves nothing: made again, else skipped."""
    out = tmp_path_factory.mktemp("reload") / "seen.json"
    return see(__file__, out, lambda found: not any(found["lost"]), tries=TRIES, timeout_s=180)


def test_a_flow_that_does_not_differ_loses_no_packet(seen):
    taken = ["network: flows.f2", "network: links.ac-wifi5.capacity_mbps", "network: links.ac-wifi5~.capacity_mbps"]
    assert seen["answers"][0]["changed"] == taken
    assert seen["sent"][0] == SECONDS / INTERVAL_S
    assert seen["lost"][0] == 0
    assert seen["flows"] == ["multipath", "multipath"] and seen["link_mbps"] == 25
    assert seen["ok"] and seen["exceptions"] == 0


def test_a_wrong_file_is_one_error_that_names_its_place(seen):
    status, text = seen["answers"][1]
    assert status == 409 and "network.json: flows[0].to: " in text and "nothing was taken" in text
    refused = [line for line in seen["log"].splitlines() if "WARNING" in line and "nothing was taken" in line]
    assert len(refused) == 1 and "flows[0].to" in refused[0]


def test_many_signals_at_once_are_few_reloads_and_the_last_one_counts(seen):
    assert 1 <= seen["log"].count("nothing differs") <= HANGUPS


def test_the_controller_ends_and_packets_go_on(seen):
    assert seen["ended"] and seen["answers"][2] < 5.0
    assert seen["lost"][1] == 0
    assert " 0% packet loss" in seen["ping"]
