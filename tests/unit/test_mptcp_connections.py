"""Connections and subflows from SYNs; hosts that lie, that flood, that are silent."""

from __future__ import annotations

from collections import Counter

import mptcp_frames as frames
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.mptcp import Ends, Syn, ends, parse_syn, token_of, turned
from hyroads.controller.core.mptcp_connections import (
    AGAIN_S,
    MAX_EARLY,
    MAX_EARLY_PER_HOST,
    MAX_SAME_TOKEN,
    MAX_SUBFLOWS,
    PENDING_S,
    REORDER_S,
    At,
    ConnectionTable,
    Happened,
    Limits,
    Outcome,
    Reason,
)

KEY, OTHER_KEY, CLIENT_KEY = b"server-k", b"server-2", b"client-k"
C1, C2, S1, S2 = "10.0.0.1", "10.0.1.1", "10.0.0.9", "10.0.1.9"
NEAR, FAR = At("ap1", "ap1-host"), At("gw", "gw-host")


def syn(options: bytes, source: str, target: str, ports: tuple[int, int] = (1000, 80), *, answers: bool = False) -> Syn:
    frame = frames.PLAIN_ANSWER if answers else frames.PLAIN
    found = parse_syn(frames.from_to(frames.with_options(frame, options), source, target, *ports))
    assert found is not None
    return found


class World:
    """Hosts that shake hands through a network that sees all of it."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.table = ConnectionTable(limits)
        self.now_s = 100.0

    def ask(self, options: bytes, host: str = "c", at: At = NEAR, **how) -> Outcome:
        source, target, to = how.pop("source", C1), how.pop("target", S1), how.pop("to", "s")
        return self.table.take(syn(options, source, target, **how), host, to, at, self.now_s)

    def answer(self, options: bytes, host: str = "s", at: At = FAR, to: str = "c", **how) -> Outcome:
        """``source`` and ``target`` are those of the SYN."""
        source, target = how.pop("target", S1), how.pop("source", C1)
        first, second = how.pop("ports", (1000, 80))
        answer = syn(options, source, target, (second, first), answers=True)
        return self.table.take(answer, host, to, at, self.now_s)

    def connect(self, key: bytes = KEY, client: str = "c", peer: str = "s", **how) -> Outcome:
        assert self.ask(frames.capable(), client, **how) is Outcome.WAITING
        return self.answer(frames.capable_answer(key), peer, to=client, **how)

    def join(self, key: bytes = KEY, client: str = "c", peer: str = "s", **how) -> Outcome:
        asked = self.ask(frames.join(key), client, **{"source": C2, **how})
        return (
            self.answer(frames.join_answer(), peer, to=client, **{"source": C2, **how})
            if asked is Outcome.WAITING
            else asked
        )

    def later(self, seconds: float) -> None:
        self.now_s += seconds
        self.table.expire(self.now_s)

    def told(self) -> list[Happened]:
        notices, self.table.notices = self.table.notices, []
        return [notice.what for notice in notices]


def only(world: World):
    [connection] = world.table.connections.values()
    return connection


def test_a_connection_and_its_second_subflow():
    world = World()
    assert world.connect() is Outcome.CONNECTION
    assert list(world.table.groups()) == []
    assert world.join() is Outcome.SUBFLOW
    connection = only(world)
    assert (connection.client, connection.peer, connection.token) == ("c", "s", token_of(KEY, 1))
    assert connection.id == f"{token_of(KEY, 1):08x}"
    first, second = connection.subflows.values()
    assert ends(first.key) == Ends(C1, 1000, S1, 80) and ends(second.key) == Ends(C2, 1000, S1, 80)
    assert (first.at, first.peer_at, second.address_id, second.by_peer) == (NEAR, FAR, 2, False)
    assert list(world.table.groups()) == [connection]
    assert world.told() == [Happened.CONNECTION, Happened.JOINED]
    assert world.table.pending_count == 0


def test_the_kernels_own_handshakes():
    table = ConnectionTable()
    outcomes = []
    for frame, host in (
        (frames.CAPABLE, "c"),
        (frames.CAPABLE_ANSWER, "s"),
        (frames.JOIN, "c"),
        (frames.JOIN_ANSWER, "s"),
    ):
        found = parse_syn(frame)
        assert found is not None
        outcomes.append(table.take(found, host, "c", NEAR, 1.0))
    assert outcomes == [Outcome.WAITING, Outcome.CONNECTION, Outcome.WAITING, Outcome.SUBFLOW]
    [connection] = table.groups()
    assert [subflow.backup for subflow in connection.subflows.values()] == [False, True]


def test_tcp_leaves_nothing_behind():
    world = World()
    assert world.ask(b"") is Outcome.PLAIN
    assert world.answer(b"") is Outcome.PLAIN
    # A server without MPTCP, or with another version, answers: they go on with TCP.
    assert world.ask(frames.capable()) is Outcome.WAITING
    assert world.answer(b"") is Outcome.PLAIN
    assert world.ask(frames.capable()) is Outcome.WAITING
    assert world.answer(frames.option(0x00, 0x01, KEY)) is Outcome.PLAIN
    assert world.table.pending_count == 0 and not world.table.connections and not world.told()


def test_halves_that_come_in_another_order():
    world = World()
    # The server's switch is faster than the client's, for both handshakes, and the join's is even faster than these.
    assert world.answer(frames.join_answer(), source=C2) is Outcome.WAITING
    assert world.ask(frames.join(KEY), source=C2) is Outcome.WAITING
    assert world.answer(frames.capable_answer(KEY)) is Outcome.WAITING
    assert world.ask(frames.capable()) is Outcome.CONNECTION
    world.later(REORDER_S)
    assert len(only(world).subflows) == 2
    assert world.table.pending_count == 0
    assert world.table.counts[Outcome.SUBFLOW] == 1


def test_a_join_whose_token_nobody_knows_is_refused_soon():
    world = World()
    assert world.ask(frames.join(KEY)) is Outcome.WAITING
    world.later(REORDER_S)
    assert world.table.reasons == Counter({Reason.UNKNOWN_TOKEN: 1})
    assert world.table.pending_count == 0 and world.told() == [Happened.REFUSED]
    # Also if somebody answered it.
    world.ask(frames.join(KEY), ports=(7, 80))
    world.answer(frames.join_answer(), ports=(7, 80))
    world.later(REORDER_S)
    assert world.table.reasons[Reason.UNKNOWN_TOKEN] == 2 and world.table.pending_count == 0


def test_a_thief_of_a_token_is_refused_at_once_and_harms_nobody():
    world = World()
    world.connect()
    world.told()
    assert world.join(client="thief", source="10.0.2.1") is Outcome.REFUSED
    assert world.join(client="thief", source=C2) is Outcome.REFUSED
    # The server is not the client, either.
    assert world.join(client="s", source=S2, target=C1) is Outcome.REFUSED
    assert world.table.reasons == Counter({Reason.OTHERS_TOKEN: 3})
    assert len(only(world).subflows) == 1 and world.table.pending_count == 0
    assert world.join() is Outcome.SUBFLOW


def test_who_uses_the_addresses_of_another_ends_nothing_of_it():
    world = World()
    world.connect()
    world.later(2 * AGAIN_S)
    for options in (b"", frames.capable(), frames.join(KEY)):
        assert world.ask(options, "thief") is Outcome.REFUSED
    assert world.table.reasons == Counter({Reason.OTHERS_ADDRESS: 3})
    # Nor does it stand in the way of the owner's own handshake: answers go to the owner, and to its MAC.
    assert world.ask(frames.capable(), "thief", ports=(5, 80)) is Outcome.WAITING
    assert world.ask(frames.capable(), ports=(5, 80)) is Outcome.WAITING
    assert world.answer(frames.capable_answer(OTHER_KEY), ports=(5, 80)) is Outcome.CONNECTION
    assert {one.client for one in world.table.connections.values()} == {"c"}


def test_ports_that_are_used_again_end_the_old_subflow():
    world = World()
    world.connect()
    # A SYN/ACK that was lost comes again, and so may the SYN.
    assert world.answer(frames.capable_answer(KEY)) is Outcome.REPEATED
    assert world.ask(frames.capable()) is Outcome.WAITING
    assert world.answer(frames.capable_answer(KEY)) is Outcome.REPEATED
    assert world.told() == [Happened.CONNECTION] and world.table.pending_count == 0
    assert world.connect(OTHER_KEY) is Outcome.CONNECTION
    assert only(world).token == token_of(OTHER_KEY, 1)
    assert world.told() == [Happened.LEFT, Happened.CONNECTION]
    assert world.join(OTHER_KEY) is Outcome.SUBFLOW
    assert world.join(OTHER_KEY) is Outcome.REPEATED
    # A join by ports that a connection has just left belongs to the other connection.
    assert world.connect(KEY, ports=(7, 80)) is Outcome.CONNECTION
    assert world.join(KEY) is Outcome.SUBFLOW
    counts = [(one.token == token_of(KEY, 1), len(one.subflows)) for one in world.table.connections.values()]
    assert sorted(counts) == [(False, 1), (True, 2)]
    # Also if the answer comes first, and soon.
    assert world.answer(frames.join_answer(), source=C2) is Outcome.WAITING
    assert world.ask(frames.join(OTHER_KEY), source=C2) is Outcome.SUBFLOW
    world.later(AGAIN_S)
    assert world.join(KEY) is Outcome.SUBFLOW and len(world.table.connections) == 2
    world.table.end(syn(b"", C1, S1, (7, 80)).key)
    world.table.end(syn(b"", C2, S1).key)
    assert only(world).token == token_of(OTHER_KEY, 1)
    # The kernel asks without MPTCP once it has had no answer: that ends a subflow of any age.
    assert world.ask(b"") is Outcome.PLAIN and not world.table.connections


def test_a_join_of_the_server_is_told_by_the_pair_of_hosts():
    world = World()
    world.connect()
    assert world.join(CLIENT_KEY, client="s", peer="c", source=S2, target=C1) is Outcome.SUBFLOW
    second = list(only(world).subflows.values())[1]
    assert second.by_peer and ends(second.key) == Ends(C1, 80, S2, 1000) and second.at == FAR and second.peer_at == NEAR
    # From now on the client's token is known.
    assert world.join(CLIENT_KEY, client="s", peer="c", source=S1, target=C1, ports=(4, 5)) is Outcome.SUBFLOW
    assert world.join(CLIENT_KEY, client="thief", source=C2) is Outcome.REFUSED
    # With two connections of the same hosts nobody can tell which it is.
    world.connect(OTHER_KEY, ports=(1001, 80))
    world.connect(b"server-3", ports=(1002, 80))
    assert world.join(b"client-3", client="s", peer="c", source=S2, target=C1, ports=(9, 9)) is Outcome.REFUSED
    assert world.table.reasons[Reason.AMBIGUOUS] == 1
    # In version 0 the first SYN has shown the client's key.
    old = World()
    assert old.ask(frames.option(0x00, 0x01, CLIENT_KEY)) is Outcome.WAITING
    assert old.answer(frames.option(0x00, 0x01, KEY)) is Outcome.CONNECTION
    assert (only(old).token, only(old).client_token) == (token_of(KEY, 0), token_of(CLIENT_KEY, 0))


def test_equal_tokens_of_different_hosts():
    world = World()
    for number in range(MAX_SAME_TOKEN + 1):
        client = f"c{number}"
        outcome = world.connect(KEY, client, f"s{number}", source=f"10.1.0.{number + 1}")
        assert outcome is (Outcome.CONNECTION if number < MAX_SAME_TOKEN else Outcome.TOO_MANY)
    assert len({*world.table.connections}) == MAX_SAME_TOKEN
    assert world.join(client="c3", peer="s3") is Outcome.SUBFLOW
    [group] = world.table.groups()
    assert group.client == "c3"
    # A server that gives out one key twice has ended the first connection.
    world.connect(KEY, "c3", "s3", source=C1)
    assert len(world.table.connections) == MAX_SAME_TOKEN


def test_subflows_end_and_are_forgotten():
    world = World(Limits(forget_s=60.0))
    world.connect()
    world.join()
    connection = only(world)
    key = next(iter(connection.subflows))
    world.later(59)
    world.table.touch(turned(key), world.now_s)
    world.later(59)
    assert len(world.table.connections) == 1
    world.told()
    world.table.end(turned(key))
    world.table.end(key)
    assert world.told() == [Happened.LEFT] and len(connection.subflows) == 1
    assert world.join(ports=(8, 80)) is Outcome.SUBFLOW
    world.later(60)
    assert world.told() == [Happened.JOINED, Happened.LEFT, Happened.LEFT]
    assert is_empty(world.table)


def is_empty(table: ConnectionTable) -> bool:
    inside = [value for name, value in vars(table).items() if name not in {"limits", "counts", "reasons", "notices"}]
    return not any(inside)


def test_a_connection_has_so_many_subflows_at_most():
    world = World()
    world.connect()
    outcomes = [world.join(ports=(port, 80)) for port in range(2000, 2000 + MAX_SUBFLOWS)]
    assert outcomes == [Outcome.SUBFLOW] * (MAX_SUBFLOWS - 1) + [Outcome.REFUSED]
    assert world.table.reasons[Reason.TOO_MANY] == 1


def test_a_flood_of_syns_fills_its_own_share_only_and_leaves_nothing():
    limits = Limits(pending=300, pending_per_host=100)
    world = World(limits)
    flood = Counter(world.ask(frames.capable(), "flood", ports=(port, 80)) for port in range(5000))
    assert flood == {Outcome.WAITING: 100, Outcome.TOO_MANY: 4900}
    assert world.connect(ports=(1, 80)) is Outcome.CONNECTION
    for host in range(5):
        for port in range(1000):
            world.ask(frames.join(KEY), f"h{host}", source=f"10.2.0.{host}", ports=(port, 80))
    assert world.table.pending_count <= limits.pending
    world.later(PENDING_S)
    world.told()
    assert world.table.pending_count == 0
    world.table.end(next(iter(only(world).subflows)))
    assert is_empty(world.table)


def test_answers_that_nobody_asked_for_are_bounded():
    world = World()
    for port in range(2 * MAX_EARLY):
        world.answer(frames.capable_answer(KEY), f"flood-{port % 16}", ports=(port % 60000, 80))
    assert world.table.pending_count == MAX_EARLY
    world.later(REORDER_S)
    assert is_empty(world.table)
    assert world.table.counts[Outcome.UNANSWERED] == MAX_EARLY


def test_a_host_that_answers_nobody_fills_its_own_share_only():
    world = World()
    for _ in range(2):
        for port in range(2 * MAX_EARLY):
            world.answer(frames.capable_answer(KEY), "flood", ports=(port, 80))
        assert world.table.pending_count == MAX_EARLY_PER_HOST
        # The answer of another host may still come before its SYN.
        early = {"source": C2, "ports": (7000, 80)}
        assert world.answer(frames.capable_answer(OTHER_KEY), **early) is Outcome.WAITING
        assert world.ask(frames.capable(), **early) is Outcome.CONNECTION
        world.table.end(next(iter(only(world).subflows)))
        world.later(REORDER_S)
        assert is_empty(world.table)


def test_a_host_that_answers_before_the_one_that_is_asked_gets_no_connection():
    world = World()
    assert world.answer(frames.capable_answer(OTHER_KEY), "thief") is Outcome.WAITING
    assert world.answer(frames.capable_answer(KEY)) is Outcome.WAITING
    assert world.ask(frames.capable()) is Outcome.CONNECTION
    assert (only(world).peer, only(world).token) == ("s", token_of(KEY, 1))
    assert world.table.pending_count == 1


def test_a_client_with_too_many_connections_loses_its_own_oldest():
    world = World(Limits(connections=40, per_client=30))
    for client in range(4):
        for port in range(5):
            assert world.connect(bytes((client, port)) * 4, f"c{client}", source=f"10.3.0.{client}", ports=(port, 80))
    for port in range(500):
        world.connect(port.to_bytes(8, "big"), "flood", "s", source="10.4.0.1", ports=(port, 80))
    counts = Counter(one.client for one in world.table.connections.values())
    assert [counts[f"c{client}"] for client in range(4)] == [5] * 4
    assert counts["flood"] == 20
    assert len(world.table.connections) == 40
    # Somebody new takes a connection from who has most of them.
    world.connect(b"new-key!", "new", source="10.5.0.1")
    counts = Counter(one.client for one in world.table.connections.values())
    assert (counts["new"], counts["flood"]) == (1, 19)
    for _ in range(50):
        world.connect(b"alone-k!", "alone", source="10.6.0.1", ports=(2, 80))
        world.table.end(syn(b"", "10.6.0.1", S1, (2, 80)).key)
    assert len(world.table.connections) == 39


HOSTS = st.sampled_from(["c", "s", "thief"])
KEYS = st.sampled_from([KEY, OTHER_KEY, CLIENT_KEY])
OPTIONS = st.one_of(
    st.just(b""), st.just(frames.capable()), KEYS.map(frames.capable_answer), KEYS.map(frames.join),
    st.just(frames.join_answer()), st.binary(max_size=12).map(lambda data: data + b"\x1e\x00"),
)  # fmt: skip
STEPS = st.tuples(
    OPTIONS, st.booleans(), HOSTS, st.sampled_from([C1, C2, S1]), st.sampled_from([S1, S2, C1]), st.integers(1, 3),
    st.floats(0, 20),
)  # fmt: skip


@pytest.mark.parametrize("limits", [Limits(), Limits(4, 2, 5, 3, 15.0)])
@given(steps=st.lists(STEPS, max_size=60))
@examples(200)
def test_whatever_comes_the_tables_agree_and_are_bounded(limits, steps):
    world = World(limits)
    table = world.table
    for options, answers, host, source, target, port, wait_s in steps:
        segment = syn(options, source, target, (port, 80), answers=answers)
        table.take(segment, host, "c", NEAR, world.now_s)
        world.later(wait_s if wait_s > 10 else 0.01 * wait_s)
        assert len(table.connections) <= limits.connections
        assert table.pending_count <= limits.pending + MAX_EARLY
        subflows = [key for one in table.connections.values() for key in one.subflows]
        assert len(subflows) == len({*subflows}) == table.subflow_count
        per_client = Counter(one.client for one in table.connections.values())
        assert all(count <= limits.per_client for count in per_client.values())
        heard = [one.heard_s for one in table.connections.values()]
        assert heard == sorted(heard)
        assert all(one.subflows for one in table.connections.values())
    for key in [key for one in table.connections.values() for key in one.subflows]:
        assert ends(key)
        table.end(key)
    world.later(PENDING_S + REORDER_S)
    assert is_empty(table)
