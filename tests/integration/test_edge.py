"""Two real agents over real interfaces: what goes in on one side comes out on the other, whatever comes between."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from control_clients import AgentControl, connected
from edge_pair import BACK, FORWARD, PATH_MTU, EdgePair, EmulatedPath, path_mac
from edge_rig import SO_RCVBUFFORCE, new_pair, socket_in, udp_socket
from whole_frames import keep_tags, receive_whole

from hyroads.mininet.control_sockets import EdgeError
from hyroads.mininet.programs import find_program

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"),
]

ETH_P_ALL = 3
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[EdgePair]:
    with new_pair(tmp_path) as pair:
        yield pair


def raw_socket() -> socket.socket:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    keep_tags(raw)
    raw.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    raw.bind(("acc", ETH_P_ALL))
    raw.settimeout(2)
    return raw


def ping(pair: EdgePair, target: str, count: int, *options: str) -> str:
    return pair.run("a", "ping", "-n", "-c", str(count), "-i", "0.005", "-W", "1", *options, target)


def received(text: str) -> int:
    match = re.search(r"(\d+) received", text)
    assert match, text
    return int(match[1])


def wait_for(condition: Callable[[], bool], wait_s: float = 5.0) -> None:
    deadline_s = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline_s, "not within time"
        time.sleep(0.02)


def test_ipv4_ipv6_tcp_and_udp_pass_over_both_paths(pair: EdgePair) -> None:
    for target in ("10.8.0.2", "fd08::2"):
        text = ping(pair, target, 100)
        assert received(text) == 100
        assert "DUP" not in text
    pair.iperf_server()
    assert pair.tcp_mbps("10.8.0.2", 1) > 0
    with pair.client("a") as client:
        (flow,) = client.stats()["ingress"]
        sent = [path["sent_bytes"] for path in flow["paths"]]
        # Equal weights: one frame apart, and what keep-alives there were.
        assert abs(sent[0] - sent[1]) < PATH_MTU + 16 * 100
        assert flow["dropped"] == flow["too_big"] == 0
    with pair.client("b") as client:
        (flow,) = client.stats()["egress"]
        assert flow["number"] == FORWARD
        assert flow["delivered_frames"] > 1000
        assert flow["late"] == flow["duplicate"] == 0


def test_every_kind_of_frame_arrives_bit_by_bit(pair: EdgePair) -> None:
    generator = random.Random(1)
    to, source = bytes.fromhex("02000000aa02"), bytes.fromhex("02000000aa01")
    heads = {
        "minimum": to + source + b"\x08\x00",
        "ARP": b"\xff" * 6 + source + b"\x08\x06",
        "VLAN": to + source + b"\x81\x00\x20\x07\x08\x00",
        "QinQ": to + source + b"\x88\xa8\x00\x05\x81\x00\x00\x07\x86\xdd",
        "LLDP": bytes.fromhex("0180c200000e") + source + b"\x88\xcc",
        "MPLS": to + source + b"\x88\x47\x00\x01\x01\x40",
        "agent": to + source + b"\x88\xb5\x01\x01\x00\x10",
        "unknown": to + source + b"\x12\x34",
    }
    lengths = {"minimum": [14, 42, 60], "ARP": [42, 60], "QinQ": [64, 1518]}
    frames = []
    for kind, head in heads.items():
        for length in lengths.get(kind, [60, 333, 1514]):
            frames.append(head + generator.randbytes(length - len(head)))
    pair.ip("a", "link", "set", "acc", "mtu", "1600")
    pair.ip("b", "link", "set", "acc", "mtu", "1600")
    frames.append(heads["unknown"] + generator.randbytes(1600))
    with socket_in(pair, "a", raw_socket) as out, socket_in(pair, "b", raw_socket) as back:
        for frame in frames:
            out.send(frame)
        wanted = list(frames)
        while wanted:
            got, _ = receive_whole(back)
            # The hosts' own neighbour discovery may be in between.
            if got[6:12] == source:
                assert got == wanted.pop(0)


def test_udp_arrives_in_order_and_at_equal_delay_over_unequal_paths(tmp_path: Path) -> None:
    with new_pair(tmp_path, paths=[EmulatedPath(20, 5), EmulatedPath(30, 25)]) as pair:
        for side in ("a", "b"):
            pair.configure(side, (18, 27))
        count = 600
        with (
            socket_in(pair, "a", udp_socket) as out,
            socket_in(pair, "b", udp_socket) as back,
        ):
            back.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
            back.bind(("10.8.0.2", 7000))
            back.settimeout(2)
            got = []
            for number in range(count):
                out.sendto(struct.pack("!I", number) + bytes(996), ("10.8.0.2", 7000))
                time.sleep(0.0005)
            with contextlib.suppress(TimeoutError):
                while len(got) < count:
                    got.append(struct.unpack("!I", back.recv(2000)[:4])[0])
        assert got == list(range(count))
        with pair.client("b") as client:
            (flow,) = client.stats()["egress"]
            fast, slow = (path["delay_ms"] for path in flow["paths"])
            assert 10 < slow - fast < 30
            assert flow["hold_mean_ms"] > 2
            assert flow["reordered"] > 0
        # Both ways at the delay of the slow path.
        times_ms = pair.ping_ms("10.8.0.2", 40, 0.02)
        assert sorted(times_ms)[len(times_ms) // 2] > 45


def test_a_private_flow_is_split_access_by_access_and_arrives_in_order(tmp_path: Path) -> None:
    with new_pair(tmp_path, paths=[EmulatedPath(20, 5), EmulatedPath(20, 15)]) as pair:
        pair.configure("b", (18, 18))
        config = pair.config("a", (18, 18))
        padding = {"gap_ms": 8, "deviation_ms": 1, "max_per_s": 200}
        config["ingress"][0]["split"] = {
            "kind": "hywf",
            "n_cons": 5,
            "n_chp": 1e6,
            "silence_ms": 40,
            "padding": padding,
        }
        accesses, frames = 24, 100
        with (
            socket_in(pair, "a", udp_socket) as out,
            socket_in(pair, "b", udp_socket) as back,
            pair.client("a") as client,
        ):
            client.configure(config)
            back.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
            back.bind(("10.8.0.2", 7000))
            back.settimeout(2)
            shares, number, dummies = [], itertools.count(), 0
            for _ in range(accesses):
                client.reset_counters()
                for _ in range(frames):
                    out.sendto(struct.pack("!I", next(number)) + bytes(496), ("10.8.0.2", 7000))
                    time.sleep(0.0005)
                one, two = (path["sent_frames"] for path in client.stats()["ingress"][0]["paths"])
                shares.append(one / (one + two))
                time.sleep(0.08)
                dummies += client.stats()["ingress"][0]["dummies"]
            got = []
            with contextlib.suppress(TimeoutError):
                while len(got) < accesses * frames:
                    got.append(struct.unpack("!I", back.recv(2000)[:4])[0])
        assert got == list(range(accesses * frames))
        # Uniform shares have a standard deviation of 0.29; a split by rates or a fixed one has next to none.
        assert statistics.stdev(shares) > 0.12, shares
        assert dummies > 0
        with pair.client("b") as client:
            (flow,) = client.stats()["egress"]
            assert flow["dummies"] >= accesses
            assert all(path["received_frames"] > 200 for path in flow["paths"])
            assert flow["stale"] == flow["duplicate"] == 0


def test_rates_hold_and_change_while_running(pair: EdgePair) -> None:
    pair.configure("a", (10.0, 5.0))
    with (
        socket_in(pair, "a", udp_socket) as out,
        pair.client("a") as client,
    ):

        def flood(seconds: float) -> list[float]:
            """Offers far too much and gives the rates of the paths in Mb/s."""
            client.reset_counters()
            before = client.stats()
            until_s = time.monotonic() + seconds
            while time.monotonic() < until_s:
                for _ in range(8):
                    out.sendto(bytes(1200), ("10.8.0.2", 9))
                time.sleep(0.001)
            after = client.stats()
            elapsed_s = after["time_s"] - before["time_s"]
            return [path["sent_bytes"] * 8e-6 / elapsed_s for path in after["ingress"][0]["paths"]]

        fast, slow = flood(1.5)
        # An upper bound always holds; how close it comes depends on how busy the machine is.
        assert 7 < fast < 10.2
        assert fast / slow == pytest.approx(2, rel=0.02)
        client.set_rates({FORWARD: {1: 2.0, 2: 8.0}})
        fast, slow = flood(1.5)
        assert 5.5 < slow < 8.3
        assert slow / fast == pytest.approx(4, rel=0.04)
        client.set_rates({FORWARD: {1: 0.0}})
        unused, slow = flood(0.5)
        assert unused < 0.05 < slow
        with pytest.raises(EdgeError, match="unknown path 9"):
            client.set_rates({FORWARD: {2: 1.0, 9: 1.0}})
        with pytest.raises(EdgeError, match="unknown flow 99"):
            client.set_rates({99: {1: 1.0}})


def test_a_path_that_dies_and_comes_back(pair: EdgePair) -> None:
    assert received(ping(pair, "10.8.0.2", 50)) == 50
    # Nobody has noticed yet: half is lost in each direction, but nothing stalls.
    pair.ip("b", "link", "set", "p2", "down")
    text = ping(pair, "10.8.0.2", 200)
    assert 20 <= received(text) <= 100
    for side, flow in (("a", FORWARD), ("b", BACK)):
        with pair.client(side) as client:
            client.set_rates({flow: {2: 0.0}})
    assert received(ping(pair, "10.8.0.2", 200)) == 200
    pair.ip("b", "link", "set", "p2", "up")
    for side, flow in (("a", FORWARD), ("b", BACK)):
        with pair.client(side) as client:
            client.reset_counters()
            client.set_rates({flow: {2: None}})
    text = ping(pair, "10.8.0.2", 200)
    assert received(text) == 200
    assert "DUP" not in text
    with pair.client("b") as client:
        (flow,) = client.stats()["egress"]
        assert flow["late"] == flow["stale"] == flow["timed_out"] == 0
        assert all(path["received_frames"] > 90 for path in flow["paths"])


def test_too_big_is_told_to_the_sender_which_learns_it(pair: EdgePair) -> None:
    for side in ("a", "b"):
        config = pair.config(side)
        config["ingress"][0]["paths"][1]["mtu"] = 1400
        with pair.client(side) as client:
            client.configure(config)
    # 1400 less the shim and the inner Ethernet header.
    for target, size in (("10.8.0.2", 1450), ("fd08::2", 1430)):
        command = ["ip", "netns", "exec", pair.namespace("a"), "ping", "-n", "-c", "2", "-W", "1", "-M", "do"]
        done = subprocess.run([*command, "-s", str(size), target], capture_output=True, text=True)
        assert done.returncode == 1
        assert re.search(r"mtu\W+1374", done.stdout + done.stderr)
        assert "mtu 1374" in pair.ip("a", *(["-6"] if ":" in target else []), "route", "get", target)
        assert received(ping(pair, target, 1, "-s", "1200")) == 1
    pair.iperf_server()
    assert pair.tcp_mbps("10.8.0.2", 1) > 1
    with pair.client("a") as client:
        assert client.stats()["ingress"][0]["too_big"] >= 2


def test_an_agent_that_is_killed_and_started_again(pair: EdgePair) -> None:
    assert received(ping(pair, "10.8.0.2", 50)) == 50
    with pair.client("a") as client:
        first = client.hello["boot"]
    assert "-9" in pair.stop_agent("a", signal.SIGKILL)
    pair.start_agent("a")
    pair.configure("a")
    pair.ip("a", "addr", "add", "10.8.0.1/24", "dev", "acc")
    # b sees new sequence numbers at once, and loses nothing over it.
    assert received(ping(pair, "10.8.0.2", 100)) == 100
    with pair.client("a") as client:
        assert client.hello["boot"] != first
    with pair.client("b") as client:
        assert client.stats()["egress"][0]["restarts"] == 1
    assert "status 0" in pair.stop_agent("a")
    assert not pair.control("a").exists()


def expect_hellos(pair: EdgePair, **times_ms: int) -> None:
    """Both sides say hello on both paths, and wait for that of the other."""
    hello = {"interval_ms": 20, "dead_ms": 100, **times_ms, "send": [{"interface": "p1"}, {"interface": "p2"}]}
    for side, other in (("a", "b"), ("b", "a")):
        expect = [{"link": f"{other}{side}-{n}", "mac": path_mac(other, n)} for n in (1, 2)]
        with pair.client(side) as client:
            client.configure({**pair.config(side), "hello": {**hello, "expect": expect}})


def test_hellos_tell_of_dead_links(pair: EdgePair) -> None:
    expect_hellos(pair)
    with pair.client("a") as client:
        client.subscribe()
        time.sleep(0.5)
        assert [link["up"] for link in client.stats()["links"]] == [True, True]
        pair.ip("b", "link", "set", "p2", "down")
        event = client.wait_event("link")
        assert (event["link"], event["up"]) == ("ba-2", False)
        pair.ip("b", "link", "set", "p2", "up")
        event = client.wait_event("link")
        assert (event["link"], event["up"]) == ("ba-2", True)
        assert client.events == []


def test_an_agent_that_was_not_run_takes_no_link_for_dead(pair: EdgePair) -> None:
    """A busy machine stops both ends at once; the one that goes on first finds nothing in its sockets."""
    expect_hellos(pair)
    with pair.client("a") as client:
        client.subscribe()
        time.sleep(0.5)
        for _ in range(5):
            for side in ("a", "b"):
                pair.agent(side).kill(signal.SIGSTOP)
            time.sleep(0.25)
            pair.agent("a").kill(signal.SIGCONT)
            time.sleep(0.04)
            pair.agent("b").kill(signal.SIGCONT)
            time.sleep(0.2)
        assert [link["up"] for link in client.stats()["links"]] == [True, True]
        assert client.events == []
        # One that runs notices at once that the other one does not.
        stopped_s = time.monotonic()
        pair.agent("b").kill(signal.SIGSTOP)
        events = [client.wait_event("link") for _ in range(2)]
        assert {(event["link"], event["up"]) for event in events} == {("ba-1", False), ("ba-2", False)}
        assert time.monotonic() - stopped_s < 0.4
        pair.agent("b").kill(signal.SIGCONT)


def raw_socket_on(interface: str) -> socket.socket:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    raw.bind((interface, ETH_P_ALL))
    return raw


@pytest.mark.parametrize("interval_ms", [65535, 0])
def test_a_forged_hello_hides_no_link_that_is_cut(pair: EdgePair, interval_ms: int) -> None:
    """Both links fall silent at once; on one of them somebody else says hello a last time."""
    expect_hellos(pair)
    forged = b"\xff" * 6 + bytes.fromhex(path_mac("b", 2).replace(":", "")) + b"\x88\xb6"
    with (
        pair.client("a") as client,
        socket_in(pair, "b", lambda: raw_socket_on("p2")) as forger,
    ):
        client.subscribe()
        time.sleep(0.5)
        assert [link["up"] for link in client.stats()["links"]] == [True, True]
        pair.agent("b").kill(signal.SIGSTOP)
        try:
            cut_s = time.monotonic()
            for sequence in (0, 7, 1 << 31, (1 << 32) - 1):
                forger.send(forged + struct.pack("!BHI", 1, interval_ms, sequence) + bytes(39))
            noticed_s = {}
            for _ in range(2):
                event = client.wait_event("link")
                assert not event["up"]
                noticed_s[event["link"]] = time.monotonic() - cut_s
        finally:
            pair.agent("b").kill(signal.SIGCONT)
        # Hellos that seem to be missing may double it; what this one told would make it 1600 times as long.
        assert noticed_s["ba-2"] < 10 * noticed_s["ba-1"], noticed_s
        back = [client.wait_event("link") for _ in range(2)]
        assert sorted((event["link"], event["up"]) for event in back) == [("ba-1", True), ("ba-2", True)]


def test_times_that_no_clock_has_are_refused(pair: EdgePair) -> None:
    for dead_ms in (2**64 - 1, 2**64 // 10**6 + 1, 600_001):
        with pytest.raises(EdgeError, match=f"hello: dead_ms {dead_ms}: expected at most 600000"):
            expect_hellos(pair, dead_ms=dead_ms)
    assert received(ping(pair, "10.8.0.2", 20)) == 20


class Controller:
    """A small controller in asyncio: what the agent says, and what to tell it."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.heard: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.writer: asyncio.StreamWriter | None = None

    async def serve(self) -> None:
        self.server = await asyncio.start_server(self._connected, sock=self.listener, limit=1 << 21)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        while line := await reader.readline():
            message = json.loads(line)
            if message["type"] == "ping":
                self.say({"type": "pong", "seq": message["seq"]})
            else:
                self.heard.put_nowait(message)
        self.heard.put_nowait(None)
        writer.close()

    def say(self, message: dict[str, Any]) -> None:
        self.raw(json.dumps(message).encode() + b"\n")

    def raw(self, text: bytes) -> None:
        assert self.writer
        self.writer.write(text)

    async def wait(self, kind: str | None) -> dict[str, Any]:
        """The next message of a type (None: the connection ended); others are passed over."""
        async with asyncio.timeout(8):
            while True:
                message = await self.heard.get()
                if (message or {}).get("type") == kind:
                    return message or {}

    async def close(self) -> None:
        self.server.close()
        if self.writer:
            self.writer.transport.abort()


def listening(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    listener.setblocking(False)
    return listener


def test_an_agent_tells_how_late_the_machine_woke_it(pair: EdgePair) -> None:
    hello = {"interval_ms": 20, "dead_ms": 1000, "send": [{"interface": "p1"}], "expect": []}
    with pair.client("a") as client:
        client.configure({**pair.config("a"), "hello": hello})
        time.sleep(0.2)
        client.reset_counters()
        # It must be back in its wait: how long it was held up while it answered us is not told.
        time.sleep(0.05)
        pair.agent("a").kill(signal.SIGSTOP)
        time.sleep(0.3)
        pair.agent("a").kill(signal.SIGCONT)
        late = client.stats()["woken_late"]
        # It was asleep until the next hello frame was due.
        assert 270 <= late["max_ms"] <= 1000
        assert 0.27 <= late["over_100_ms_s"] <= late["over_20_ms_s"] <= late["over_5_ms_s"]
        client.reset_counters()
        assert client.stats()["woken_late"]["over_100_ms_s"] == 0


def test_the_controller_comes_goes_and_talks_nonsense(pair: EdgePair, tmp_path: Path) -> None:
    pair.stop_agent("a")
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(0o600)
    listener = socket_in(pair, "a", lambda: listening(6654))
    pair.start_agent("a", "--controller", "127.0.0.1:6654", "--token-file", str(token))
    pair.ip("a", "addr", "add", "10.8.0.1/24", "dev", "acc")

    async def first_life() -> None:
        controller = Controller(listener)
        await controller.serve()
        hello = await controller.wait("hello")
        assert (hello["node"], hello["version"], hello["revision"], hello["token"]) == ("a", 1, 0, "secret")
        controller.say({"type": "welcome", "version": 1, "report_ms": 50, "ping_ms": 50, "later": 1})
        controller.say({"type": "config", "seq": 1, **pair.config("a"), "revision": 12})
        assert (await controller.wait("ok"))["seq"] == 1
        report = await controller.wait("report")
        assert report["seq"] is None
        controller.say({"type": "dance", "seq": 2})
        assert "dance" in (await controller.wait("error"))["message"]
        controller.say({"type": "config", "seq": 3, "revision": 13, "ingress": [{"number": 3, "paths": []}]})
        assert "flow number 3" in (await controller.wait("error"))["message"]
        controller.say({"type": "rates", "seq": 4, "rates": {str(FORWARD): {"1": 50.0}}})
        assert (await controller.wait("ok"))["seq"] == 4
        controller.say({"type": "stats", "seq": 5})
        while (report := await controller.wait("report"))["seq"] != 5:
            pass
        # Nothing of the refused configuration was taken over.
        assert report["revision"] == 12
        assert report["ingress"][0]["paths"][0]["rate_mbps"] == 50.0
        controller.say({"type": "ping", "seq": 77})
        assert (await controller.wait("pong"))["seq"] == 77
        controller.raw(b"this is not JSON\n")
        await controller.wait(None)
        # It dials again at once and tells what it has.
        assert (await controller.wait("hello"))["revision"] == 12
        controller.raw(b"x" * (3 << 19))
        await controller.wait(None)
        await controller.wait("hello")
        controller.say({"type": "welcome", "version": 1, "report_ms": 0, "ping_ms": 50})
        await controller.close()

    async def second_life() -> None:
        controller = Controller(socket_in(pair, "a", lambda: listening(6654)))
        await controller.serve()
        assert (await controller.wait("hello"))["revision"] == 12
        controller.say({"type": "welcome", "version": 1, "report_ms": 0, "ping_ms": 50})
        controller.say({"type": "reset-counters", "seq": 1})
        await controller.wait("ok")
        # A controller that hangs is noticed by its silence.
        controller.raw = lambda text: None  # type: ignore[method-assign]
        await controller.wait(None)
        await controller.close()

    asyncio.run(first_life())
    assert received(ping(pair, "10.8.0.2", 100)) == 100
    asyncio.run(second_life())
    assert received(ping(pair, "10.8.0.2", 100)) == 100
    with pair.client("a") as client:
        assert client.stats()["revision"] == 12


def test_unix_clients_see_errors_and_long_reports(pair: EdgePair) -> None:
    flows = [{"number": number, "paths": [{"id": 1, "rate_mbps": 1}]} for number in range(100, 1300)]
    egress = [{"number": number, "paths": [1, 2]} for number in range(100, 1300)]
    with pair.client("a") as client:
        client.configure({"revision": 5, "ingress": flows, "egress": egress})
        report = client.stats()
        assert [flow["number"] for flow in report["ingress"]] == list(range(100, 1300))
        assert len(report["egress"]) == 1200
        with pytest.raises(EdgeError, match="no-such"):
            client.configure({"revision": 6, "ingress": [{"number": 16, "paths": [{"id": 1, "interface": "no-such"}]}]})
        assert client.stats()["revision"] == 5
        client._send_line(b"{")
        assert "malformed" in client.wait_event("error")["message"]
        assert len(client.stats()["ingress"]) == 1200


def test_bad_input_is_status_2_and_one_line(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"type":"config","revision":1,"egress":[{"number":1,"paths":[]}]}')
    ports = ["--node", "a", "--access", "tap:hr-edge-none", "--network", "tap:hr-edge-none2"]
    for arguments, word in [
        (["--node", "a"], "--access"),
        ([*ports, "--config", str(config)], "flow number 1"),
        ([*ports, "--controller", "nowhere"], "--controller"),
    ]:
        done = subprocess.run([find_program("hyroads-edge"), *arguments], capture_output=True, text=True)
        assert done.returncode == 2
        assert word in done.stderr
        assert done.stderr.count("\n") == 1


def test_a_config_file_is_enough(pair: EdgePair, tmp_path: Path) -> None:
    pair.stop_agent("b")
    config = tmp_path / "b.json"
    config.write_text(json.dumps({"type": "config", **pair.config("b")}))
    pair.start_agent("b", "--config", str(config), "--realtime")
    pair.ip("b", "addr", "add", "10.8.0.2/24", "dev", "acc")
    assert received(ping(pair, "10.8.0.2", 50)) == 50
    with pair.client("b") as client:
        assert client.hello["revision"] == 1


def test_a_full_disk_of_the_log_ends_no_agent(tmp_path: Path) -> None:
    (tmp_path / "a.log").symlink_to("/dev/full")
    with new_pair(tmp_path) as pair, connected(AgentControl, pair.control("a")) as client:
        for _ in range(2):
            with pytest.raises(EdgeError, match="99"):
                client.set_rates({99: {1: 1.0}})
        assert "0% packet loss" in ping(pair, "10.8.0.2", 10)
