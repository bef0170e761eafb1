"""What survives a restart: numbers, path ids, flows."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.agents.frame_keys import is_secret
from hyroads.controller.core.addressing import FIRST_FLOW, Numbers
from hyroads.controller.core.errors import ConfigError, PlanningError
from hyroads.controller.core.mappings import differing, patched
from hyroads.controller.core.network import FlowSpec, Place, Policy, Utility
from hyroads.controller.files.documents import read_file
from hyroads.controller.files.state import Origin, text_of
from hyroads.controller.model.handover import Constrained
from hyroads.controller.model.state import DeclaredFlow
from hyroads.controller.model.state import Origin as FlowOrigin
from hyroads.controller.runtime.persistence import (
    BLOCK,
    FORMAT,
    Encoder,
    Saved,
    Store,
    ToSave,
    declared,
    decode,
    parse_flow,
    to_save,
)

NETWORK_FOLDER = Path(__file__).resolve().parents[3] / "mininet" / "networks"
NETWORK = read_file(NETWORK_FOLDER / "triangle.yaml")


def read_back(encoder: Encoder, saved: Saved) -> dict[str, Any]:
    """What a reader of the file finds in it."""
    document: dict[str, Any] = json.loads(text_of(FORMAT, encoder.encode(saved)))
    return document


@given(st.lists(st.text(min_size=1, max_size=12), unique=True, max_size=40), st.randoms())
def test_numbers_are_distinct_and_stay(flows: list[str], random: object) -> None:
    numbers = Numbers().with_flows(flows)
    assert len(set(numbers.flows.values())) == len(flows)
    assert all(16 <= number <= 65535 for number in numbers.flows.values())
    more = numbers.with_flows([*flows, "another flow"])
    assert all(more.flows[flow] == numbers.flows[flow] for flow in flows)
    assert Numbers().with_flows(flows) == numbers


def test_collisions_are_resolved_and_remembered() -> None:
    many = [f"flow {i}" for i in range(3000)]
    numbers = Numbers().with_flows(many)
    assert len(set(numbers.flows.values())) == 3000
    rest = numbers.with_flows(many[1500:])
    assert all(rest.flows[flow] == numbers.flows[flow] for flow in many[1500:])


def test_path_ids_fit_a_byte_and_room_is_made() -> None:
    numbers = Numbers().with_flows(["f"])
    for round_number in range(100):
        paths = [(f"l{round_number}", f"m{i}") for i in range(5)]
        numbers = numbers.with_paths({"f": paths})
        ids = [numbers.paths["f"][path] for path in paths]
        assert len(set(ids)) == 5 and all(1 <= path_id <= 255 for path_id in ids)
        assert numbers.with_paths({"f": paths}) == numbers
    with pytest.raises(PlanningError):
        Numbers().with_flows(["f"]).with_paths({"f": [(str(i),) for i in range(300)]})


NAMES = st.lists(st.text(min_size=1, max_size=3), unique=True, max_size=12)


@given(NAMES, NAMES, st.randoms(use_true_random=False))
def test_numbers_depend_on_who_has_one_and_not_on_the_order_of_the_others(
    first: list[str], more: list[str], rng: random.Random
) -> None:
    before = Numbers().with_flows(first).with_paths({flow: [("ab-wifi",)] for flow in first})
    fresh = [flow for flow in more if flow not in first]
    together, mixed = [*first, *fresh], [*first, *fresh]
    rng.shuffle(mixed)
    after = before.with_flows(together)
    assert list(after.flows) == together and len(set(after.flows.values())) == len(together)
    assert {flow: after.flows[flow] for flow in first} == before.flows and after.paths == before.paths
    # New flows last, or between the others: who had a number keeps it, and nobody has that of another.
    between = before.with_flows(mixed)
    assert {flow: between.flows[flow] for flow in first} == before.flows and between.flows.keys() == after.flows.keys()
    assert len(set(between.flows.values())) == len(together)
    remaining = [flow for flow in mixed if rng.random() < 0.5]
    less = after.with_flows(remaining)
    assert less.flows == {flow: after.flows[flow] for flow in remaining}
    assert less.paths.keys() == set(first) & set(remaining)
    assert all(50_000 <= n <= 50_100 for n in after.with_flows(together, (50_000, 50_100)).flows.values())


def test_file_gives_back_what_was_saved(tmp_path: Path) -> None:
    voice = FlowSpec("voice", "c", "a", Utility.ALPHA, 2.0, (("bc-wifi~", "ab-plc~"),), 2.0, Policy.SINGLE,
                     {"eth_type": 0x800, "ip_proto": 17, "udp_dst": 5})  # fmt: skip
    numbers = Numbers().with_flows(["voice", "f1"]).with_paths({"voice": [("bc-wifi~", "ab-plc~")]})
    saved = Saved((voice,), frozenset({"f1"}), numbers)
    store = Store(str(tmp_path / "deep" / "state.json"))
    assert store.load(NETWORK) == (Saved(), [])
    store.save(saved)
    assert Store(str(tmp_path / "deep" / "state.json")).load(NETWORK) == (saved, [])
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["state.json"]
    flows = declared(NETWORK, saved)
    assert [(flow.spec.id, flow.origin) for flow in flows] == [("voice", FlowOrigin.API)]
    assert to_save(NETWORK, flows, numbers) == saved


def test_a_new_file_begins_with_a_secret_and_an_old_one_keeps_its_labels(tmp_path: Path) -> None:
    path = str(tmp_path / "state.json")
    assert Store(None).label_secret() is None
    first, second = Store(path).label_secret(), Store(path).label_secret()
    assert first is not None and second is not None
    assert is_secret(first) and first != second
    for services, wanted in (
        ({"seals": {"secret": first, "labels": True}}, first),
        ({"seals": {"secret": first, "labels": False}}, None),
        ({"seals": {"secret": "short", "labels": True}}, None),
        ({}, None),
    ):
        Store(path).save(Saved(services=services))
        assert Store(path).label_secret() == wanted
        assert Path(path).stat().st_mode & 0o777 == 0o600


IDS = st.sampled_from(["f1", "voice", 'a "quoted" one', "ü", "x"])
PATHS = st.dictionaries(st.sampled_from([("ab-wifi",), ("bc-wifi~", "ab-plc~")]), st.integers(1, 255), max_size=2)
ROUTES = st.fixed_dictionaries(
    {"network": st.sampled_from(["1f", "2f"]), "paths": st.dictionaries(IDS, st.lists(st.integers(1, 255), max_size=2))}
)
SERVICES = st.fixed_dictionaries(
    {"members": st.just([])}, optional={"routes": ROUTES | st.sampled_from([None, {"paths": {}}])}
)
SAVED = st.builds(
    lambda weights, numbers, paths, services: Saved(
        tuple(FlowSpec(name, "c", "a", weight=weight) for name, weight in weights.items()),
        numbers=Numbers(numbers, paths),
        services=services,
    ),
    st.dictionaries(IDS, st.sampled_from([1.0, 2.5])),
    st.dictionaries(IDS, st.integers(16, 65535)),
    st.dictionaries(IDS, PATHS),
    SERVICES,
)


@given(st.lists(SAVED, min_size=1, max_size=5))
def test_what_was_encoded_before_changes_nothing(states: list[Saved]) -> None:
    encoder = Encoder()
    for saved in [*states, states[0]]:
        text = text_of(FORMAT, encoder.encode(saved))
        assert text == text_of(FORMAT, Encoder().encode(saved))
        document = json.loads(text)
        assert document["services"] == saved.services and document["numbers"] == saved.numbers.flows


def test_whatever_comes_and_goes_is_encoded_in_its_place() -> None:
    rng, encoder = random.Random(1), Encoder()
    flows: Mapping[str, FlowSpec] = {f"f{i}": FlowSpec(f"f{i}", "c", "a") for i in range(3 * BLOCK)}
    for number in range(150):
        known = list(flows)
        gone = rng.sample(known, rng.choice([0, 1, 1, 3, 2 * BLOCK]) % len(known))
        new = {
            f"n{number}-{i}": FlowSpec(f"n{number}-{i}", "c", "a") for i in range(rng.choice([0, 1, 1, 2, BLOCK + 1]))
        }
        other = {
            flow: FlowSpec(flow, "c", "a", weight=2.0)
            for flow in rng.sample(known, rng.choice([2, 2, BLOCK + 2]) % len(known))
        }
        flows = patched(flows, {**new, **other}, gone)
        if rng.random() < 0.2:
            # Removed and declared again: it comes last.
            last = rng.choice(list(flows))
            flows = patched(patched(flows, {}, [last]), {last: flows[last]})
        saved = Saved(tuple(flows.values()), numbers=Numbers().with_flows(list(flows)))
        assert text_of(FORMAT, encoder.encode(saved)) == text_of(FORMAT, Encoder().encode(saved))


def test_who_tells_which_flows_changed_gets_the_same_numbers() -> None:
    rng, numbers = random.Random(2), Numbers().with_flows([f"f{i}" for i in range(40)])
    flows: Mapping[str, int] = {f"f{i}": i for i in range(40)}
    for number in range(200):
        gone = rng.sample(list(flows), rng.choice([0, 0, 1, 5]))
        new = {f"n{number}-{i}": i for i in range(rng.choice([0, 1, 1, 4]))}
        after = patched(flows, new, gone)
        span = rng.choice([(FIRST_FLOW, 2_000), (FIRST_FLOW, 2_000), (1_000, 3_000)])
        told = numbers.with_flows(after, span, differing(flows, after))
        fresh = Numbers(numbers.flows, numbers.paths).with_flows(list(after), span)
        assert told == fresh and list(told.flows) == list(fresh.flows)
        assert told._ends == (min(told.flows.values()), max(told.flows.values()))
        numbers, flows = told.with_paths({flow: [("ab-wifi",)] for flow in new}), after


def test_only_what_changed_is_encoded_again() -> None:
    flows = tuple(FlowSpec(f"flow {i}", "c", "a") for i in range(2000))
    names = [flow.id for flow in flows]
    numbers = Numbers().with_flows(names).with_paths({name: [("bc-wifi~", "ab-plc~")] for name in names})
    encoder = Encoder()

    def took_s(saved: Saved) -> float:
        began_s = time.process_time()
        text_of(FORMAT, encoder.encode(saved))
        return time.process_time() - began_s

    first_s = took_s(Saved(flows, numbers=numbers))
    more = [Saved((*flows, FlowSpec(f"new {i}", "c", "a")), numbers=numbers) for i in range(5)]
    assert min(map(took_s, more)) < 0.5 * first_s


def test_flows_that_no_longer_fit_the_network_are_left_out() -> None:
    gone = DeclaredFlow(FlowSpec("x", "a", "nowhere"), FlowOrigin.API)
    document = read_back(Encoder(), Saved((gone.spec, FlowSpec("y", "a", "b"))))
    saved, problems = decode(document, "state.json", NETWORK)
    assert [flow.id for flow in saved.flows] == ["y"]
    assert len(problems) == 1 and problems[0].place == "flows[0].to"


FLOW = {"id": "x", "from": "a", "to": "c"}
OTHER, THIRD = {**FLOW, "id": "y"}, {**FLOW, "id": "z"}
BAD_PATHS = [[1, "m"], [2, "l"], [0, "n"], ["3", "o"], [True, "p"], 5, [6], [7, 8]]


@pytest.mark.parametrize(
    ("section", "value", "places"),
    [
        ("flows", [FLOW, None, 3, "x", [], {}, {**FLOW, "id": 3}], [f"flows[{i}]" for i in range(1, 7)]),
        ("flows", [FLOW, {**FLOW, "weight": 2.0}], ["flows[1]"]),
        ("flows", [FLOW, {**OTHER, "to": "nowhere"}, {**THIRD, "to": "a"}], ["flows[1]", "flows[2]"]),
        ("flows", [FLOW, {**OTHER, "weight": 1e999}, {**THIRD, "paths": 3}], ["flows[1]", "flows[2]"]),
        ("removed", ["f1", 3, None, ["f1"]], ["removed"]),
        ("numbers", {"a": 20, "b": 20, "c": 3, "d": 65536, "e": "20", "f": True, "g": None}, ["numbers"] * 6),
        ("paths", {"a": [[1, "l"], *BAD_PATHS]}, ["paths.a"] * 8),
        ("paths", {"a": [[1, "l"]], "b": 5, "c": {}}, ["paths.b", "paths.c"]),
        ("places", [None, {"client": "c", "flow": None, "node": "a", "technology": "none"}, [[]]], ["places"] * 3),
    ],
)
def test_what_is_unsound_is_left_out_and_the_rest_counts(section: str, value: Any, places: list[str]) -> None:
    saved, problems = decode({section: value}, "state.json", NETWORK)
    assert [problem.place[: len(place)] for problem, place in zip(problems, places, strict=True)] == places
    assert [flow.id for flow in saved.flows] == (["x"] if section == "flows" else [])
    assert saved.removed == (frozenset({"f1"}) if section == "removed" else frozenset())
    assert saved.numbers.flows == ({"a": 20} if section == "numbers" else {})
    assert saved.numbers.paths.get("a", {}) == ({("l",): 1} if section == "paths" else {})
    assert not saved.constrained and not saved.services
    # And it can be written again.
    assert decode(read_back(Encoder(), saved), "state.json", NETWORK) == (saved, [])


FIRST: dict[str, Any] = {
    "version": 1,
    "flows": [FLOW],
    "removed": ["f1"],
    "numbers": {"x": 77},
    "paths": {"x": [[5, "ab-plc", "bc-wifi"]]},
}
"""As the first controller that had a state file wrote it; places and services came later, in the same version."""


def test_files_of_all_earlier_controllers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for document in (FIRST, {**FIRST, "places": []}, {**FIRST, "places": [], "services": {"sessions": []}}):
        path.write_text(json.dumps(document, indent=1) + "\n")
        path.with_name("state.json.1").unlink(missing_ok=True)
        store = Store(str(path))
        saved, problems = store.load(NETWORK)
        assert not problems and not store.content.broken and store.content.origin is Origin.FILE
        assert [flow.id for flow in saved.flows] == ["x"] and saved.removed == {"f1"}
        assert saved.numbers.paths == {"x": {("ab-plc", "bc-wifi"): 5}} and saved.numbers.flows == {"x": 77}
        store.save(saved)
        assert Store(str(path)).load(NETWORK) == (saved, [])
        assert json.loads(path.read_text())["version"] == FORMAT.version


def test_places_of_clients_come_back_but_for_what_the_network_has_no_more(tmp_path: Path) -> None:
    network = read_file(Path(NETWORK_FOLDER, "roaming.yaml"))
    a, b, gone = Place("a", "wifi1"), Place("b", "wifi2"), Place("z", "wifi1")
    copying = Constrained((a, b), (a, b), copies=True)
    constrained = {
        ("c", None): copying,
        ("c", "up"): Constrained((a,), (a,)),
        ("c", "x"): Constrained((gone,), (gone,)),
    }
    store = Store(str(tmp_path / "state.json"))
    store.save(to_save(network, [], Numbers(), constrained))
    found, problems = store.load(network)
    # Of a handover that was on its way only where it led to is known.
    assert found.constrained == {("c", None): Constrained((b,), (b,)), ("c", "up"): Constrained((a,), (a,))}
    assert [problem.place for problem in problems] == ["places[1]"]


def test_places_in_a_request_are_those_of_its_body() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_flow({"id": "x", "from": "a", "to": "c", "paths": [["nothing"]]}, NETWORK, "request")
    assert caught.value.place == "paths[0][0]"


NAMED = [f"f{i}" for i in range(3 * BLOCK)]


@given(st.lists(st.tuples(st.sampled_from(NAMED), st.none() | st.integers(0, 2)), max_size=40), st.randoms())
def test_blocks_of_texts_are_those_of_all_items(changes: list[tuple[str, int | None]], rng: random.Random) -> None:
    """Whatever comes, goes and changes at once, as often as it does."""
    encoder, flows = Encoder(), {name: 16 + i for i, name in enumerate(NAMED[: rng.choice([0, 1, BLOCK, 300])])}
    while changes:
        some, changes = changes[: (count := rng.randint(1, 5))], changes[count:]
        flows = dict(flows)
        for name, number in some:
            flows.pop(name, None) if number is None else flows.update({name: number})
        document = read_back(encoder, Saved(numbers=Numbers(flows)))
        assert list(document["numbers"].items()) == list(flows.items())


@given(st.lists(st.tuples(st.sampled_from(["f1", "f2", "x", "y"]), st.sampled_from(["api", "file", "gone"]))))
def test_what_is_to_be_saved_follows_flows_that_change(steps: list[tuple[str, str]]) -> None:
    network = replace(NETWORK, flows=(FlowSpec("f1", "a", "c"), FlowSpec("f2", "c", "a")))
    to_be, flows = ToSave(), {flow.id: DeclaredFlow(flow, FlowOrigin.FILE) for flow in network.flows}
    for name, kind in [*steps, ("x", "api")]:
        others = {flow: known for flow, known in flows.items() if flow != name}
        origin = FlowOrigin.API if kind == "api" else FlowOrigin.FILE
        # One of the file is that of the file.
        spec = next((flow for flow in network.flows if flow.id == name and kind == "file"), FlowSpec(name, "c", "a"))
        flows = others if kind == "gone" else {**others, name: DeclaredFlow(spec, origin)}
        assert to_be.of(network, flows, Numbers()) == to_save(network, flows.values(), Numbers())
    other = replace(network, flows=network.flows[:1])
    assert to_be.of(other, flows, Numbers()) == to_save(other, flows.values(), Numbers())
