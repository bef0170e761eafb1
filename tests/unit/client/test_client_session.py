"""Sessions of clients with a waypoint, over real TLS on loopback: tokens, keys, addresses, strangers, certificates."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from silent_dialers import served_friends
from waypoint_certificates import make_certificate

from hyroads.controller.client.kernel_sessions import KernelSessions
from hyroads.controller.client.modes import WaypointSession
from hyroads.controller.client.policy import WaypointPolicy
from hyroads.controller.client.session import SessionClient, SessionError, read_token
from hyroads.controller.client.waypoint import LIMITS, Sessions
from hyroads.controller.client.waypoint_clients import Numbers, inner_addresses, parse_tokens
from hyroads.controller.core.checking import TlsFiles
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.tls import server_side

TOKENS = {"laptop1": "a-token-of-laptop-1", "laptop2": "a-token-of-laptop-2"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("waypoint")
    make_certificate(made, "waypoint", "127.0.0.1")
    make_certificate(made, "other", "127.0.0.1")
    make_certificate(made, "elsewhere", "192.0.2.77")
    for client, token in TOKENS.items():
        (made / client).write_text(token)
        (made / client).chmod(0o600)
    (made / "wrong").write_text("a-token-of-nobody-here")
    (made / "wrong").chmod(0o600)
    return made


class FakeProgram:
    """Keeps what the data plane is asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def request(self, document: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(document)
        return {"type": "ok"}


class FakeTunnels:
    """Stands for the kernel at the waypoint."""

    def __init__(self) -> None:
        self.installed: list[Any] = []
        self.set_usable = self.install = self.installed.append


class Lab:
    """A waypoint on loopback, and its clients."""

    def __init__(self, folder: Path, state: Path) -> None:
        self.folder, self.program = folder, FakeProgram()
        self.state = state
        self.kernel, self.tunnels = KernelSessions(state.parent, 6656), FakeTunnels()
        self.kernel._plane = self.tunnels  # type: ignore[assignment]
        self.port = 0
        self.sessions: list[WaypointSession] = []
        self.said: list[str] = []

    @contextlib.asynccontextmanager
    async def waypoint(self, certificate: str = "waypoint", port: int = 0) -> AsyncIterator[Sessions]:
        files = TlsFiles(str(self.folder / f"{certificate}.key"), str(self.folder / f"{certificate}.pem"))
        sessions = Sessions(TOKENS, server_side(files, "test"), Numbers(self.state), 6656, self.kernel)
        sessions.program = self.program  # type: ignore[assignment]
        listener = sessions.listen("127.0.0.1", port)
        works = listener.sweep_for_ever(), sessions.accept_for_ever(listener)
        tasks = [asyncio.create_task(work) for work in works]
        self.port = listener.getsockname()[1]
        try:
            yield sessions
        finally:
            for task in tasks:
                task.cancel()
            listener.close()
            sessions.close()

    def client(
        self, name: str = "laptop1", token: str | None = None, plane: str = "agent", **identity: str | None
    ) -> SessionClient:
        known = identity or {"ca_file": str(self.folder / "waypoint.pem")}
        files = {"token_file": str(self.folder / (token or name)), "name": name}
        policy = WaypointPolicy("127.0.0.1", self.port, **files, **known)

        async def established(session: WaypointSession) -> None:
            self.sessions.append(session)

        return SessionClient(policy, lambda: ["lo"], established, self.said.append, plane)

    def keys(self, client: str) -> list[str]:
        """Of the sessions that the data plane was told."""
        return [each["key"] for each in self.program.asked if each.get("client") == client]


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture
def lab(folder: Path, tmp_path: Path) -> Lab:
    return Lab(folder, tmp_path / "waypoint.json")


def run(work: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 30)

    asyncio.run(bounded())


def test_each_connection_has_a_new_key_and_the_same_addresses(lab: Lab) -> None:
    async def work() -> None:
        async with lab.waypoint():
            first = await lab.client().check()
            second = await lab.client().check()
            other = await lab.client("laptop2").check()
            assert first.key != second.key
            assert (first.session, first.address4, first.address6) == (2, *inner_addresses(2))
            assert (second.session, second.address4) == (first.session, first.address4)
            assert other.session != first.session
            assert lab.keys("laptop1") == [first.key, second.key]
        # A waypoint that is started again knows them.
        async with lab.waypoint():
            assert (await lab.client("laptop2").check()).address4 == other.address4

    run(work())


@pytest.mark.parametrize("identity", ["fingerprint", "ca"])
def test_another_certificate_never_gets_the_token(lab: Lab, identity: str) -> None:
    der = ssl.PEM_cert_to_DER_cert((lab.folder / "waypoint.pem").read_text())
    pinned = {"fingerprint": hashlib.sha256(der).hexdigest()} if identity == "fingerprint" else {}

    async def work() -> None:
        async with lab.waypoint():
            assert (await lab.client(**pinned).check()).session
        async with lab.waypoint("other") as sessions:
            with pytest.raises(SessionError, match=f"waypoint 127.0.0.1 port {lab.port} over lo: wrong certificate"):
                await lab.client(**pinned).check()
            await until(lambda: sessions.counters["strangers"] == 1)
        async with lab.waypoint("elsewhere"):
            # Signed by whom we trust, but for another address.
            with pytest.raises(SessionError, match="wrong certificate"):
                await lab.client(ca_file=str(lab.folder / "elsewhere.pem")).check()

    run(work())
    assert len(lab.keys("laptop1")) == 1


def test_strangers_get_one_error_and_are_counted(lab: Lab) -> None:
    async def hello(line: bytes) -> bytes:
        context = ssl.create_default_context(cafile=str(lab.folder / "waypoint.pem"))
        reader, writer = await asyncio.open_connection("127.0.0.1", lab.port, ssl=context)
        writer.write(line)
        answer = await reader.read()
        writer.close()
        return answer

    async def work() -> None:
        async with lab.waypoint() as sessions:
            with pytest.raises(SessionError, match="it refuses: 'unknown client or wrong token'"):
                await lab.client(token="wrong").check()
            with pytest.raises(SessionError, match="unknown client or wrong token"):
                await lab.client("nobody", token="wrong").check()
            answers = await asyncio.gather(
                hello(b'{"type":"ping"}\n'),
                hello(b'{"type":"hello","version":2,"client":"laptop1","token":"x"}\n'),
                hello(b'{"type":"hello","version":1,"client":"laptop1","token":["a"]}\n'),
            )
            for answer in answers:
                assert json.loads(answer)["type"] == "error"
            # Neither an endless line nor nonsense is answered.
            assert await asyncio.gather(hello(b"x" * 70_000), hello(b"[]\n"), hello(b"\xff\xfe\n")) == [b"", b"", b""]
            _, plain = await asyncio.open_connection("127.0.0.1", lab.port)
            plain.write(b"GET / HTTP/1.0\r\n\r\n")
            await until(lambda: sessions.counters["strangers"] == 9)
            plain.close()
            assert not lab.program.asked
            assert (await lab.client().check()).session == 2

    run(work())


def test_connections_that_say_nothing_are_bounded_and_harm_nobody_else(lab: Lab) -> None:
    async def work() -> None:
        async with lab.waypoint() as sessions:
            most = LIMITS.strangers
            silent = [await asyncio.open_connection("127.0.0.1", lab.port) for _ in range(most + 50)]
            await until(lambda: sessions.counters["too_many_connections"] == 50)
            for _, writer in silent:
                writer.close()
            await until(lambda: sessions.counters["strangers"] == most + 50)
            client = lab.client()
            keeping = asyncio.create_task(client.keep())
            await until(lambda: client.connected)
            keeping.cancel()

    run(work())


def test_silent_dialers_from_many_addresses_keep_no_client_out(lab: Lab) -> None:
    async def work() -> int:
        loop = asyncio.get_running_loop()
        async with lab.waypoint():

            def friend() -> bool:
                checked = asyncio.run_coroutine_threadsafe(lab.client().check(), loop)
                try:
                    return bool(checked.result(20.0).session)
                except SessionError:
                    return False

            return await asyncio.to_thread(served_friends, lab.port, friend, friends=14)

    found: list[int] = []

    async def counted() -> None:
        found.append(await work())

    run(counted())
    assert found == [14]


def test_a_session_outlives_its_connection_and_the_waypoint(lab: Lab) -> None:
    async def work() -> None:
        async with lab.waypoint():
            client = lab.client()
            keeping = asyncio.create_task(client.keep())
            await until(lambda: client.connected)
            assert len(lab.sessions) == 1
        await until(lambda: not client.connected)
        async with lab.waypoint(port=lab.port) as sessions:
            await until(lambda: len(lab.sessions) == 2)
            assert lab.sessions[0].session == lab.sessions[1].session
            assert not any(each["type"] == "end-session" for each in lab.program.asked), "the data plane goes on"
            await sessions.sweep()
            assert sessions.document()["sessions"][0]["client"] == "laptop1"
        keeping.cancel()

    run(work())


def test_a_new_connection_replaces_the_old_one_and_both_hear_of_it(lab: Lab) -> None:
    async def work() -> None:
        async with lab.waypoint() as sessions:
            client = lab.client()
            keeping = asyncio.create_task(client.keep())
            await until(lambda: client.connected)
            await lab.client().check()
            await until(lambda: len(lab.sessions) == 2)
            assert any("replaced by a new connection" in each for each in lab.said)
            await until(lambda: client.connected)
            assert lab.sessions[0].key != lab.sessions[1].key
            assert len(sessions.document()["sessions"]) == 1
            keeping.cancel()

    run(work())


def test_a_client_without_a_token_any_more_is_sent_away(lab: Lab) -> None:
    async def work() -> None:
        async with lab.waypoint() as sessions:
            client = lab.client()
            keeping = asyncio.create_task(client.keep())
            await until(lambda: client.connected)
            sessions.tokens = {"laptop2": TOKENS["laptop2"]}
            await sessions.sweep()
            assert lab.program.asked[-1] == {"type": "end-session", "session": 2}
            await until(lambda: any("wrong token" in each for each in lab.said))
            keeping.cancel()

    run(work())


def test_a_program_that_is_started_again_needs_new_keys(lab: Lab) -> None:
    async def work() -> None:
        async with lab.waypoint() as sessions:
            client = lab.client()
            keeping = asyncio.create_task(client.keep())
            await until(lambda: client.connected)
            await lab.client("laptop2").check()
            lab.program.asked.clear()
            await sessions.renew()
            await until(lambda: len(lab.sessions) == 2)
            assert [each["key"] for each in lab.program.asked] == [lab.sessions[1].key]
            assert lab.sessions[0].key != lab.sessions[1].key
            assert "key" not in json.dumps(sessions.document())
            # And a client whose own program was started again asks for one.
            assert await client.renew(5.0)
            assert len({each.key for each in lab.sessions}) == 3
            assert lab.sessions[-1].key == lab.program.asked[-1]["key"]
            assert client.connected, "over the same connection"
            keeping.cancel()
        assert not await client.renew(0.1), "there is no waypoint any more"

    run(work())


def test_a_waypoint_that_does_not_answer_is_named(lab: Lab) -> None:
    async def work() -> None:
        async with lab.waypoint():
            pass
        with pytest.raises(SessionError, match=f"waypoint 127.0.0.1 port {lab.port} over lo: .*refused"):
            await lab.client().check()

    run(work())


@pytest.mark.parametrize(
    "answer",
    [
        b'{"type":"session"}\n',
        b'{"type":"session","session":1,"key":"00","address4":"100.72.0.2","port":6656}\n',
        b'{"type":"session","session":-1,"key":"' + b"0" * 32 + b'","address4":"100.72.0.2","port":6656}\n',
        b'{"type":"session","session":1,"key":"' + b"0" * 32 + b'","address4":"127.0.0.1","port":6656}\n',
        b'{"type":"session","session":1,"key":"' + b"0" * 32 + b'","address4":null,"port":6656}\n',
        b'{"type":"ok"}\n',
        b"[1]\n",
        b"x" * 5000,
    ],
)
def test_a_waypoint_s_answer_is_checked(lab: Lab, answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        await asyncio.sleep(0.1)
        writer.close()

    async def work() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(lab.folder / "waypoint.pem", lab.folder / "waypoint.key")
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        lab.port = server.sockets[0].getsockname()[1]
        with pytest.raises(SessionError, match=r"waypoint 127\.0\.0\.1"):
            await lab.client().check()
        server.close()

    run(work())


def test_tokens_are_read_strictly_and_never_shown(tmp_path: Path) -> None:
    text = "# clients\n\nlaptop1 0123456789abcdef\nlaptop2   fedcba9876543210\n"
    assert parse_tokens(text, "tokens") == {"laptop1": "0123456789abcdef", "laptop2": "fedcba9876543210"}
    bad = "a short\nb 0123456789abcdef\nb 0123456789abcdeg\nc 0123456789abcdef\nd\n"
    with pytest.raises(ConfigError) as caught:
        parse_tokens(bad, "tokens")
    said = [str(each) for each in (caught.value, *caught.value.more)]
    assert [each.split(": ")[1] for each in said] == ["line 1", "line 3", "line 4", "line 5"]
    assert not any("0123" in each for each in said)
    with pytest.raises(ConfigError, match="at least one line"):
        parse_tokens("# nobody\n", "tokens")
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="0600"):
        read_token(str(file))


def test_numbers_are_on_disk_before_they_are_used(tmp_path: Path) -> None:
    numbers = Numbers(tmp_path / "waypoint.json")
    assert [numbers.of(name) for name in ("a", "b", "a")] == [2, 3, 2]
    assert [Numbers(tmp_path / "waypoint.json").of(name) for name in ("b", "c")] == [3, 4]
    assert inner_addresses(2) == ("100.72.0.2", "fd68:7972:6f61:7770::2")


def test_tunnels_end_where_the_client_s_authenticated_connections_come_from(lab: Lab) -> None:
    async def work() -> None:
        async with lab.waypoint() as sessions:
            client = lab.client(plane="kernel")
            assert not await client.tell_paths({1: "lo"}, [1]), "there is no session yet"
            session = await client.check()
            assert (session.port, lab.keys("laptop1")) == (6657, []), "no packet of it goes over the program"
            assert await client.tell_paths({1: "lo"}, [1])
            assert await client.tell_paths({3: "lo"}, [3])
            [told] = lab.tunnels.installed[-1]
            assert (told["session"], told["address4"]) == (session.session, session.address4)
            assert [(each["number"], each["endpoint"], each["usable"]) for each in told["paths"]] == [
                (1, "127.0.0.1", False),
                (3, "127.0.0.1", True),
            ]
            # Neither a stranger nor a number that no interface has changes anything.
            before = len(lab.tunnels.installed)
            assert not await lab.client(token="wrong", plane="kernel").tell_paths({1: "lo"}, [1])
            assert not await client.tell_paths({17: "lo"}, [17])
            assert len(lab.tunnels.installed) == before
            # As a client with the other plane it has no tunnels.
            await lab.client().check()
            assert lab.tunnels.installed[-1] == []
            assert sessions.document()["sessions"][0]["plane"] == "agent"

    run(work())
