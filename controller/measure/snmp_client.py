"""GETBULK over pysnmp 7 (asyncio): numbers in, numbers out, no MIB files. SNMPv2c, and SNMPv3 authPriv."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from pysnmp.hlapi.v3arch.asyncio import (
    CommunityData,
    ContextData,
    ObjectIdentity,
    ObjectType,
    SnmpEngine,
    UdpTransportTarget,
    UsmUserData,
    bulk_cmd,
    usmAesCfb128Protocol,
    usmHMAC192SHA256AuthProtocol,
)
from pysnmp.proto.rfc1902 import Counter32, Counter64, Gauge32, Integer, Integer32, OctetString, TimeTicks, Unsigned32

from hyroads.controller.access_point.mib import Oid
from hyroads.controller.core.errors import HyroadsError

from .targets import Credentials, Target

MAX_ROWS = 4096
# A response that fits one Ethernet frame: about 55 varbinds of ours.
MAX_VARBINDS = 50
_NUMBERS = (Counter32, Counter64, Gauge32, Integer, Integer32, TimeTicks, Unsigned32)

Values = dict[Oid, int | bytes]


class SnmpError(HyroadsError):
    """No answer, or one that reports an error."""


class Engines:
    """SNMP engines, made when first asked for (each takes 0.1 s): what one remembers, another does not.

    Clients that have started over equally often share one; one that nobody uses any more is closed.
    """

    def __init__(self) -> None:
        self._made: dict[int, SnmpEngine] = {}
        self._users: Counter[int] = Counter()

    def take(self, turn: int) -> SnmpEngine:
        """The engine of a client that has started over ``turn`` times."""
        self._users[turn] += 1
        if turn not in self._made:
            self._made[turn] = SnmpEngine()
        return self._made[turn]

    def leave(self, turn: int) -> None:
        """A client does not need it any more."""
        self._users[turn] -= 1
        if not self._users[turn]:
            self._made.pop(turn).close_dispatcher()


class SnmpClient:
    """One access point. Clients share engines, and with them sockets."""

    def __init__(self, engines: Engines, target: Target, timeout_s: float) -> None:
        self._engines = engines
        self._turn = 0
        self._engine = engines.take(0)
        self._target = target
        self._timeout_s = timeout_s
        self._credentials = _credentials(target.credentials)
        self._transport: UdpTransportTarget | None = None
        self._objects: dict[Oid, ObjectType] = {}

    def start_over(self) -> None:
        """Forget what is remembered of the other side.

        An snmpd that was killed comes back with another engine id, or with less time since the same boot, and what it
        says is then refused for good (RFC 3414, 3.2 and 2.3).
        """
        self._engines.leave(self._turn)
        self._turn += 1
        self._engine = self._engines.take(self._turn)
        self._transport = None

    async def columns(self, scalars: Sequence[Oid], columns: Sequence[Oid], rows: int) -> Values:
        """The scalars, or exact instances, and whole columns of a table, ``rows`` of them being expected.

        One GETBULK if the guess was right: scalars as non-repeaters (from the OID before each), ``rows`` and one
        repetitions of the columns, the last of which shows that there are no more.
        """
        values: Values = {}
        open_columns = {column: column for column in columns}
        wanted = set(scalars)
        while wanted or open_columns:
            starts = [before(oid) for oid in sorted(wanted)]
            repetitions = max(1, min(rows + 1, (MAX_VARBINDS - len(starts)) // max(1, len(open_columns))))
            answer = await self._bulk(starts, list(open_columns.values()), repetitions)
            values.update({oid: value for oid, value in answer[: len(starts)] if oid in wanted and value is not None})
            wanted = set()
            self._take_columns(answer[len(starts) :], open_columns, values)
            if len(values) > MAX_ROWS:
                raise SnmpError(f"{self._target.name}: more than {MAX_ROWS} objects")
        return values

    @staticmethod
    def _take_columns(
        answer: Sequence[tuple[Oid, int | bytes | None]], open_columns: dict[Oid, Oid], values: Values
    ) -> None:
        """Sorts repetitions into columns; what left its column, or does not advance, closes it."""
        order = list(open_columns)
        closed: set[Oid] = set() if answer else set(order)
        for place, (oid, value) in enumerate(answer):
            column = order[place % len(order)]
            if column in closed:
                continue
            if value is None or oid[: len(column)] != column or oid <= open_columns[column]:
                closed.add(column)
                continue
            values[oid] = value
            open_columns[column] = oid
        for column in closed:
            del open_columns[column]

    async def _bulk(
        self, once: list[Oid], repeated: list[Oid], repetitions: int
    ) -> list[tuple[Oid, int | bytes | None]]:
        if self._transport is None:
            address = (self._target.host, self._target.port)
            self._transport = await UdpTransportTarget.create(address, timeout=self._timeout_s, retries=0)
        objects = [self._object(oid) for oid in (*once, *repeated)]
        error, status, _, bound = await bulk_cmd(
            self._engine, self._credentials, self._transport, ContextData(), len(once), repetitions, *objects,
            lookupMib=False,
        )  # fmt: skip
        if error or status:
            raise SnmpError(f"{self._target.name}: {error or status.prettyPrint()}")
        return [(tuple(name), _plain(value)) for name, value in bound]

    def _object(self, oid: Oid) -> ObjectType:
        """pysnmp's form of an OID; the fixed ones are made once."""
        if len(self._objects) > MAX_ROWS:
            self._objects.clear()
        if oid not in self._objects:
            self._objects[oid] = ObjectType(ObjectIdentity(oid))
        return self._objects[oid]


def before(oid: Oid) -> Oid:
    """An OID that GETNEXT leads from to ``oid``, whatever else there is: nothing lies between the two."""
    return (*oid[:-1], oid[-1] - 1, 0xFFFF_FFFF) if oid[-1] > 0 else oid[:-1]


def _credentials(credentials: Credentials) -> CommunityData | UsmUserData:
    if credentials.community is not None:
        return CommunityData(credentials.community, mpModel=1)  # noqa: S508  # asked for by the operator
    return UsmUserData(
        credentials.user,
        credentials.auth_password,
        credentials.priv_password,
        authProtocol=usmHMAC192SHA256AuthProtocol,
        privProtocol=usmAesCfb128Protocol,
    )


def _plain(value: Any) -> int | bytes | None:
    """The value; None for the exceptions of SNMPv2 (endOfMibView and the like) and for types that we do not poll."""
    if isinstance(value, _NUMBERS):
        return int(value)
    return bytes(value) if isinstance(value, OctetString) else None
