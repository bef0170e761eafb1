"""What a private flow says of its split, from REST and the command line to the frames of real agents."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import socket
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from controller_process import ControllerProcess, eventually
from edge_pair import EdgePair, EmulatedPath
from edge_rig import SO_RCVBUFFORCE, new_pair, socket_in, udp_socket

from hyroads.controller.agents.configs import IngressFlow
from hyroads.controller.cli.main import main
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.network import Network
from hyroads.controller.runtime.persistence import parse_flow

SPLIT = {"n_cons": 30.0, "cost_share": 0.25, "n_chp": 50.0, "padding": {"gap_ms": 9, "deviation_ms": 30}}
KNOWN = {**SPLIT, "padding": {"gap_ms": 9.0, "deviation_ms": 30.0, "max_per_s": 200.0}}
ETH_P_ALL, PACKET_OUTGOING, SHIM = 3, 4, b"\x88\xb5"
DATA, DUMMY = 1, 4
FLOW = {"id": "web", "from": "a", "to": "c", "policy": "private", **SPLIT}


def test_the_split_is_asked_for_shown_saved_and_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"state_file": str(tmp_path / "state.json")}

    def flow(running: ControllerProcess, name: str) -> dict[str, Any]:
        document: dict[str, Any] = running.rest("GET", f"/flows/{name}")[1]
        return {key: document[key] for key in (*KNOWN, "policy")}

    with ControllerProcess(tmp_path, settings) as running:
        assert running.rest("POST", "/flows?wait=false", FLOW)[0] == 202
        assert flow(running, "web") == {**KNOWN, "policy": "private"}
        for wrong, place in [
            ({"n_cons": 0}, "n_cons"),
            ({"cost_share": 0.7}, "cost_share"),
            ({"padding": "much"}, "padding"),
            ({"padding": {"gap_ms": -1}}, "padding.gap_ms"),
            ({"n_chp": True}, "n_chp"),
            ({"policy": "single"}, "n_cons"),
        ]:
            status, problem = running.rest("POST", "/flows?wait=false", {**FLOW, "id": "bad", **wrong})
            assert status == 422 and [*problem["errors"]] == [place], problem
        url = f"http://127.0.0.1:{running.port}"
        add = ["flows", "add", "--url", url, "cli", "a", "c", "--policy", "private", "--no-wait"]
        assert main([*add, "--n-cons", "15", "--n-chp", "80", "--cost-share", "0.1", "--no-padding"]) == 0
        capsys.readouterr()
        assert main(["flows", "show", "--url", url, "cli", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        asked = {"n_cons": 15.0, "n_chp": 80.0, "cost_share": 0.1, "padding": False, "policy": "private"}
        assert asked.items() <= shown.items()
        assert main(["flows", "add", "--url", url, "other", "a", "c", "--padding", "--no-wait"]) == 2
        assert "expected only with policy private" in capsys.readouterr().err
        assert flow(running, "f1") == dict.fromkeys(KNOWN) | {"policy": "throughput"}
        eventually(lambda: "cli" in (tmp_path / "state.json").read_text())
    with ControllerProcess(tmp_path, settings) as running:
        assert flow(running, "web") == {**KNOWN, "policy": "private"}
        assert flow(running, "cli") == asked


def _network() -> Network:
    links = [
        {"id": k, "from": "a", "to": "b", "technology": k, "capacity_mbps": 20, "both": True} for k in ("wifi", "plc")
    ]
    nodes = {"a": {"role": "gateway"}, "b": {"role": "ap"}}
    return parse({"nodes": nodes, "links": links, "interference": {"rule": "technology"}}, "test")


def _told(**split: Any) -> dict[str, Any]:
    """What an agent is told of the split of a flow that was declared like this."""
    spec = parse_flow({"id": "f", "from": "a", "to": "b", "policy": "private", **split}, _network(), "test")
    told: dict[str, Any] = IngressFlow(16, "f", "b", 60, (), spec.split).document()["split"]
    # Accesses end sooner, so that the test does.
    return {**told, "silence_ms": 150}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2")
def test_real_agents_send_runs_shares_and_padding_as_asked(tmp_path: Path) -> None:
    frames = 120

    def networks_of(split: dict[str, Any], accesses: int) -> tuple[list[np.ndarray], int]:
        """For each access the network of each frame as they were sent, and how many dummies came after the last."""
        config["ingress"][0]["split"] = split
        client.configure(config)
        time.sleep(0.3)
        _frames_seen(wire, pair)
        found, dummies = [], 0
        for _ in range(accesses):
            for _ in range(frames):
                out.sendto(struct.pack("!I", next(numbers)) + bytes(96), ("10.8.0.2", 7000))
                time.sleep(0.0005)
            # Longer than an access's silence.
            time.sleep(0.3)
            sent = _frames_seen(wire, pair)
            data = sorted((sequence, network) for kind, network, sequence in sent if kind == DATA)
            assert len(data) >= frames
            found.append(np.array([network for _, network in data]))
            # Those after the last frame: how even the others come is up to the machine.
            dummies += sum(kind == DUMMY and sequence > data[-1][0] for kind, _, sequence in sent)
        return found, dummies

    with new_pair(tmp_path, paths=[EmulatedPath(20, 2), EmulatedPath(20, 2)]) as pair:
        pair.configure("b", (18, 18))
        config = pair.config("a", (18, 18))
        numbers = itertools.count()
        with (
            socket_in(pair, "a", udp_socket) as out,
            socket_in(pair, "b", udp_socket) as back,
            socket_in(pair, "b", _wire) as wire,
            pair.client("a") as client,
        ):
            back.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            back.bind(("10.8.0.2", 7000))
            # Runs of one frame change network again and again; with runs of a thousand an access has one.
            short, none = networks_of(_told(n_cons=1), 8)
            changes = sum((np.diff(seen) != 0).sum() for seen in short)
            assert changes > 8 * frames * 0.15 and none == 0
            long, none = networks_of(_told(n_cons=1000), 8)
            assert sum((np.diff(seen) != 0).sum() for seen in long) <= 4 and none == 0
            # A tenth of the share is at most a fifth of any access.
            spared, _ = networks_of(_told(n_cons=1, cost_share=0.1), 12)
            shares = [float((seen == 1).mean()) for seen in spared]
            assert max(shares) < 0.35 and 0.04 < np.mean(shares) < 0.18, shares
            # 150 ms after an access are padded, each 20 ms; where the machine wakes the agent late there are fewer.
            _, dummies = networks_of(_told(padding={"gap_ms": 20, "deviation_ms": 1}), 5)
            assert 5 * 3 <= dummies <= 5 * 8, dummies
        with pair.client("b") as other:
            (flow,) = other.stats()["egress"]
            assert flow["dummies"] > 30 and flow["duplicate"] == 0


def _wire() -> socket.socket:
    """Sees all frames of a network namespace."""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    wire.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    wire.setblocking(False)
    return wire


def _frames_seen(wire: socket.socket, pair: EdgePair) -> list[tuple[int, int, int]]:
    """Kind, network (1 or 2) and sequence number of each frame with a shim that came on a path since last asked."""
    interfaces = {pair.interface("b", number): number for number in (1, 2)}
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            frame, (name, _, direction, *_) = wire.recvfrom(200)
            if name in interfaces and direction != PACKET_OUTGOING and frame[12:14] == SHIM:
                found.append((frame[14] & 0x1F, interfaces[name], int.from_bytes(frame[18:22], "big")))
    return found
