"""Keys of sealed frames: who gets which, that both ends get the same, and what changes them."""

from __future__ import annotations

import json
import math
import random
from types import SimpleNamespace
from typing import Any

import pytest
from swarm import events, swarm

from hyroads.controller.agents.configs import AgentConfig, BranchFlow, EgressFlow, HelloConfig, IngressFlow, PathConfig
from hyroads.controller.agents.frame_keys import PERIOD_S, FrameKeys, is_secret, new_secret
from hyroads.controller.agents.protocol import Hello, encode, parse_hello, parse_line

SECRET = "5e" * 32
MACS = {("a", "plc"): "02:00:01:01:00:01", ("b", "plc"): "02:00:01:01:00:02", ("c", "plc"): "02:00:01:01:00:03"}
HELLOS = {
    node: HelloConfig(40, 140, (("plc", 1000),), tuple((f"{other}{node}", MACS[other, "plc"]) for other in others))
    for node, others in {"a": "bc", "b": "ac", "c": "ab"}.items()
}
PATHS = (PathConfig(1, (20, 30), 5.0, 1600),)
BRANCH = BranchFlow(17, "f2", 1, PATHS, ("a", "c", "b"))
CONFIGS = {
    "a": AgentConfig(
        HELLOS["a"],
        {
            "f1": IngressFlow(16, "f1", "b", 60, PATHS),
            "f2": IngressFlow(17, "f2", "c", 60, PATHS, branches=(("b", BRANCH),)),
        },
    ),
    "b": AgentConfig(
        HELLOS["b"], {}, {"f1": EgressFlow(16, "f1", (1,), 100, sealers=("a", "b"))}, {BRANCH.key: BRANCH}
    ),
    "c": AgentConfig(HELLOS["c"], {}, {"f2": EgressFlow(17, "f2", (1,), 100, sealers=("a", "c", "b"))}),
}


class Network:
    """Keys at a time of day, and agents that have joined."""

    def __init__(self, secret: str | None = SECRET) -> None:
        self.now_s = 1_795_000_000.0
        self.keys = FrameKeys(MACS, lambda: self.now_s)
        if secret is not None:
            self.keys.use(secret)
        self.join(a="a1", b="b1", c="c1")

    def join(self, *, seals: bool = True, pieces: bool = False, **boots: str) -> None:
        for node, boot in boots.items():
            self.keys.heard(Hello(node, "hyroads-edge", boot, None, 0, seals=seals, pieces=pieces))

    def document(self, node: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.keys.message(node, CONFIGS[node]))
        return found

    def flow(self, node: str, side: str, flow: str) -> str | None:
        return {entry.get("id", "f2"): entry.get("key") for entry in self.document(node)[side]}[flow]


def found_keys(document: Any) -> list[str]:
    """All keys in a document."""
    if isinstance(document, dict):
        return [v for k, v in document.items() if k == "key"] + [k for v in document.values() for k in found_keys(v)]
    return [key for each in document for key in found_keys(each)] if isinstance(document, list) else []


def test_all_who_handle_a_frame_get_the_same_key_and_nobody_else_does() -> None:
    net = Network()
    f1 = {net.flow("a", "ingress", "f1"), net.flow("b", "egress", "f1")}
    f2 = {net.flow("a", "ingress", "f2"), net.flow("c", "egress", "f2"), net.flow("b", "branch", "f2")}
    assert len(f1) == len(f2) == 1
    assert f1 != f2
    assert all(key is not None and len(key) == 32 for key in f1 | f2)
    own = {node: net.document(node)["hello"]["key"] for node in "abc"}
    assert len({*own.values(), *f1, *f2}) == 5
    for node in "abc":
        hello = net.document(node)["hello"]
        assert hello["send"] == [{"technology": "plc", "label": 1000, "mac": MACS[node, "plc"]}]
        assert [entry["key"] for entry in hello["expect"]] == [own[entry["link"][0]] for entry in hello["expect"]]
    assert not {*found_keys(net.document("c"))} & f1


def test_another_controller_with_the_same_secret_gives_the_same_keys() -> None:
    first, second, other = Network(), Network(None), Network(new_secret())
    # It learns the secret, and hears the agents, in another order.
    second.join(c="c1", a="a1")
    second.keys.use(SECRET)
    for node in "abc":
        assert first.document(node) == second.document(node)
        assert first.document(node)["revision"] == first.keys.revision(node, CONFIGS[node])
        assert not {*found_keys(first.document(node))} & {*found_keys(other.document(node))}


def test_without_a_secret_or_an_agent_that_can_seal_a_document_is_as_before() -> None:
    for net in (Network(None), Network()):
        net.join(seals=False, a="a1", b="b1", c="c1")
        for node, config in CONFIGS.items():
            assert net.document(node) == {**config.document(), "revision": config.revision}


def test_a_message_is_what_the_document_says_whatever_flows_are_called() -> None:
    names = ('"rate_mbps":null', '\\"rate_mbps":null', "\u00e9\n\x00", '"}],"key":"0', "rate_mbps")
    rates = (None, 0.0, 1e-9, 5.25)
    ingress = {
        name: IngressFlow(16 + i, name, "b", 60, tuple(PathConfig(k, (20,), r, 1600) for k, r in enumerate(rates)))
        for i, name in enumerate(names)
    }
    egress = {name: EgressFlow(26 + i, name, (1, 2), 100) for i, name in enumerate(names)}
    config = AgentConfig(HELLOS["a"], ingress, egress)
    message = json.loads(FrameKeys(MACS, lambda: 0.0).message("a", config))
    assert message == {**config.document(), "revision": config.revision}
    other = {name: flow.with_rates(dict(enumerate((None, 7.0, 0.5, 1e300)))) for name, flow in ingress.items()}
    again = config.with_ingress(other)
    message = json.loads(FrameKeys(MACS, lambda: 0.0).message("a", again))
    assert message == {**again.document(), "revision": config.revision}
    with pytest.raises(ValueError, match="no such number"):
        FrameKeys(MACS, lambda: 0.0).message("a", config.with_ingress({"x": _with(ingress["rate_mbps"], math.inf)}))


def _with(flow: IngressFlow, rate_mbps: float) -> IngressFlow:
    return flow.with_rates(dict.fromkeys(range(len(flow.paths)), rate_mbps))


def test_one_old_agent_takes_the_keys_of_its_own_flows_and_links_alone() -> None:
    net = Network()
    net.join(seals=False, b="b1")
    assert found_keys(net.document("b")) == []
    # f2 branches at b.
    assert [net.flow("a", "ingress", flow) for flow in ("f1", "f2")] == [None, None]
    assert net.flow("c", "egress", "f2") is None
    expected = {entry["link"]: "key" in entry for entry in net.document("a")["hello"]["expect"]}
    assert expected == {"ba": False, "ca": True}


def cut_flows(net: Network) -> set[str]:
    """Flows from a whose frames may be cut in pieces."""
    return {entry["id"] for entry in net.document("a")["ingress"] if entry.get("pieces")}


def test_first_agent_cuts_frames_of_flows_that_only_agents_handle_which_join_pieces() -> None:
    net = Network()
    revision = net.document("a")["revision"]
    assert cut_flows(net) == set()
    net.join(pieces=True, b="b2")
    assert cut_flows(net) == {"f1"} and net.document("a")["revision"] != revision
    # f2 branches at b and ends at c.
    net.join(pieces=True, c="c2")
    assert cut_flows(net) == {"f1", "f2"}
    net.join(seals=False, pieces=True, b="b3")
    assert cut_flows(net) == set()
    net.join(b="b4")
    assert cut_flows(net) == set()


def test_a_start_changes_the_keys_of_those_whom_it_concerns_and_only_once() -> None:
    net = Network()
    before = {node: net.document(node) for node in "abc"}
    versions = {node: net.keys.version(node) for node in "abc"}
    net.join(b="b1", a="a1", c="c1")
    assert versions == {node: net.keys.version(node) for node in "abc"}
    net.join(b="b2")
    assert all(net.keys.version(node) > versions[node] for node in "abc")
    after = {node: net.document(node) for node in "abc"}
    for node in "abc":
        assert after[node]["revision"] != before[node]["revision"]
    gone = {*found_keys(before["b"])} - {*found_keys(after["b"])}
    # Those of a's and c's hello frames, and of the flow between these, stay.
    kept = {before[node]["hello"]["key"] for node in "ac"} | {net.flow("c", "egress", "f2")}
    assert {*found_keys(before["b"])} - gone == kept
    net.join(b="b1")
    assert net.document("b") == before["b"]


def test_what_an_agent_has_nothing_to_do_with_does_not_concern_it() -> None:
    net = Network()
    alone = AgentConfig(HelloConfig(40, 140, (("plc", 1000),), (("ba", MACS["b", "plc"]),)))
    net.keys.message("a", alone)
    version = net.keys.version("a")
    net.join(c="c2")
    assert net.keys.version("a") == version
    net.join(b="b2")
    assert net.keys.version("a") == version + 1


def test_flows_whose_names_and_numbers_read_alike_have_keys_of_their_own() -> None:
    flows = [("a1", 2), ("a", 12), ("a", 2), ("a12", 2)]
    keys = []
    for name, number in flows:
        for end in ("b", "c"):
            config = AgentConfig(HELLOS["a"], {name: IngressFlow(number, name, end, 60, PATHS)})
            [entry] = json.loads(Network().keys.message("a", config))["ingress"]
            keys.append(entry["key"])
    assert len(set(keys)) == len(keys)


def test_flow_that_comes_from_another_region_has_no_key() -> None:
    config = AgentConfig(HELLOS["b"], {}, {"f1": EgressFlow(16, "f1", (1,), 100)})
    [entry] = json.loads(Network().keys.message("b", config))["egress"]
    assert "key" not in entry


def test_revision_is_another_for_each_generation() -> None:
    net = Network()
    before = net.document("a")
    net.now_s += PERIOD_S
    net.keys.tick()
    after = net.document("a")
    assert after["generation"] == before["generation"] + 1 and after["revision"] != before["revision"]
    assert found_keys(after) == found_keys(before)


def test_generations_follow_the_time_of_day_at_different_times() -> None:
    net = Network()
    generations = {node: net.document(node)["generation"] for node in "abc"}
    assert not net.keys.tick()
    changed = dict.fromkeys("abc", 0)
    for _ in range(48):
        net.now_s += PERIOD_S / 48
        versions = {node: net.keys.version(node) for node in "abc"}
        net.keys.tick()
        for node in "abc":
            changed[node] += net.keys.version(node) - versions[node]
        now = [net.document(node)["generation"] for node in "abc"]
        assert max(now) - min(now) <= 1, "a receiver takes the one before and the one after"
    assert changed == dict.fromkeys("abc", 1)
    assert all(net.document(node)["generation"] == generations[node] + 1 for node in "abc")


def test_revisions_tell_of_keys_but_do_not_follow_rates() -> None:
    net = Network()
    config = CONFIGS["a"]
    assert net.keys.revision("a", config) != config.revision
    faster = config.with_ingress({"f1": config.ingress["f1"].with_rates({1: 9.0})})
    assert net.keys.revision("a", faster) == net.keys.revision("a", config)


SILENT = HelloConfig(40, 140, (), ())


@pytest.mark.parametrize(
    "config",
    [
        AgentConfig(HelloConfig(40, 140, (("plc", 1000),), ())),
        AgentConfig(HelloConfig(40, 140, (), (("cb", MACS["c", "plc"]),))),
        AgentConfig(SILENT, {"f1": IngressFlow(16, "f1", "c", 60, PATHS)}),
        AgentConfig(SILENT, {}, {"f2": EgressFlow(17, "f2", (1,), 100, sealers=("c", "b"))}),
        AgentConfig(SILENT, {}, {}, {BRANCH.key: BRANCH}),
    ],
)
def test_revision_is_another_for_each_key_alone(config: AgentConfig) -> None:
    """The own key of node b, that of a neighbour, and those of a flow that begins, ends or branches there."""
    net = Network()
    before = net.keys.revision("b", config)
    assert before != config.revision
    net.join(**({"b": "b2"} if config.hello.send else {"c": "c2"}))
    assert net.keys.revision("b", config) != before
    net.join(**({"b": "b1"} if config.hello.send else {"c": "c1"}))
    assert net.keys.revision("b", config) == before


def test_a_hello_says_whether_an_agent_can_seal_and_join_pieces() -> None:
    line = {"type": "hello", "version": 1, "node": "a", "boot": "1", "revision": 0}
    plain = parse_hello(parse_line(encode(line)))
    assert (plain.seals, plain.pieces) == (False, False)
    able = parse_hello(parse_line(encode({**line, "seals": True, "pieces": True})))
    assert (able.seals, able.pieces) == (True, True)
    assert not parse_hello(parse_line(encode({**line, "seals": 1}))).seals


def test_what_is_no_secret_is_refused() -> None:
    for wrong in ("", "5e" * 31, "5E" * 32, "zz" * 32, "5e" * 33):
        assert not is_secret(wrong)
        with pytest.raises(ValueError, match="hexadecimal"):
            FrameKeys().use(wrong)
    assert is_secret(new_secret())


KINDS = ("start", "without seals", "pieces", "time", "address", "other flows", "secret")
INTERFACES = list(MACS)


class History:
    """One long-lived FrameKeys, and what it has been given so far."""

    def __init__(self) -> None:
        self.now_s = 1_795_000_000.0
        self.secret: str | None = None
        self.hellos: dict[str, Hello] = {}
        self.reported: dict[tuple[str, str], str] = {}
        self.configs = dict(CONFIGS)
        self.keys = FrameKeys(MACS, lambda: self.now_s)
        self.seen: dict[str, tuple[int, AgentConfig, str]] = {}

    def made_again(self) -> FrameKeys:
        """What another controller would make of the same present state."""
        keys = FrameKeys(MACS, lambda: self.now_s)
        for node in sorted(self.hellos, reverse=True):
            keys.heard(self.hellos[node])
        if self.secret is not None:
            keys.use(self.secret)
        self.give_addresses(keys)
        return keys

    def give_addresses(self, keys: FrameKeys) -> None:
        keys.use_addresses(SimpleNamespace(reported=dict(self.reported)), "abc")  # type: ignore[arg-type]

    def do(self, kind: str, rng: random.Random) -> None:
        node = rng.choice("abc")
        if kind in ("start", "without seals", "pieces"):
            boot = f"{node}{rng.randrange(2)}"
            seals, pieces = kind != "without seals", kind == "pieces"
            self.hellos[node] = Hello(node, "hyroads-edge", boot, None, 0, seals=seals, pieces=pieces)
            if kind == "pieces":
                # Whether an agent joins pieces never changes while it runs.
                self.hellos[node] = Hello(node, "hyroads-edge", boot + "p", None, 0, seals=True, pieces=True)
            self.keys.heard(self.hellos[node])
        elif kind == "time":
            self.now_s += rng.choice((0.0, 60.0, PERIOD_S / 5, PERIOD_S))
            self.keys.tick()
        elif kind == "address":
            interface = rng.choice(INTERFACES)
            self.reported[interface] = rng.choice((MACS[interface], "02:99:00:00:00:01", "02:99:00:00:00:02"))
            self.give_addresses(self.keys)
        elif kind == "other flows":
            there = self.configs[node]
            self.configs[node] = CONFIGS[node] if there is not CONFIGS[node] else AgentConfig(HELLOS[node])
        elif kind == "secret":
            self.secret = rng.choice((SECRET, "ab" * 32))
            self.keys.use(self.secret)

    def check(self) -> None:
        other = self.made_again()
        for node, config in self.configs.items():
            message, version = self.keys.message(node, config), self.keys.version(node)
            assert message == other.message(node, config)
            assert json.loads(message)["revision"] == self.keys.revision(node, config)
            before = self.seen.get(node)
            if before is not None and before[1] is config and before[2] != message:
                assert version > before[0] and node in self.keys.changed_nodes
                assert json.loads(message)["revision"] != json.loads(before[2])["revision"]
            self.seen[node] = version, config, message
        self.keys.changed_nodes.clear()


def play_history(_: int, row: list[tuple[str, int]]) -> None:
    history = History()
    for kind, choice in row:
        history.do(kind, random.Random(choice))
        history.check()


def test_messages_depend_on_the_present_state_alone_and_each_change_has_another_version() -> None:
    swarm(150, lambda rng: events(rng, KINDS, 25, ("start", "secret")), play_history)


def test_where_links_are_sealed_each_configuration_says_so_and_has_another_revision() -> None:
    plain, sealing = Network(), Network()
    sealing.keys = FrameKeys(MACS, lambda: sealing.now_s, seals_links=True)
    for keys in (plain.keys, sealing.keys):
        keys.use(SECRET)
    sealing.join(a="a1", b="b1", c="c1")
    for node in "abc":
        document = sealing.document(node)
        assert document.pop("seal_links") is True
        assert document["revision"] == sealing.keys.revision(node, CONFIGS[node]) != plain.document(node)["revision"]
        assert {**document, "revision": 0} == {**plain.document(node), "revision": 0}


def test_a_flow_is_sealed_once_all_its_agents_have_joined() -> None:
    net = Network()
    assert net.keys.seals(["a", "b"])
    assert not net.keys.seals(["a", "d"])
    net.join(seals=False, b="b2")
    assert not net.keys.seals(["a", "b"])
    assert not Network(None).keys.seals(["a"])
