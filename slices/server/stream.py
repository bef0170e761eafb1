"""One OpenFlow connection: whole messages in, bounded buffers out, and reading that can be held from several sides."""

from __future__ import annotations

import asyncio
import ctypes
import logging
from typing import cast

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.ofp import wire
from hyroads.slices.native.layout import Line
from hyroads.slices.native.relay import Relay

LOG = logging.getLogger("hyroads.slicer")

_MOST = 1 << 16
_ROOM = 2 * _MOST
ECHO_AFTER_S = 5.0
_FAST = frozenset({wire.PACKET_IN, wire.FLOW_MOD})
"""What the fast path may handle."""
_ECHO_REQUEST = bytes((4, 2, 0, 8, 0, 0, 0, 0))


class MessageStream(asyncio.BufferedProtocol):
    """Cuts what comes into messages. A subclass has ``message``, ``opened``, ``lost`` and maybe ``full_changed``."""

    def __init__(self, patience_s: float, relay: Relay | None = None) -> None:
        """A peer that is silent for ``patience_s`` is given up. ``relay`` is the fast path, if there is one."""
        self.patience_s = patience_s
        self._relay = relay
        self._fast = False
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.name = "a peer"
        self.closed = self.loop.create_future()
        self.full = False
        """More is waiting to be sent than should be: whatever can be left out is."""
        self.out: list[bytes] = []
        """Sent together at the end of a turn, by ``flush``."""
        self._buffer = bytearray(_ROOM)
        self._view = memoryview(self._buffer)
        exported = (ctypes.c_char * _ROOM).from_buffer(self._buffer)
        self.line = Line(ctypes.addressof(exported), _ROOM, fd=-1, heard_s=self.loop.time())
        """What has come, and what the fast path may do."""
        self._exported = exported
        self._holds: set[str] = set()
        self._declined = False
        self._echo: asyncio.TimerHandle | None = None

    # -- for subclasses -----------------------------------------------------------------------------------------------

    def opened(self) -> None:
        """The connection is there."""

    def message(self, message: bytes) -> None:
        """One whole message; :class:`HyroadsError` ends the connection."""
        raise NotImplementedError

    def turn_ends(self) -> None:
        """Everything that had come was handled: send what it led to."""
        self.flush()

    def lost(self) -> None:
        """The connection is gone."""

    def full_changed(self) -> None:
        """``full`` is another."""

    # -- out ----------------------------------------------------------------------------------------------------------

    def limit(self, high: int) -> None:
        """From how many waiting bytes on the stream is full."""
        cast(asyncio.Transport, self.transport).set_write_buffer_limits(high=high, low=high // 4)

    def send(self, data: bytes) -> None:
        """Send at once; nothing if the connection is gone."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)
            if self._fast and self.transport.get_write_buffer_size() and self._relay is not None:
                self._relay.blocked(self)

    def flush(self) -> None:
        """Send what is in ``out``."""
        if self.out:
            self.send(self.out[0] if len(self.out) == 1 else b"".join(self.out))
            self.out.clear()

    @property
    def waiting_bytes(self) -> int:
        """How much is waiting to be sent."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def end(self, why: str) -> None:
        """Close without sending what waits."""
        if self.transport is not None and not self.transport.is_closing():
            LOG.warning("%s: connection ended: %s", self.name, why)
            self.line.open = 0
            self.transport.abort()

    # -- the fast path ------------------------------------------------------------------------------------------------

    @property
    def can_be_fast(self) -> bool:
        """Whether the fast path can read and write the connection: not through TLS."""
        if self._relay is None or self.transport is None:
            return False
        return self.transport.get_extra_info("sslcontext") is None

    def go_fast(self) -> None:
        """From now on the fast path reads and writes, too."""
        if self._relay is not None and self.transport is not None and self.can_be_fast:
            self.line.fd = self.transport.get_extra_info("socket").fileno()
            self._fast = self._relay.add(self)
            self._open_or_not()

    def _open_or_not(self) -> None:
        self.line.open = self._fast and not self._holds

    def drained(self) -> bool:
        """Whether nothing waits to be sent."""
        return self.transport is not None and not self.transport.is_closing() and not self.waiting_bytes

    def paced(self) -> None:
        """The fast path has used up what the peer may send for now."""

    def work(self) -> None:
        """Go on where the fast path has stopped."""
        self._declined = True
        self._work()

    # -- holding ------------------------------------------------------------------------------------------------------

    def hold(self, why: str) -> None:
        """Read no more until released for the same reason."""
        if not self._holds and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
        self._holds.add(why)
        self._open_or_not()

    def release(self, why: str) -> None:
        """Read on, if nothing else holds."""
        if why not in self._holds:
            return
        self._holds.discard(why)
        self._open_or_not()
        self._work()
        if not self._holds and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    # -- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.name = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "a local peer"
        self._echo = self.loop.call_later(ECHO_AFTER_S, self._check_alive)
        self.opened()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if self._echo is not None:
            self._echo.cancel()
        if self._fast and self._relay is not None:
            self._relay.remove(self)
            self._fast = False
        self.line.open = 0
        self.transport = None
        if not self.closed.done():
            self.closed.set_result(None)
        self.lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: there is always room for the rest of the longest message."""
        line = self.line
        if _ROOM - line.end < _MOST:
            rest = line.end - line.start
            self._buffer[:rest] = self._buffer[line.start : line.end]
            line.start, line.end = 0, rest
        return self._view[line.end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        self.line.end += nbytes
        self._work()

    def pause_writing(self) -> None:
        """The peer reads too slowly."""
        self.full = True
        self.full_changed()

    def resume_writing(self) -> None:
        """The peer has read."""
        self.full = False
        self.full_changed()

    def _work(self) -> None:
        """Handle the whole messages there are, until something holds."""
        line, buffer, holds = self.line, self._buffer, self._holds
        line.heard_s = self.loop.time()
        declined, self._declined = self._declined, False
        try:
            while not holds and self.transport is not None:
                start = line.start
                have = line.end - start
                if have < 8:
                    break
                length = buffer[start + 2] << 8 | buffer[start + 3]
                if length < 8:
                    self.end(f"a message of {length} bytes")
                    break
                if have < length:
                    break
                if self._fast and not declined and buffer[start + 1] in _FAST and self._stepped():
                    continue
                declined = False
                line.start = start + length
                self.message(bytes(buffer[start : start + length]))
        except HyroadsError as error:
            self.end(str(error))
        except Exception:
            LOG.exception("%s: an error of the slicer's own", self.name)
            self.end("an error of the slicer's own")
        if line.start == line.end:
            line.start = line.end = 0
        self.turn_ends()

    def _stepped(self) -> bool:
        """Whether the fast path has handled messages. What they come behind is sent before."""
        if self._relay is None or not self.line.open:
            return False
        self.turn_ends()
        before = self.line.start, self.line.end
        self._relay.step(self)
        return (self.line.start, self.line.end) != before

    def _check_alive(self) -> None:
        """Ask a silent peer for a sign; end the connection if it gives none."""
        silent_s = self.loop.time() - self.line.heard_s
        if silent_s >= self.patience_s and not self._holds:
            self.end(f"silent for {silent_s:.0f} s")
            return
        if silent_s >= ECHO_AFTER_S:
            self.send(_ECHO_REQUEST)
        self._echo = self.loop.call_later(ECHO_AFTER_S, self._check_alive)
