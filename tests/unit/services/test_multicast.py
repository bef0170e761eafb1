"""Trees of least airtime: laws, examples, the ratio to the exact optimum, joins and leaves."""

import random

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from multicast_optimum import is_tree, least_airtime, net, random_network

from hyroads.controller.core.errors import NoRouteError, PlanningError
from hyroads.controller.core.multicast import GroupRate, Media, Tree, grown, pruned, source_tree
from hyroads.controller.core.multicast_session import (
    Session,
    adapted,
    refreshed,
)
from hyroads.controller.study import networks as study_networks


def among(media: Media, session: Session, nodes) -> Session:
    """The session with exactly these participants, who all reach each other."""
    found, lost = adapted(media, session, nodes, nodes)
    assert not lost
    return found


def changes(before: Session, after: Session) -> int:
    """How many (source, link) pairs come or go."""
    pairs = [{(source, link) for source, tree in s.trees.items() for link in tree.links} for s in (before, after)]
    return len(pairs[0] ^ pairs[1])


def brute_force(media: Media, source: str, members) -> float:
    """Every choice of at most one incoming link per node that is a tree."""
    nodes = [node for node in media.network.nodes if node != source]
    best = [np.inf]

    def choose(at: int, parent: dict[str, int]) -> None:
        if at == len(nodes):
            tree = Tree(source, frozenset(members) - {source}, dict(parent))
            if is_tree(media, tree):
                best[0] = min(best[0], media.airtime(pruned(media, tree, tree.members).links))
            return
        choose(at + 1, parent)
        for link in media.ingress[nodes[at]]:
            choose(at + 1, {**parent, nodes[at]: link})

    choose(0, {})
    return best[0]


def test_a_shared_medium_is_used_once_for_several_receivers():
    media = Media(net(("s", "a", "wifi", 10.0), ("s", "b", "wifi", 20.0), ("s", "c", "wifi", 40.0)))
    tree = source_tree(media, "s", "abc")
    assert [(t.links, t.airtime_s_per_mb) for t in media.transmissions(tree.links)] == [((0, 1, 2), 0.1)]
    # Not so on full-duplex Ethernet, nor for plain clients, which get a copy each.
    wired = Media(net(("s", "a", "lan", 10.0), ("s", "b", "lan", 20.0), unshared=frozenset({"lan"})))
    assert wired.airtime(source_tree(wired, "s", "ab").links) == pytest.approx(0.15)
    plain = Media(net(("s", "a", "wifi", 10.0), ("s", "b", "wifi", 20.0), ("s", "c", "wifi", 40.0), plain="bc"))
    assert plain.airtime(source_tree(plain, "s", "abc").links) == pytest.approx(0.1 + 0.05 + 0.025)


def test_a_group_at_the_rate_of_the_slowest_neighbour_is_used_only_where_copies_cost_more():
    links = [("s", "a", "wifi", 10.0), ("s", "b", "wifi", 20.0), ("s", "c", "wifi", 40.0)]
    media = Media(net(*links, ("s", "x", "wifi", 8.0)), group_rate=GroupRate.NEIGHBOURS)
    all_ = media.transmissions(source_tree(media, "s", "abc").links)
    assert [(t.links, t.airtime_s_per_mb) for t in all_] == [((0, 1, 2), 0.125)]
    assert [t.links for t in media.transmissions(source_tree(media, "s", "bc").links)] == [(1,), (2,)]


def test_the_broadcast_advantage_decides_the_tree():
    # By itself b is cheaper through a (1/100 + 1/100) than at 40; but s reaches a at 40 or slower anyway once c is in.
    links = (("s", "a", "wifi", 100.0), ("a", "b", "plc", 100.0), ("s", "b", "wifi", 40.0), ("s", "c", "wifi", 40.0))
    media = Media(net(*links))
    assert media.airtime(source_tree(media, "s", "ab").links) == pytest.approx(0.02)
    assert source_tree(media, "s", "abc").links == {0, 2, 3}
    assert media.airtime(source_tree(media, "s", "abc").links) == pytest.approx(0.025)


def test_airtime_in_domains_counts_a_group_transmission_once():
    network = net(("s", "a", "wifi", 10.0), ("s", "b", "wifi", 20.0), ("a", "s", "wifi", 10.0), ("s", "a", "plc", 5.0))
    media = Media(network)
    assert media.domain_airtime(source_tree(media, "s", "ab").links) == pytest.approx([0.1, 0.1, 0.1, 0.0])


def test_what_cannot_be_reached_is_an_error():
    media = Media(net(("s", "a", "wifi", 10.0), ("b", "a", "wifi", 10.0), ("a", "c", "wifi", 0.0)))
    for missing in "bc":
        with pytest.raises(NoRouteError, match=missing):
            source_tree(media, "s", ["a", missing])
        with pytest.raises(NoRouteError):
            least_airtime(media, "s", ["a", missing])
    with pytest.raises(PlanningError, match="nobody"):
        source_tree(media, "s", ["nobody"])


def test_plain_clients_do_not_relay_but_take_part():
    links = (("s", "c", "wifi", 100.0), ("c", "d", "wifi", 100.0), ("s", "d", "plc", 1.0), ("c", "s", "wifi", 100.0))
    media = Media(net(*links, plain="c"))
    assert source_tree(media, "s", "cd").links == {0, 2}
    assert source_tree(media, "c", "sd").links == {1, 3}


@examples(60)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 4), st.sampled_from(GroupRate))
def test_the_yardstick_is_what_trying_everything_finds(seed, size, count, group_rate):
    rng = random.Random(seed)
    media = Media(random_network(rng, size), group_rate=group_rate)
    nodes = list(media.network.nodes)
    members = rng.sample(nodes[1:], min(count, len(nodes) - 1))
    best = brute_force(media, nodes[0], members)
    if best == np.inf:
        with pytest.raises(NoRouteError):
            source_tree(media, nodes[0], members)
        return
    assert least_airtime(media, nodes[0], members) == pytest.approx(best, rel=1e-6)
    tree = source_tree(media, nodes[0], members)
    assert is_tree(media, tree) and media.airtime(tree.links) >= best * (1 - 1e-9)


@examples(40)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 7), max_size=15))
def test_joins_and_leaves(seed, row):
    """Trees stay trees for exactly the participants; what has nothing to do with who comes or goes stays."""
    media = Media(random_network(random.Random(seed), 8))
    nodes = list(media.network.nodes)
    session = Session("chat")
    for number in row:
        node = nodes[number % len(nodes)]
        before = session
        if node in session.participants:
            session = among(media, session, session.participants - {node})
            for source, tree in session.trees.items():
                assert tree.links <= before.trees[source].links
        else:
            session, lost = adapted(media, session, everyone := session.participants | {node}, everyone)
            if lost:  # not to be reached by all: refused
                session = before
                continue
            for source, tree in before.trees.items():
                assert tree.links <= session.trees[source].links
        for source, tree in session.trees.items():
            assert tree.source == source and is_tree(media, tree)
            assert tree.members == session.participants - {source}
            leaves = set(tree.parent) - {media.network.links[i].source for i in tree.links}
            assert leaves <= tree.members  # no branch that nobody needs
    fresh = refreshed(media, session)
    for source, tree in fresh.trees.items():
        assert media.airtime(tree.links) <= media.airtime(session.trees[source].links)


def test_a_join_changes_few_links():
    rng = random.Random(5)
    network = study_networks.enterprise(rng, node_count=14)
    media, nodes = Media(network), list(network.nodes)
    session = among(media, Session("chat"), nodes[:6])
    bigger = among(media, session, [*nodes[:6], nodes[9]])
    own = len(bigger.trees[nodes[9]].links)
    assert 0 < changes(session, bigger) - own <= 6 * 3
    assert changes(session, among(media, bigger, nodes[:6])) <= changes(session, bigger) - own


def test_a_broken_link_is_mended_and_who_is_cut_off_is_named():
    links = [(a, b, "wifi", 10.0) for a, b in ("sa", "as", "ab", "ba")]
    network = net(
        *links, ("s", "b", "plc", 1.0), ("b", "s", "plc", 1.0), ("s", "c", "plc", 5.0), ("c", "s", "plc", 5.0)
    )
    session = among(Media(network), Session("chat"), "sabc")
    broken = network.with_capacities(
        {link.id: 0.0 for link in network.links if {link.source, link.target} == set("ab")}
    )
    mended, lost = adapted(Media(broken), session, "sabc", "sabc")
    assert not lost and all(is_tree(Media(broken), tree) for tree in mended.trees.values())
    dead = broken.with_capacities({link.id: 0.0 for link in network.links if "c" in (link.source, link.target)})
    mended, lost = adapted(Media(dead), session, "sabc", "sabc")
    assert lost["s"] == {"c"} and mended.trees["s"].members == {"a", "b"}
    again, lost = adapted(Media(network), mended, "sabc", "sabc")
    assert not lost and again.trees["s"].members == {"a", "b", "c"}


def test_growing_a_member_that_is_already_a_relay_costs_nothing():
    media = Media(net(("s", "a", "wifi", 10.0), ("a", "b", "wifi", 10.0)))
    tree = source_tree(media, "s", "b")
    more = grown(media, tree, "a")
    assert more.links == tree.links and more.members == {"a", "b"}
