"""Queues of slices at the ports of Open vSwitch: what should be there, what is there, and the commands between. Pure.

OpenFlow 1.3 can put a packet into a queue (the slicer does so before every output of a slice that has one) but not make
queues: those are rows of Open vSwitch's database (ovs-vswitchd.conf.db(5), tables QoS and Queue). All of ours have an
``external_ids:hyroads``; rows of others are never touched.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import SliceError
from .model import SliceModel

MARK = "hyroads"
_OURS = "slices"
_TYPE = "linux-htb"
_MEGA = 1_000_000
_NO_ROW = ""

Words = tuple[str, ...]
"""One call of ovs-vsctl, without the program's name."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue at a port: rates in bit/s (None: none of its own) and the mark of what leaves by it."""

    number: int
    slice: str
    max_rate: int | None = None
    min_rate: int | None = None
    dscp: int | None = None

    @property
    def other_config(self) -> dict[str, str]:
        """The column of its row."""
        rates = {"max-rate": self.max_rate, "min-rate": self.min_rate}
        return {name: str(rate) for name, rate in rates.items() if rate is not None}

    def words(self) -> Words:
        """Creates its row, known as ``@q<number>`` in the same call."""
        found = ["--", f"--id=@q{self.number}", "create", "queue", f"external_ids:{MARK}={json.dumps(self.slice)}"]
        found += [f"other_config:{name}={rate}" for name, rate in self.other_config.items()]
        return (*found, *(() if self.dscp is None else (f"dscp={self.dscp}",)))


@dataclass(frozen=True)
class DiscoveredPort:
    """A port's QoS as it is: its row, type, other_config, whether it is ours, its queues and their rows."""

    row: str
    kind: str
    other_config: Mapping[str, str]
    ours: bool
    queues: frozenset[Queue]
    queue_rows: tuple[str, ...]


@dataclass(frozen=True)
class Switch:
    """What a database says of ports (None: no QoS), and our rows that no port has any more."""

    ports: Mapping[str, DiscoveredPort | None] = field(default_factory=dict)
    orphans: tuple[Words, ...] = ()


def queues_of(model: SliceModel) -> tuple[Queue, ...]:
    """The queues of all slices that have one, by number."""
    found = [
        Queue(
            limits.queue,
            each.name,
            _bits(limits.rate_out_mbps),
            _bits(limits.rate_out_least_mbps),
            limits.dscp,
        )
        for each in model.slices.values()
        if (limits := each.limits).queue is not None
    ]
    return tuple(sorted(found, key=lambda queue: queue.number))


def _bits(mbps: float | None) -> int | None:
    return None if mbps is None else round(mbps * _MEGA)


def to_apply(queues: Sequence[Queue], switch: Switch, ports: Iterable[str], rate_mbps: float | None) -> list[Words]:
    """The calls that give each port exactly these queues; :class:`SliceError` for a QoS that is somebody else's."""
    config = {} if rate_mbps is None else {"max-rate": str(_bits(rate_mbps))}
    calls: list[Words] = []
    for port in ports:
        there = switch.ports.get(port)
        if there is not None and not there.ours:
            raise SliceError(f"port {port} has a QoS that is not ours ({there.row}): remove it, or leave the port out")
        if not queues:
            calls += [] if there is None else [_removal(port, there)]
        elif there is None or (there.kind, there.queues, there.other_config) != (_TYPE, frozenset(queues), config):
            calls.append(_creation(port, queues, config, there))
    return calls + list(switch.orphans)


def to_clear(switch: Switch, ports: Collection[str]) -> list[Words]:
    """The calls that take all of ours away from these ports, and what is left of ports that are gone."""
    mine = [(port, there) for port, there in switch.ports.items() if port in ports and there is not None and there.ours]
    return [_removal(port, there) for port, there in mine] + list(switch.orphans)


def _creation(port: str, queues: Sequence[Queue], config: Mapping[str, str], old: DiscoveredPort | None) -> Words:
    words = ["--", "--id=@qos", "create", "qos", f"type={_TYPE}", f"external_ids:{MARK}={_OURS}"]
    words += [f"other_config:{name}={value}" for name, value in config.items()]
    words += [f"queues:{queue.number}=@q{queue.number}" for queue in queues]
    made = tuple(word for queue in queues for word in queue.words())
    gone = () if old is None else _destruction(old.row, old.queue_rows)
    return (*made, *words, "--", "set", "port", port, "qos=@qos", *gone)


def _removal(port: str, there: DiscoveredPort) -> Words:
    return ("--", "clear", "port", port, "qos", *_destruction(there.row, there.queue_rows))


def _destruction(row: str, queue_rows: Iterable[str]) -> Words:
    first = () if row == _NO_ROW else ("--", "destroy", "qos", row)
    return (*first, *(word for each in queue_rows for word in ("--", "destroy", "queue", each)))


# -- what a database says ---------------------------------------------------------------------------------------------

QUESTIONS: tuple[Words, ...] = (
    ("--format=json", "--columns=name,qos", "list", "port"),
    ("--format=json", "--columns=_uuid,type,queues,other_config,external_ids", "list", "qos"),
    ("--format=json", "--columns=_uuid,dscp,other_config,external_ids", "list", "queue"),
)
"""What to ask ovs-vsctl; :func:`switch_of` reads the three answers."""


def switch_of(ports: str, qos: str, queues: str) -> Switch:
    """From the answers to :data:`QUESTIONS`; :class:`SliceError` if they are none."""
    try:
        every = {row["_uuid"]: row for row in _rows(queues)}
        known = {row["_uuid"]: _found(row, every) for row in _rows(qos)}
        of_port = {str(row["name"]): row["qos"] for row in _rows(ports)}
        at = {port: known[row] if isinstance(row, str) else None for port, row in of_port.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SliceError(f"ovs-vsctl answered something else than rows: {error!r:.100}") from error
    held = {there.row for there in at.values() if there is not None}
    used = {row for there in known.values() for row in there.queue_rows}
    orphans = [_destruction(row, there.queue_rows) for row, there in known.items() if there.ours and row not in held]
    lost = [row for row, each in every.items() if MARK in each["external_ids"] and row not in used]
    return Switch(at, (*orphans, *((_destruction(_NO_ROW, lost),) if lost else ())))


def _found(row: Mapping[str, Any], queues: Mapping[str, Mapping[str, Any]]) -> DiscoveredPort:
    mine = {int(number): each for number, each in row["queues"].items()}
    return DiscoveredPort(
        row["_uuid"],
        row["type"],
        row["other_config"],
        row["external_ids"].get(MARK) == _OURS,
        frozenset(_queue(number, queues[each]) for number, each in mine.items()),
        tuple(mine[number] for number in sorted(mine)),
    )


def _queue(number: int, row: Mapping[str, Any]) -> Queue:
    rates = row["other_config"]
    known = {name: int(rates[name]) if name in rates else None for name in ("max-rate", "min-rate")}
    dscp = row["dscp"] if isinstance(row["dscp"], int) else None
    return Queue(number, row["external_ids"].get(MARK, ""), known["max-rate"], known["min-rate"], dscp)


def _rows(text: str) -> list[dict[str, Any]]:
    document = json.loads(text)
    heads = document["headings"]
    return [dict(zip(heads, map(_value, row), strict=True)) for row in document["data"]]


def _value(cell: Any) -> Any:
    """OVSDB's notation (RFC 7047, section 5.1): maps as dicts, rows as their ids, a set of nothing as a list."""
    if not isinstance(cell, list):
        return cell
    kind, value = cell
    if kind == "map":
        return {_value(name): _value(each) for name, each in value}
    return [_value(each) for each in value] if kind == "set" else value
