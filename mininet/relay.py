"""Publishes a TCP port of the emulation's namespace: accepts on an inherited socket of the host, dials inside.

python -m hyroads.mininet.relay --fd N --port PORT
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket

CHUNK_BYTES = 1 << 16
DIAL_TIMEOUT_S = 5.0
# More than any dashboard needs, and few enough that a runaway client can't exhaust descriptors.
MAX_CONNECTIONS = 64


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(CHUNK_BYTES):
        sink.write(data)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()


async def serve(listener: socket.socket, port: int) -> None:
    """Relays every connection to 127.0.0.1:``port`` until cancelled."""
    slots = asyncio.Semaphore(MAX_CONNECTIONS)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with slots:
            with contextlib.suppress(OSError, TimeoutError):
                inside = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), DIAL_TIMEOUT_S)
                try:
                    await asyncio.gather(_copy(reader, inside[1]), _copy(inside[0], writer))
                finally:
                    inside[1].close()
            writer.close()

    server = await asyncio.start_server(handle, sock=listener)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    asyncio.run(serve(socket.socket(fileno=arguments.fd), arguments.port))


if __name__ == "__main__":
    main()
