"""A server makes no TLS session for a peer that has not sent a whole first message of TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
from hostile_peers import client_hello
from waypoint_certificates import make_certificate

from hyroads.controller.core.checking import TlsFiles
from hyroads.controller.files.tls import server_side
from hyroads.controller.framework.tls_hello import secured_streams

LIMIT = 4096


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tls-hello")
    make_certificate(made, "server", "127.0.0.1")
    return made


class Server:
    """Accepts one connection at a time; ``sessions`` counts the TLS sessions made for them."""

    def __init__(self, folder: Path) -> None:
        self.sessions = sessions = list[int]()

        class Counted(ssl.SSLObject):
            @classmethod
            def _create(cls, *given: object, **more: object) -> ssl.SSLObject:
                sessions.append(1)
                return super()._create(*given, **more)  # type: ignore[misc,no-any-return]

        self.context = server_side(TlsFiles(str(folder / "server.key"), str(folder / "server.pem")), "test")
        self.context.sslobject_class = Counted

    async def answer(self, *pieces: bytes, within_s: float = 10.0, ends: bool = False) -> type[BaseException] | None:
        """Why a peer that sends these pieces got no TLS; None: it began."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            _, peer = await asyncio.open_connection(*listener.getsockname())
            connection, _ = listener.accept()
            connection.setblocking(False)
            serving = asyncio.create_task(secured_streams(connection, self.context, within_s, LIMIT))
            for piece in pieces:
                peer.write(piece)
                await peer.drain()
                await asyncio.sleep(0)
            if ends:
                peer.close()
            try:
                await serving
            except OSError as error:
                return type(error)
            finally:
                peer.close()
        return None


@pytest.mark.parametrize(
    ("pieces", "ends"),
    [
        ((), False),
        ((), True),
        ((b"\x16\x03\x01",), True),
        ((client_hello()[:50],), False),
        ((client_hello()[:-1],), True),
        ((b"GET / HTTP/1.1\r\n\r\n",), False),
        ((b"\x16\x03\x01\xff\xff",), False),
        ((b"\x16\x03\x01\x00\x00",), False),
        ((bytes(range(256)),), False),
    ],
    ids=["silent", "ends", "head-cut", "half", "last-byte-missing", "http", "too-long", "empty", "noise"],
)
def test_peer_without_a_whole_first_message_costs_no_session(
    folder: Path, pieces: tuple[bytes, ...], ends: bool
) -> None:
    server = Server(folder)
    assert asyncio.run(server.answer(*pieces, within_s=0.1, ends=ends)) in (TimeoutError, ConnectionError)
    assert server.sessions == []


def test_whole_first_message_begins_a_handshake(folder: Path) -> None:
    server = Server(folder)
    # The peer leaves then, so the handshake fails, after it has begun.
    assert asyncio.run(server.answer(client_hello(), ends=True)) is not None
    assert server.sessions == [1]


def test_client_that_sends_its_first_message_byte_by_byte_is_served(folder: Path) -> None:
    server, client = Server(folder), ssl.create_default_context(cafile=str(folder / "server.pem"))

    async def run() -> bytes:
        ended = asyncio.Event()

        async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Between client and server: the first message in single bytes, then everything as it comes."""
            far_reader, far_writer = await asyncio.open_connection(*at)
            for byte in await reader.read(65536):
                far_writer.write(bytes((byte,)))
                await far_writer.drain()

            async def carry(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
                while data := await source.read(65536):
                    to.write(data)
                to.close()

            await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))
            ended.set()

        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            at = listener.getsockname()
            relay = await asyncio.start_server(slowly, "127.0.0.1", 0)
            where = relay.sockets[0].getsockname()
            dialling = asyncio.create_task(asyncio.open_connection(*where, ssl=client, server_hostname="127.0.0.1"))
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
            reader, writer = await secured_streams(connection, server.context, 10.0, LIMIT)
            _, mine = await dialling
            mine.write(b"hello\n")
            line = await asyncio.wait_for(reader.readline(), 10.0)
            for each in (mine, writer):
                each.close()
            await asyncio.wait_for(ended.wait(), 10.0)
            relay.close()
            return line

    assert asyncio.run(run()) == b"hello\n"
