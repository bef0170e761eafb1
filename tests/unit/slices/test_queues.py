"""Queues of slices: from a file to ovs-vsctl's words, and from what a database says to what is missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hyroads.slices.core.errors import SliceError
from hyroads.slices.core.queues import Queue, Switch, queues_of, switch_of, to_apply, to_clear
from hyroads.slices.core.slicefile import parse

SLICES = [
    {"name": "research", "limits": {"queue": 5, "rate_out_mbps": 20, "rate_out_least_mbps": 2.5, "dscp": 10}},
    {"name": "guests", "limits": {"queue": 2, "rate_out_mbps": 5}},
    {"name": "plain"},
    {"name": "video", "limits": {"queue": 9, "dscp": 46}},
]
QUEUES = queues_of(parse({"slices": SLICES}, "x"))


def test_queues_are_those_of_the_file() -> None:
    assert (
        Queue(2, "guests", 5_000_000),
        Queue(5, "research", 20_000_000, 2_500_000, 10),
        Queue(9, "video", dscp=46),
    ) == QUEUES


def test_a_port_without_any_gets_all_in_one_call() -> None:
    [call] = to_apply(QUEUES, Switch(), ["p1"], 100)
    commands = " ".join(call).split("-- ")[1:]
    assert [command.strip() for command in commands] == [
        '--id=@q2 create queue external_ids:hyroads="guests" other_config:max-rate=5000000',
        '--id=@q5 create queue external_ids:hyroads="research" other_config:max-rate=20000000 '
        "other_config:min-rate=2500000 dscp=10",
        '--id=@q9 create queue external_ids:hyroads="video" dscp=46',
        "--id=@qos create qos type=linux-htb external_ids:hyroads=slices other_config:max-rate=100000000 "
        "queues:2=@q2 queues:5=@q5 queues:9=@q9",
        "set port p1 qos=@qos",
    ]


class Database:
    """Rows as ``ovs-vsctl --format=json list`` writes them."""

    def __init__(self) -> None:
        self.ports: dict[str, str | None] = {}
        self.qos: dict[str, dict[str, Any]] = {}
        self.queues: dict[str, dict[str, Any]] = {}

    def has(self, port: str, queues: tuple[Queue, ...], rate: str | None = None, mark: str | None = "slices") -> None:
        row = f"qos-{port}"
        config = {} if rate is None else {"max-rate": rate}
        marks = {} if mark is None else {"hyroads": mark}
        self.ports[port] = row
        at = {queue.number: f"{port}-{queue.number}" for queue in queues}
        self.qos[row] = {"type": "linux-htb", "queues": at, "other_config": config, "external_ids": marks}
        for queue in queues:
            marks = {} if mark is None else {"hyroads": queue.slice}
            self.queues[at[queue.number]] = {
                "dscp": queue.dscp, "other_config": queue.other_config, "external_ids": marks,
            }  # fmt: skip

    def switch(self) -> Switch:
        def cell(value: Any) -> Any:
            if isinstance(value, dict):
                return ["map", [[k, ["uuid", v] if v in self.queues else v] for k, v in value.items()]]
            return ["set", []] if value is None else value

        def table(rows: list[dict[str, Any]]) -> str:
            heads = list(rows[0]) if rows else []
            return json.dumps({"headings": heads, "data": [[cell(row[head]) for head in heads] for row in rows]})

        ports = [{"name": name, "qos": None if qos is None else ["uuid", qos]} for name, qos in self.ports.items()]
        rows = [[{"_uuid": ["uuid", key], **row} for key, row in each.items()] for each in (self.qos, self.queues)]
        return switch_of(table(ports), *map(table, rows))


def test_what_is_there_is_left_alone_and_what_differs_is_replaced() -> None:
    database = Database()
    database.ports = {"p2": None}
    database.has("p1", QUEUES)
    assert to_apply(QUEUES, database.switch(), ["p1"], None) == []
    [call] = to_apply(QUEUES, database.switch(), ["p1", "p2"], None)
    assert call[-4:] == ("set", "port", "p2", "qos=@qos")
    for queues, rate in ((QUEUES, 50), (QUEUES[1:], None), ((*QUEUES[:2], Queue(9, "video", dscp=34)), None)):
        [call] = to_apply(queues, database.switch(), ["p1"], rate)
        text = " ".join(call)
        assert "set port p1 qos=@qos -- destroy qos qos-p1 -- destroy queue p1-2 -- destroy queue p1-5" in text
    [call] = to_apply((), database.switch(), ["p1", "p2"], None)
    assert call[:5] == ("--", "clear", "port", "p1", "qos")


def test_clearing_takes_ours_and_nothing_else() -> None:
    database = Database()
    database.has("p1", QUEUES[:1])
    database.has("p2", (), mark=None)
    database.has("p3", QUEUES[:1])
    del database.ports["p3"]
    database.queues["lost"] = {"dscp": None, "other_config": {}, "external_ids": {"hyroads": "gone"}}
    calls = [" ".join(call) for call in to_clear(database.switch(), {"p1", "p2"})]
    assert calls == [
        "-- clear port p1 qos -- destroy qos qos-p1 -- destroy queue p1-2",
        "-- destroy qos qos-p3 -- destroy queue p3-2",
        "-- destroy queue lost",
    ]
    with pytest.raises(SliceError, match=r"port p2 has a QoS that is not ours \(qos-p2\)"):
        to_apply(QUEUES, database.switch(), ["p2"], None)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"headings": ["name"], "data": [[]]}', '{"headings": [], "data": 3}']
)
def test_other_answers_are_one_error(text: str) -> None:
    with pytest.raises(SliceError, match="ovs-vsctl answered something else"):
        switch_of(text, text, text)
