"""Which ports of a switch each slice sees, and what it is told of them: lists of records by port, and events (OpenFlow
1.3.5, sections 7.2.1, 7.3.5, 7.4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hyroads.controller.ofp import wire
from hyroads.slices.core.model import PRODUCTION, Permission, Slice, SliceModel

from .contents import records

_SIZES = {wire.MULTIPART_PORT_DESC: 64, wire.MULTIPART_PORT_STATS: 112, wire.MULTIPART_QUEUE_STATS: 40}
ADDED, DELETED, MODIFIED = 0, 1, 2


def own_records(kind: int, body: bytes, ports: Collection[int]) -> bytes:
    """The records of a multipart reply (its body) that are about ports of the slice; each starts with its port."""
    size = _SIZES[kind]
    whole = len(body) - len(body) % size
    return b"".join(
        body[at : at + size] for at in range(0, whole, size) if int.from_bytes(body[at : at + 4], "big") in ports
    )


def own_queues(body: bytes, ports: Collection[int], queue: int | None) -> bytes:
    """The records of a queue-statistics reply that are about one queue at ports of the slice."""
    found = own_records(wire.MULTIPART_QUEUE_STATS, body, ports)
    places = range(0, len(found), _SIZES[wire.MULTIPART_QUEUE_STATS])
    return b"".join(
        found[at : at + places.step] for at in places if int.from_bytes(found[at + 4 : at + 8], "big") == queue
    )


def own_queue_config(message: bytes, queue: int | None) -> bytes:
    """A reply to queue-get-config with nothing but one queue."""
    found = b"".join(
        message[at : at + length]
        for at, length in records(message, 16, size_at=8)
        if int.from_bytes(message[at : at + 4], "big") == queue
    )
    return message[:2] + (16 + len(found)).to_bytes(2, "big") + message[4:16] + found


def event_port(message: bytes) -> int:
    """The port that a port-status message (passed by ``guard.check``) is about."""
    return int.from_bytes(message[16:20], "big")


def status_messages(before: Collection[int], after: Collection[int], descriptions: dict[int, bytes]) -> list[bytes]:
    """The events for a guest whose slice lost or got ports by a change of the slices.

    ``descriptions`` are the 64 bytes of each port of the switch; a port without one is gone anyway.
    """
    lost = [(DELETED, port) for port in sorted(set(before) - set(after))]
    got = [(ADDED, port) for port in sorted(set(after) - set(before))]
    return [
        bytes((4, wire.PORT_STATUS, 0, 80, 0, 0, 0, 0, reason, 0, 0, 0, 0, 0, 0, 0)) + descriptions[port]
        for reason, port in lost + got
        if port in descriptions
    ]


LOCAL = 0xFFFFFFFE
"""The switch's own host: a slice has it only by name, or as production."""


Ports = tuple[frozenset[int], frozenset[int]]
"""What a slice sees, and which of these it owns whole."""


def ports_of_slice(each: Slice, dpid: int, names: Mapping[str, int]) -> Ports | None:
    """The ports of a slice (not production) by the names and numbers of the switch; None if it owns nothing there.

    A slice that users may join sees the ports where they may bring packets, so that no port comes or goes with a user.
    """
    of_users = each.opt_in.rules()[0] if each.opt_in is not None else None
    rules = [rule for rule in (*each.flowspace, of_users) if rule is not None and rule.on(dpid)]
    if not rules:
        return None
    present = frozenset(names.values())
    ordinary = present - {LOCAL}
    seen: set[int] = set()
    whole: set[int] = set()
    for rule in rules:
        mine = ordinary
        if rule.ports is not None:
            mine = present & {names.get(port, -1) if isinstance(port, str) else port for port in rule.ports}
        seen |= mine
        if rule is not of_users and any(not match.mask for match in rule.matches):
            whole |= mine
    return frozenset(seen), frozenset(whole) if Permission.WRITE in each.permissions else frozenset()


class SlicePorts:
    """The ports of all slices on one switch; what has not changed is not computed again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Slice, Ports | None]] = {}
        self._names: dict[str, int] = {}

    def of(self, model: SliceModel, dpid: int, names: Mapping[str, int]) -> dict[str, frozenset[int]]:
        """The ports of every slice that may own something on the switch; ``names`` are all its ports.

        Production sees those ports that no other slice owns whole.
        """
        if names != self._names:
            self._known, self._names = {}, dict(names)
        before, self._known = self._known, {}
        found: dict[str, frozenset[int]] = {}
        taken: set[int] = set()
        for name, each in model.slices.items():
            if name == PRODUCTION:
                continue
            old = before.get(name)
            mine = old[1] if old is not None and old[0] is each else ports_of_slice(each, dpid, names)
            self._known[name] = each, mine
            if mine is not None:
                found[name] = mine[0]
                taken |= mine[1]
        found[PRODUCTION] = frozenset(names.values()) - taken
        return found
