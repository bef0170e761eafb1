"""The slicer's end of one switch's connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.core.identity import CertificateFacts
from hyroads.controller.files.tls import certificate_facts
from hyroads.controller.ofp import guard, wire
from hyroads.controller.ofp.handshake import FEATURES_REQUEST, HELLO, HELLO_FAILED, speaks_1_3
from hyroads.slices.core.errors import SliceError
from hyroads.slices.proxy.xids import FIRST_OWN

from .stream import LOG, MessageStream

if TYPE_CHECKING:
    from hyroads.slices.proxy.session import SwitchSession

    from .guest_link import GuestLink
    from .slicer import Slicer
    from .switch_port import Place

HANDSHAKE_WITHIN_S = 10.0
ANSWER_WITHIN_S = 30.0
_HIGH_WATER = 1 << 20
_CHUNK = 1 << 18
_PORT_STATUS = 12
_MOST_COMPLAINTS = 20
_LOOK_S = 0.01
_ECHO_REQUEST = bytes((4, wire.ECHO_REQUEST, 0, 8, 0, 0, 0, 0))


@dataclass(eq=False)
class Exchange:
    """Messages of the slicer's own, until the barrier behind them is answered."""

    done: asyncio.Future[None]
    last_xid: int = 0
    replies: list[bytes] = field(default_factory=list)
    errors: list[bytes] = field(default_factory=list)


class SwitchLink(MessageStream):
    """First the handshake, then the slicer's own exchanges, then ``session`` as well."""

    def __init__(self, slicer: Slicer, patience_s: float, place: Place) -> None:
        super().__init__(patience_s, slicer.relay)
        self._slicer, self._place = slicer, place
        self.peer = "a local peer"
        self.features = b""
        self.session: SwitchSession | None = None
        self.guests: dict[int, GuestLink] = {}
        self.complaints = 0
        self.early: list[bytes] = []
        """Events of ports from before there were slices."""
        self._stage: Callable[[bytes], None] = self._hello
        self._next_xid = FIRST_OWN
        self._asked: dict[int, Exchange] = {}
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def dpid(self) -> int:
        """The switch's datapath id."""
        return int.from_bytes(self.features[8:16], "big")

    # -- coming and going ---------------------------------------------------------------------------------------------

    def opened(self) -> None:
        """Say hello, unless the certificate is not taken here."""
        self.limit(_HIGH_WATER)
        self.peer = self.name
        if problem := self.certificate_fault():
            self.end(problem)
            return
        self._deadline = self.loop.call_later(HANDSHAKE_WITHIN_S, self.end, "no handshake in time")
        self.send(HELLO)

    @property
    def certificate(self) -> CertificateFacts | None:
        """The switch's certificate; None if the port needs none."""
        secured = None if self.transport is None else self.transport.get_extra_info("ssl_object")
        shown = None if secured is None else secured.getpeercert(binary_form=True)
        return None if shown is None else certificate_facts(shown)

    def certificate_fault(self) -> str:
        """Why the switch's certificate is not taken, or not any more; "" if it is."""
        facts = self.certificate
        return "" if facts is None else self._slicer.certificates.fault(facts)

    def authenticated(self) -> bool:
        """It has shown which switch it is. False: its place is another's by now."""
        return self._place.authenticated(f"{self.dpid:#x}")

    async def lives(self, within_s: float) -> bool:
        """Whether the switch says anything within this time when it is asked for an echo."""
        before, until_s = self.line.heard_s, self.loop.time() + within_s
        self.send(_ECHO_REQUEST)
        while self.transport is not None and not self.transport.is_closing():
            if self.line.heard_s != before:
                # What it had said before may come first, and its end behind it.
                await asyncio.sleep(_LOOK_S)
                return self.transport is not None and not self.transport.is_closing()
            if self.loop.time() > until_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return False

    def lost(self) -> None:
        """Nobody answers any more."""
        if self._deadline is not None:
            self._deadline.cancel()
        for exchange in set(self._asked.values()):
            if not exchange.done.done():
                exchange.done.set_exception(SliceError(f"{self.name} is gone"))
                exchange.done.exception()
        self._asked.clear()
        self._place.left()
        self._slicer.switch_left(self)

    def full_changed(self) -> None:
        """Who sends to this switch waits while it does not read."""
        for guest in list(self.guests.values()):
            (guest.hold if self.full else guest.release)("switch")

    # -- messages -----------------------------------------------------------------------------------------------------

    def message(self, message: bytes) -> None:
        """By the stage that the connection is in. A malformed message is dropped: guests must not end connections."""
        try:
            self._stage(message)
        except HyroadsError as error:
            if self.session is None:
                raise
            self.complaints += 1
            if self.complaints <= _MOST_COMPLAINTS:
                LOG.warning("switch %#x: message dropped: %s", self.dpid, error)

    def _hello(self, message: bytes) -> None:
        if message[1] != wire.HELLO or not speaks_1_3(message):
            self.send(HELLO_FAILED)
            raise SliceError("expected a switch that speaks OpenFlow 1.3")
        guard.check(message)
        self._stage = self._features
        self.send(FEATURES_REQUEST)

    def _features(self, message: bytes) -> None:
        guard.check(message)
        if self._echoed(message) or message[1] != wire.FEATURES_REPLY:
            return
        if message[21]:
            raise SliceError("expected a main connection, got an auxiliary one")
        self.features = message
        self.name = f"switch {self.dpid:#x}"
        if self._deadline is not None:
            self._deadline.cancel()
        self._stage = self._own
        self._slicer.switch_arrived(self)

    def _echoed(self, message: bytes) -> bool:
        if message[1] == wire.ECHO_REQUEST:
            self.send(message[:1] + bytes((wire.ECHO_REPLY,)) + message[2:])
        return message[1] == wire.ECHO_REQUEST

    def _own(self, message: bytes) -> None:
        guard.check(message)
        if not self._echoed(message):
            self._answered(message)

    def serve(self, session: SwitchSession) -> None:
        """Guests may come."""
        self.session = session
        self._stage = self._served
        self.go_fast()

    def _served(self, message: bytes) -> None:
        session = self.session
        if session is None:
            return
        out = session.from_switch(message, self.loop.time())
        for guest, each in out.guests:
            self.guests[guest].tell(each)
        if out.switch:
            self.out += out.switch
        for each in out.own:
            self._answered(each)

    def turn_ends(self) -> None:
        """Send everywhere."""
        for guest in list(self.guests.values()):
            if guest.out:
                guest.flush()
        self.flush()

    # -- the slicer's own ---------------------------------------------------------------------------------------------

    def _answered(self, message: bytes) -> None:
        if message[1] == _PORT_STATUS:
            self._slicer.ports_changed(self, message)
            return
        exchange = self._asked.get(int.from_bytes(message[4:8], "big"))
        if exchange is None:
            return
        if message[1] == wire.ERROR:
            exchange.errors.append(message)
        elif message[1] == wire.MULTIPART_REPLY:
            exchange.replies.append(message)
        elif int.from_bytes(message[4:8], "big") == exchange.last_xid and not exchange.done.done():
            exchange.done.set_result(None)

    async def exchange(self, messages: Iterable[bytes]) -> Exchange:
        """Send messages and a barrier, and wait for its answer; :class:`SliceError` if the switch goes."""
        found = Exchange(self.loop.create_future())
        xids, parts, size = [], [], 0
        for message in (*messages, wire.barrier_request(0)):
            xid = self._next_xid
            self._next_xid = xid + 1 if xid < 0xFFFF_FFFE else FIRST_OWN
            self._asked[xid] = found
            found.last_xid = xid
            xids.append(xid)
            parts.append(message[:4] + xid.to_bytes(4, "big") + message[8:])
            size += len(message)
            if size > _CHUNK:
                self.send(b"".join(parts))
                parts, size = [], 0
                found.last_xid = 0
                await asyncio.sleep(0)
        self.send(b"".join(parts))
        if self.transport is None:
            raise SliceError(f"{self.name} is gone")
        try:
            await asyncio.wait_for(found.done, ANSWER_WITHIN_S)
        except TimeoutError:
            self.end(f"no answer to a barrier in {ANSWER_WITHIN_S:.0f} s")
            raise SliceError(f"{self.name} did not answer") from None
        finally:
            for xid in xids:
                self._asked.pop(xid, None)
        return found
