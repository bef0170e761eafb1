"""The controller's side of OpenFlow's handshake, up to the switch's FEATURES_REPLY. Pure: bytes in, bytes out.

Nothing but HELLO, ECHO_REQUEST, ERROR and FEATURES_REPLY is looked at, and no parser of anybody else sees what a
stranger sends (OpenFlow Switch Specification 1.3.5, section 6.3.1).
"""

from __future__ import annotations

from hyroads.controller.core.errors import OpenFlowError

from . import guard, wire

HELLO = bytes((4, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 1 << 4))
"""With the bitmap that says: 1.3 only."""
PLAIN_HELLO = wire.message(b"", 1, wire.HELLO)
HELLO_FAILED = bytes((4, 1, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0))
FEATURES_REQUEST = wire.message(b"", 2, wire.FEATURES_REQUEST)
MOST_BYTES = 1 << 18
"""Of messages that are passed over, all together."""
MOST_HELLO_BYTES = 1 << 10
_DPID, _AUXILIARY = slice(8, 16), 21


def speaks_1_3(hello: bytes) -> bool:
    """Whether a HELLO offers OpenFlow 1.3: by its bitmap, else by its version, which is the highest."""
    at = 8
    while at + 8 <= len(hello):
        kind, length = int.from_bytes(hello[at : at + 2], "big"), hello[at + 2] << 8 | hello[at + 3]
        if length < 4:
            break
        if kind == 1:
            return bool(int.from_bytes(hello[at + 4 : at + 8], "big") >> 4 & 1)
        at += (length + 7) // 8 * 8
    return hello[0] >= wire.VERSION


def needs(message: bytes) -> bool:
    """Whether a message is looked at between FEATURES_REPLY and the descriptions of ports, which end the handshake."""
    kind = message[1]
    if kind == wire.MULTIPART_REPLY:
        return int.from_bytes(message[8:10], "big") == wire.MULTIPART_PORT_DESC
    return kind in {wire.HELLO, wire.FEATURES_REPLY, wire.ECHO_REQUEST, wire.ECHO_REPLY}


class Handshake:
    """``features`` is the switch's FEATURES_REPLY once that has come, and ``rest`` what came behind it."""

    def __init__(self) -> None:
        self.features = b""
        self.rest = b""
        self._data = bytearray()
        self._said_hello = False
        self._taken = 0

    @property
    def dpid(self) -> int:
        """The switch's datapath id."""
        return int.from_bytes(self.features[_DPID], "big")

    def take(self, data: bytes) -> bytes:
        """What to answer to bytes of the switch; OpenFlowError if they are no handshake."""
        self._taken += len(data)
        self._data += data
        answers = []
        while not self.features and (message := self._message()):
            answers.append(self._answer(message))
        if self.features:
            self.rest = bytes(self._data)
        elif self._taken > MOST_BYTES:
            raise OpenFlowError(f"handshake: {self._taken} bytes without FEATURES_REPLY")
        return b"".join(answers)

    def _message(self) -> bytes:
        """The next whole one; none yet."""
        if len(self._data) < wire.HEADER.size:
            return b""
        _, kind, length, _ = wire.HEADER.unpack_from(self._data)
        if length < wire.HEADER.size:
            raise OpenFlowError(f"handshake: a message of {length} bytes")
        if not self._said_hello and (kind != wire.HELLO or length > MOST_HELLO_BYTES):
            raise OpenFlowError(f"handshake: type {kind} of {length} bytes, expected HELLO")
        if len(self._data) < length:
            return b""
        message = bytes(self._data[:length])
        del self._data[:length]
        return message

    def _answer(self, message: bytes) -> bytes:
        kind = message[1]
        if not self._said_hello:
            guard.check(message)
            if not speaks_1_3(message):
                raise OpenFlowError("handshake: expected a switch that speaks OpenFlow 1.3")
            self._said_hello = True
            return FEATURES_REQUEST
        if kind == wire.FEATURES_REPLY:
            guard.check(message)
            if message[_AUXILIARY]:
                raise OpenFlowError("handshake: expected a main connection, got an auxiliary one")
            self.features = message
        elif kind == wire.ECHO_REQUEST:
            return message[:1] + bytes((wire.ECHO_REPLY,)) + message[2:]
        elif kind == wire.ERROR:
            raise OpenFlowError(f"handshake: the switch answers with an error, {message[8:12].hex()}")
        return b""
