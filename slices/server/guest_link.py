"""The slicer's end of one connection to a controller of a slice: there the slicer plays the switch."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from hyroads.controller.ofp import wire
from hyroads.controller.ofp.handshake import HELLO, HELLO_FAILED, speaks_1_3
from hyroads.slices.core.errors import SliceError
from hyroads.slices.core.model import Controller
from hyroads.slices.native.layout import Sent
from hyroads.slices.proxy.session import FastGuest, SwitchSession, Tenant

from .stream import MessageStream
from .switch_link import SwitchLink

if TYPE_CHECKING:
    from .slicer import Slicer

LOG = logging.getLogger("hyroads.slicer")

CONNECT_WITHIN_S = 10.0
FIRST_RETRY_S, LAST_RETRY_S = 0.5, 15.0
LASTED_S = 1.0
_HIGH_WATER = 1 << 18
_MOST_WAITING = 1 << 23
_PACKET_IN = 10
_NUMBERED = frozenset({15, 29})
"""Group-mod, meter-mod."""

_numbers = itertools.count(1)


class GuestLink(MessageStream):
    """HELLO first; then whatever the session makes of each message."""

    def __init__(self, switch: SwitchLink, session: SwitchSession, tenant: Tenant, slicer: Slicer) -> None:
        super().__init__(switch.patience_s, slicer.relay)
        self.number = next(_numbers)
        self.switch = switch
        self.session = session
        self.tenant = tenant
        self.joined = False
        self.address = ""
        self._slicer = slicer
        self._resume: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def opened(self) -> None:
        """Say hello."""
        self.address = self.name
        self.name = f"slice {self.tenant.name} at {self.name} for switch {self.switch.dpid:#x}"
        self.limit(_HIGH_WATER)
        self._deadline = self.loop.call_later(CONNECT_WITHIN_S, self.end, "no HELLO in time")
        self.send(HELLO)
        if self.switch.full:
            self.hold("switch")

    def lost(self) -> None:
        """The connection is gone."""
        self.leave()

    def leave(self) -> None:
        """Its rules stay, its answers are nobody's."""
        for timer in (self._resume, self._deadline):
            if timer is not None:
                timer.cancel()
        if self.joined:
            self.joined = False
            del self.switch.guests[self.number]
            self.session.leave(self.number)
            self._slicer.guest_told(self, "disconnected")
        if self.transport is not None:
            self.transport.close()

    def full_changed(self) -> None:
        """Who does not read answers may not ask."""
        (self.hold if self.full else self.release)("reader")

    def message(self, message: bytes) -> None:
        """One message of the guest."""
        if not self.joined:
            self._hello(message)
            return
        out = self.session.from_guest(self.number, message, self.loop.time())
        for _, each in out.guests:
            self.out.append(each)
        if out.switch:
            self.switch.out += out.switch
            if message[1] in _NUMBERED:
                self._slicer.dirty.set()
            self.paced()

    def paced(self) -> None:
        """Read no more until the slice may send again."""
        pause_s = self.session.pause_s(self.number, self.loop.time()) if self.joined else 0.0
        if pause_s > 0:
            self.hold("pace")
            self._resume = self.loop.call_later(pause_s, self.release, "pace")

    def _asked(self, xid: int) -> Sent | None:
        return None if self._relay is None else self._relay.asked(self, xid)

    def _hello(self, message: bytes) -> None:
        if message[1] != wire.HELLO or not speaks_1_3(message):
            self.send(HELLO_FAILED)
            raise SliceError("expected a controller that speaks OpenFlow 1.3")
        if self._deadline is not None:
            self._deadline.cancel()
        self.joined = True
        self.switch.guests[self.number] = self
        fast = FastGuest(self.line, self._asked) if self.can_be_fast else None
        self.session.join(self.number, self.tenant.view.number, fast)
        self.go_fast()
        LOG.info("%s: connected", self.name)
        self._slicer.guest_told(self, "connected")

    def turn_ends(self) -> None:
        """Send to the switch, and what was refused or answered at once to the guest."""
        self.switch.flush()
        self.flush()

    def tell(self, message: bytes) -> None:
        """A message for the guest; packet-ins are left out while it does not read."""
        if self.full:
            if message[1] == _PACKET_IN:
                self.tenant.dropped_packet_ins += 1
                return
            if self.waiting_bytes > _MOST_WAITING:
                self.end("it does not read")
                return
        self.out.append(message)


async def keep_connected(
    controller: Controller, context: Callable[[], ssl.SSLContext], make: Callable[[], GuestLink]
) -> None:
    """Dial for ever, again later after a failure; the task is cancelled when nobody wants the connection any more."""
    loop = asyncio.get_running_loop()
    wait_s, told = FIRST_RETRY_S, False
    link = None
    try:
        while True:
            began_s = loop.time()
            try:
                secured = context() if controller.tls else None
                async with asyncio.timeout(CONNECT_WITHIN_S):
                    _, link = await loop.create_connection(make, controller.host, controller.port, ssl=secured)
                told = False
                await asyncio.shield(link.closed)
            except (OSError, TimeoutError) as error:
                if not told:
                    LOG.warning("controller %s: %s", controller, error or type(error).__name__)
                told = True
            link = None
            wait_s = FIRST_RETRY_S if loop.time() - began_s > LASTED_S else min(2 * wait_s, LAST_RETRY_S)
            await asyncio.sleep(wait_s * random.uniform(0.8, 1.2))  # noqa: S311 - only so that not all dial at once
    finally:
        if link is not None and link.transport is not None:
            link.transport.close()
