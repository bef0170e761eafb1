"""Routed MPTCP connections over the end of a controller: what is saved, and what the next one makes of it."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import mptcp_frames as frames
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from test_mptcp_service import C1, C2, KEY, NETWORK, World
from test_mptcp_service import Q as SECOND

from hyroads.controller.core.mptcp_connections import Connection
from hyroads.controller.core.subflows import subflow_flows
from hyroads.controller.model.state import TopologyContext
from hyroads.controller.services.mptcp_ends import SubflowEnds
from hyroads.controller.services.mptcp_saved import MAX_SUBFLOWS, SavedConnections, connections_from

CONTEXT = TopologyContext.of(NETWORK)


def joined() -> tuple[World, str]:
    """A connection with two subflows."""
    world = World()
    world.connect()
    world.join()
    [name] = world.service.names()
    return world, name


def saved(world: World, name: str) -> list[dict[str, Any]]:
    """As it is read from a file."""
    found: list[dict[str, Any]] = json.loads(json.dumps(world.service.to_save([name, "gone"])))
    return found


def restored(documents: list[dict[str, Any]], now_s: float, most: int = 9) -> list[Connection]:
    found, problems = connections_from(documents, CONTEXT, now_s, most)
    assert not problems
    return found


def test_the_next_controller_knows_the_connection_and_tells_nobody_of_it() -> None:
    old, name = joined()
    document, group = old.service.document(name), old.service.group(name)
    new = World()
    new.connect(port=7, key=b"server-2")
    new.now_s += 500.0
    new.service.become(restored(saved(old, name), new.now_s))
    assert new.service.names() == [name] and new.service.group(name) == group and new.told() == []
    assert saved(new, name) == saved(old, name)
    timeless = {"since_s", "heard_s", "subflows"}
    said = new.service.document(name)
    assert {k: v for k, v in said.items() if k not in timeless} == {
        k: v for k, v in document.items() if k not in timeless
    }
    # It goes on as any other: another subflow joins under a number of its own, and the client's own token counts.
    new.syn(frames.join(KEY), "b", SECOND, ip=C2, port=2000)
    new.answer(frames.join_answer(), SECOND, C2, 2000)
    [(kind, told)] = new.told()
    assert kind == "mptcp.subflow_joined" and told["subflows"] == 3
    known = new.service.group(name)
    assert known is not None and [subflow.number for subflow in known.subflows] == [0, 1, 2]
    # And a handshake with the same addresses and ports ends the subflow that had them.
    new.syn(b"", ip=C1)
    assert [kind for kind, _ in new.told()] == ["mptcp.subflow_left"]


def test_who_leads_hears_it_from_now_on() -> None:
    old, name = joined()
    new = World(forget_s=100.0)
    new.service.become(restored(saved(old, name), new.now_s))
    new.now_s += 500.0
    new.service.lead()
    new.later(90.0)
    assert new.service.names() == [name]
    new.later(20.0)
    assert new.service.names() == []


def test_rules_that_copy_ends_are_those_that_switches_have() -> None:
    entries = []
    world, name = joined()
    documents = saved(world, name)
    for one in (world, World()):
        ends = SubflowEnds(one.service.port, one.service.table, lambda flow: None, lambda: 0.0)
        one.service.become(restored(documents, 0.0))
        ends.follow(name, True)
        # Told again, as whenever another connection comes, it is the same.
        one.service.become(restored(documents, 0.0))
        ends.follow(name, True)
        entries.append({node: ends.entries(node) for node in ("a", "b")})
        assert ends.count == 2
    assert entries[0] == entries[1] and sum(map(len, entries[0].values())) == 4 + 2


def test_flows_are_the_very_objects_of_before_as_long_as_they_are_the_same() -> None:
    world, name = joined()
    reader, group = SavedConnections(9), world.service.group(name)
    assert group is not None
    flows = [reader.flows(reader.of(saved(world, name), CONTEXT, 0.0)[0], {}) for _ in range(2)]
    assert flows[0] == subflow_flows(group) and all(a is b for a, b in zip(*flows, strict=True))
    # A user's flow of the same id comes first.
    taken = flows[0][0].id
    assert [flow.id for flow in reader.flows(reader.of(saved(world, name), CONTEXT, 0.0)[0], {taken: 1})] == [
        flow.id for flow in flows[0][1:]
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "0"}, {"id": 3}, {"token": -1}, {"token": 2**32}, {"version": 2}, {"client_token": "x"}, {"client": ""},
        {"peer": "x" * 81}, {"begun": 1}, {"begun": None}, {"subflows": []}, {"subflows": {}}, {"subflows": [7]},
        {"subflows.0": {"key": "zz"}}, {"subflows.0": {"key": "00" * 13}}, {"subflows.0": {"number": 1}},
        {"subflows.0": {"number": -1}}, {"subflows.0": {"at": ["gone", "x", "p"]}},
        {"subflows.0": {"at": ["a", "x", "gone"]}}, {"subflows.0": {"at": ["a", 3, None]}},
        {"subflows.0": {"peer_at": ["b"]}}, {"subflows.0": {"address_id": 256}}, {"subflows.0": {"backup": None}},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_left_out(changes: dict[str, Any]) -> None:
    world, name = joined()
    [sound] = saved(world, name)
    wrong = copy.deepcopy(sound)
    for key, value in changes.items():
        if key == "subflows.0":
            wrong["subflows"][0].update(value)
        else:
            wrong[key] = value
    found, problems = connections_from([wrong, sound], CONTEXT, 0.0, 9)
    assert [each.id for each in found] == [name]
    assert [problem.place for problem in problems] == ["services.connections[0]"]


def test_bounds() -> None:
    world, name = joined()
    [sound] = saved(world, name)
    assert connections_from([sound], CONTEXT, 0.0, 0) == ([], [])
    assert connections_from("nonsense", CONTEXT, 0.0, 9) == ([], [])
    other = {**sound, "id": "00000001", "token": 1}
    for documents in ([sound, sound], [sound, other]):
        found, problems = connections_from(documents, CONTEXT, 0.0, 9)
        assert len(found) == len(problems) == 1
    many = [{**sound["subflows"][0], "number": n, "key": f"{n:024x}"} for n in range(MAX_SUBFLOWS + 1)]
    found, problems = connections_from([{**sound, "begun": 99, "subflows": many}], CONTEXT, 0.0, 9)
    assert (found, len(problems)) == ([], 1)
    apart = {**other, "subflows": [{**one, "key": "ff" + one["key"][2:]} for one in sound["subflows"]]}
    assert len(restored([sound, apart], 0.0)) == 2
    found, problems = connections_from([sound, apart], CONTEXT, 0.0, 1)
    assert ([one.id for one in found], len(problems)) == ([name], 1)
