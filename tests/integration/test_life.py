"""The life of the real controller's process: reloads and their rights, what a service manager hears, log, --check."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from controller_process import NETWORK, ROOT, ControllerProcess

from hyroads.rest.client import ApiError, Client

TOKENS = {role: f"{role}-token-0123456789" for role in ("admin", "application", "viewer")}
API_TOKENS = {role: {"token": token, "role": role} for role, token in TOKENS.items()}
HYROADS = [sys.executable, "-c", "from hyroads.controller.cli.main import main; raise SystemExit(main())"]


@contextmanager
def controller(folder: Path, **environment: str) -> Iterator[ControllerProcess]:
    (folder / "network.yaml").write_text(NETWORK.read_text())
    settings = {"network": "network.yaml", "api_tokens": API_TOKENS, "state_file": "state.json"}
    with ControllerProcess(folder, settings, environment) as running:
        yield running


def change(running: ControllerProcess, **changes: Any) -> None:
    """Other settings in the file."""
    running.settings.write_text(json.dumps({**json.loads(running.settings.read_text()), **changes}))


def reload(running: ControllerProcess, role: str = "admin") -> tuple[int, Any]:
    return running.rest("POST", "/reload", token=TOKENS[role])


def test_reloads_are_for_admins_and_take_everything_or_nothing(tmp_path: Path) -> None:
    with controller(tmp_path) as running:
        assert [reload(running, role)[0] for role in ("viewer", "application", "admin")] == [403, 403, 200]
        # One part can be taken and one can't: neither is.
        change(running, margin=0.2, slot_ms=200)
        status, told = reload(running)
        assert status == 409 and "settings: slot_ms" in told["restart"] and "nothing was taken" in told["detail"]
        links = running.rest("GET", "/links", token=TOKENS["viewer"])[1]["links"]
        assert {link["margin"] for link in links} == {0.05}
        change(running, slot_ms=100)
        status, told = reload(running)
        assert status == 200 and told["changed"] == ["settings: margin"]
        links = running.rest("GET", "/links", token=TOKENS["viewer"])[1]["links"]
        assert {link["margin"] for link in links} == {0.2}


def test_a_token_that_is_taken_away_does_not_open_anything_any_more(tmp_path: Path) -> None:
    with controller(tmp_path) as running:
        assert running.rest("GET", "/health", token=TOKENS["viewer"])[0] == 200
        change(running, api_tokens={"admin": API_TOKENS["admin"]})
        status, told = reload(running)
        gone = {"settings: api_tokens.application", "settings: api_tokens.viewer"}
        assert status == 200 and set(told["changed"]) == gone
        assert running.rest("GET", "/health", token=TOKENS["viewer"])[0] == 401
        assert not any(token in running.log.read_text() for token in TOKENS.values())


def test_a_flow_of_rest_is_spared_and_one_that_was_removed_stays_so(tmp_path: Path) -> None:
    with controller(tmp_path) as running:
        client = Client(f"http://127.0.0.1:{running.port}", TOKENS["admin"])
        client.declare_flow("mine", "b", "a", wait=False)
        client.remove_flow("f1", wait=False)
        text = NETWORK.read_text()
        assert "flows:\n" in text
        (tmp_path / "network.yaml").write_text(text + "  - {id: mine, from: a, to: b}\n")
        with pytest.raises(ApiError, match=r"flows\.mine: was declared over REST") as refused:
            client.reload()
        assert refused.value.status == 409
        assert [flow["id"] for flow in client.flows()] == ["mine"]
        (tmp_path / "network.yaml").write_text(text + "  - {id: other, from: a, to: b}\n")
        status, _ = reload(running)
        assert status in (200, 504), "without switches nobody confirms it"
        assert {flow["id"]: flow["origin"] for flow in client.flows()} == {"mine": "api", "other": "file"}


def test_a_service_manager_hears_of_start_life_reload_and_end(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)

        def hear(word: str) -> str:
            while word not in (text := manager.recv(1000).decode()):
                pass
            return text

        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "900000"}
        with controller(tmp_path, **environment, HYROADS_LOG_FORMAT="json") as running:
            hear("READY=1")
            assert running.rest("GET", "/health", token=TOKENS["viewer"])[0] == 200
            hear("WATCHDOG=1")
            running.process.send_signal(signal.SIGHUP)
            assert "MONOTONIC_USEC=" in hear("RELOADING=1")
            hear("READY=1")
            running.process.terminate()
            hear("STOPPING=1")
            assert running.process.wait(10) == 0
            lines = [json.loads(line) for line in running.log.read_text().splitlines()]
            assert {"time", "level", "logger", "message"} <= lines[0].keys()
            assert lines[-1]["message"] == "ends, by SIGTERM"


def check(*words: str) -> subprocess.CompletedProcess[str]:
    command = [*HYROADS, "controller", "--check", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)


def test_check_names_what_is_wrong_and_starts_nothing(tmp_path: Path) -> None:
    settings, network = tmp_path / "hyroads.yaml", tmp_path / "network.yaml"
    settings.write_text("network: network.yaml\n")
    network.write_text(NETWORK.read_text())
    done = check("--config", str(settings))
    assert (done.returncode, done.stderr) == (0, "") and "3 nodes, 6 links, 1 flows" in done.stdout
    network.write_text(NETWORK.read_text().replace("capacity_mbps: 10", "capacity_mbps: -10"))
    done = check("--config", str(settings))
    assert done.returncode == 2 and done.stderr.startswith(f"hyroads: {network}: links[0].capacity_mbps: ")
    settings.write_text("network: network.yaml\nmargin: much\nslot_ms: 1\n")
    done = check("--config", str(settings))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 2 and not done.stdout
