"""What begins TLS is awaited before a TLS session is made, for servers with ``asyncio``.

A session costs a quarter of a mebibyte and a fifth of a millisecond. Peers that say nothing, begin and stop, or say
what is no TLS should not cause that.
"""

from __future__ import annotations

import asyncio
import socket
import ssl

_HEAD, _HANDSHAKE, _LONGEST = 5, 22, 1 << 14
"""The head of a record, its type in a handshake, and its greatest length (RFC 8446, section 5.1)."""


async def secured_streams(
    connection: socket.socket, context: ssl.SSLContext, within_s: float, limit: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """TLS over an accepted connection, as a server, once the client has begun it. Waiting for that may take
    ``within_s`` seconds, and so may the handshake. ``limit`` bounds the lines of the reader in bytes. OSError; the
    connection is closed then.
    """
    try:
        await tls_begun(connection, within_s)
    except BaseException:
        connection.close()
        raise
    # From here on its transport closes it.
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, connection, ssl=context, ssl_handshake_timeout=within_s
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def tls_begun(connection: socket.socket, within_s: float) -> None:
    """Wait up to ``within_s`` seconds until a client has sent a whole record of a handshake. It stays in the socket.
    ConnectionError if the client sends something else or ends; TimeoutError.
    """
    async with asyncio.timeout(within_s):
        head = await _peeked(connection, _HEAD)
        length = int.from_bytes(head[3:], "big")
        if head[0] != _HANDSHAKE or head[1] != 3 or not 0 < length <= _LONGEST:
            raise ConnectionError("another protocol")
        await _peeked(connection, _HEAD + length)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def _peeked(connection: socket.socket, size: int) -> bytes:
    """The first ``size`` bytes, once they are there; the event loop is not woken by fewer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
    loop = asyncio.get_running_loop()
    came: asyncio.Future[None] = loop.create_future()

    def notice() -> None:
        if not came.done():
            came.set_result(None)

    descriptor = connection.fileno()
    loop.add_reader(descriptor, notice)
    try:
        await came
    finally:
        loop.remove_reader(descriptor)
    data = connection.recv(size, socket.MSG_PEEK)
    if len(data) < size:
        raise ConnectionError("ended before it began")
    return data
