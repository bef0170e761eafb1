"""The client's end of its session with a controller, against one that is scripted here, and may be hostile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hyroads.controller.client import reporting
from hyroads.controller.client.reporting import Callbacks, Controller, Reporter
from hyroads.controller.core.errors import HyroadsError

WELCOME = {"type": "welcome", "version": 1, "report_ms": 100}
POLICY = {"interfaces": {"wlan0": {}}, "mode": "full-speed"}


class Peer:
    """The controller: what it was sent, and what it sends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def next(self, *kinds: str) -> dict[str, Any]:
        while True:
            message = json.loads(await asyncio.wait_for(self.reader.readline(), 5))
            if not kinds or message["type"] in kinds:
                return message

    def say(self, message: Any) -> None:
        self.writer.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")


class Daemon:
    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.policy: dict[str, Any] = POLICY
        self.warnings: list[str] = []

    async def use(self, policy: dict[str, Any]) -> None:
        self.policy = policy

    async def migrate(self, flow: int, interface: str) -> None:
        if interface == "eth9":
            raise HyroadsError("unknown interface eth9")
        self.done.append((flow, interface))

    async def choose(self, mode: str, flow: str | None, connection: str | None) -> None:
        self.done.append((mode, flow, connection))

    def callbacks(self) -> Callbacks:
        status = {"mode": "full-speed", "interfaces": {}, "flows": []}
        return Callbacks(lambda: status, lambda: self.policy, self.use, self.migrate, self.choose)


def talk(script: Callable[[Peer, Daemon, Reporter], Awaitable[None]], *, connections: int = 1) -> Daemon:
    """Let a reporter meet ``script`` on each of its connections."""
    daemon = Daemon()

    async def main() -> None:
        over: asyncio.Queue[BaseException | None] = asyncio.Queue()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            problem = None
            try:
                await script(Peer(reader, writer), daemon, reporter)
            except (TimeoutError, AssertionError, ValueError) as error:
                problem = error
            finally:
                writer.close()
                over.put_nowait(problem)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reporter = Reporter(
            Controller("127.0.0.1", port, "laptop", "secret"), daemon.callbacks(), daemon.warnings.append
        )
        assert "secret" not in repr(Controller("127.0.0.1", port, "laptop", "secret"))
        keeping = asyncio.create_task(reporter.keep())
        try:
            for _ in range(connections):
                problem = await asyncio.wait_for(over.get(), 20)
                if problem is not None:
                    raise problem
            # What the end of the connection was is told before the next one.
            await asyncio.sleep(0.05)
            assert not keeping.done(), keeping.result()
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            server.close()

    asyncio.run(main())
    return daemon


async def entered(peer: Peer) -> None:
    hello = await peer.next()
    assert (hello["type"], hello["role"], hello["node"], hello["token"]) == ("hello", "client", "laptop", "secret")
    peer.say(WELCOME)


def test_it_says_who_it_is_tells_its_policy_once_and_reports_again_and_again() -> None:
    async def script(peer: Peer, daemon: Daemon, reporter: Reporter) -> None:
        await entered(peer)
        assert await peer.next() == {"type": "client-policy", "policy": POLICY}
        assert [(await peer.next())["type"] for _ in range(3)] == ["client-report"] * 3
        daemon.policy = {**POLICY, "mode": "cost-efficient"}
        assert (await peer.next("client-policy"))["policy"]["mode"] == "cost-efficient"
        peer.say({"type": "ping", "seq": 9})
        assert await peer.next("pong") == {"type": "pong", "seq": 9}

    talk(script)


def test_what_it_is_asked_is_done_in_order_and_told_before_it_is_confirmed() -> None:
    async def script(peer: Peer, daemon: Daemon, reporter: Reporter) -> None:
        await entered(peer)
        await peer.next("client-report")
        peer.say({"type": "client-policy", "seq": 1, "policy": {"interfaces": {}}})
        peer.say({"type": "client-migrate", "seq": 2, "flow": 3, "interface": "eth9"})
        peer.say({"type": "client-migrate", "seq": 3, "flow": 3, "interface": "wlan0"})
        peer.say({"type": "client-mode", "seq": 4, "mode": "full-speed", "flow": None})
        told = await peer.next("client-policy", "ok")
        assert told == {"type": "client-policy", "policy": {"interfaces": {}}}
        answers = [await peer.next("ok", "error") for _ in range(4)]
        assert [(each["type"], each["seq"]) for each in answers] == [("ok", 1), ("error", 2), ("ok", 3), ("ok", 4)]
        assert answers[1]["message"] == "unknown interface eth9"

    assert talk(script).done == [(3, "wlan0"), ("full-speed", None, None)]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "client-policy", "seq": 1, "policy": []},
        {"type": "client-policy", "seq": 1},
        {"type": "client-migrate", "seq": 1, "flow": True, "interface": "wlan0"},
        {"type": "client-migrate", "seq": 1, "flow": -1, "interface": "wlan0"},
        {"type": "client-migrate", "seq": 1, "flow": 1, "interface": None},
        {"type": "client-mode", "seq": 1, "mode": 5},
        {"type": "client-mode", "seq": 1, "mode": "full-speed", "flow": 5},
        {"type": "client-mode", "seq": 1, "mode": "full-speed", "connection": 5},
        {"type": "config", "seq": 1},
        {"type": ["x"], "seq": 1},
        {"seq": 1},
    ],
)
def test_malformed_requests_are_refused_and_nothing_else_happens(message: dict[str, Any]) -> None:
    async def script(peer: Peer, daemon: Daemon, reporter: Reporter) -> None:
        await entered(peer)
        peer.say(message)
        assert (await peer.next("ok", "error"))["type"] == "error"
        peer.say({"type": "ping", "seq": 2})
        await peer.next("pong")

    daemon = talk(script)
    assert daemon.done == [] and daemon.policy == POLICY


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'{"type":"error","seq":null,"message":"wrong token\\u001b[2J"}\n', "refuses client laptop: wrong token[2J"),
        (b'{"type":"welcome"}\n', "does not answer as a controller"),
        (b'{"type":"welcome","report_ms":true}\n', "does not answer as a controller"),
        (b"HTTP/1.1 400 Bad Request\r\n", "a line: "),
        (b"[]\n", "not an object"),
        (b"", "closed the connection"),
        (b"x" * (reporting.MAX_LINE + 2), "longer than"),
    ],
)
def test_who_is_no_controller_or_refuses_is_named_once(answer: bytes, words: str) -> None:
    async def script(peer: Peer, daemon: Daemon, reporter: Reporter) -> None:
        await peer.next()
        peer.say(answer)
        await peer.writer.drain()
        assert not reporter.connected

    daemon = talk(script, connections=2)
    assert len(daemon.warnings) == 1 and words in daemon.warnings[0] and "\n" not in daemon.warnings[0]


def test_a_session_that_breaks_is_begun_again() -> None:
    async def script(peer: Peer, daemon: Daemon, reporter: Reporter) -> None:
        await entered(peer)
        assert (await peer.next())["type"] == "client-policy"
        assert reporter.connected
        peer.say(b"\xff\n")
        await peer.writer.drain()

    daemon = talk(script, connections=3)
    assert all("a line: " in each or "closed" in each for each in daemon.warnings)


def test_events_are_told_by_their_names_and_strange_ones_are_not() -> None:
    async def script(peer: Peer, daemon: Daemon, reporter: Reporter) -> None:
        await entered(peer)
        await peer.next("client-report")
        reporter.event({"type": "event", "event": "stranger", "endpoint": "x"})
        reporter.event({"type": "event", "event": ["interface.up"]})
        reporter.event({"type": "event", "event": "flow.migrated", "flow": 4, "from": "wlan0", "to": "wwan0"})
        assert await peer.next("client-event") == {
            "type": "client-event", "event": "flow_migrated", "flow": 4, "from": "wlan0", "interface": "wwan0",
        }  # fmt: skip

    talk(script)
