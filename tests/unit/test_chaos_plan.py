"""What ``hyroads chaos`` breaks: a pure function of network, minutes and seed that forgets nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core import topologies
from hyroads.controller.core.network import Network
from hyroads.controller.files.documents import read_file
from hyroads.mininet.chaos.plan import (
    ALL,
    NATURES,
    Event,
    Fault,
    Group,
    Kind,
    Part,
    allowance,
    both_directions,
    connected,
    cuttable,
    parts_of,
    plan,
    ways,
)
from hyroads.mininet.run_directory import find_network

TRIANGLE = read_file(find_network("triangle"))
OFFICE = topologies.office22_panels(random.Random(6))
EVERYTHING = {"controllers": 3, "etcd": 3, "radios": True, "snmp": True, "sliced": True}


PARTS = {network: parts_of(each) for network, each in (("triangle", TRIANGLE), ("office", OFFICE))}
NETWORKS = {"triangle": TRIANGLE, "office": OFFICE}


def events(network: Network, minutes: float, seed: int, **parts: int) -> tuple[Event, ...]:
    return plan(network, minutes, seed, parts_of(network, **parts))  # type: ignore[arg-type]


def test_the_same_seed_is_the_same_sequence_also_in_another_process() -> None:
    program = (
        "from hyroads.controller.files.documents import read_file; from hyroads.mininet.chaos.plan import *; "
        "from hyroads.mininet.run_directory import find_network; n = read_file(find_network('triangle')); "
        "print(*plan(n, 3.0, 7, parts_of(n)), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(event) for event in events(TRIANGLE, 3.0, 7)]
    assert events(TRIANGLE, 3.0, 7) != events(TRIANGLE, 3.0, 8)


@pytest.mark.parametrize("network", [TRIANGLE, OFFICE], ids=["triangle", "office"])
def test_ten_minutes_break_every_part_in_every_way_and_pairs_of_them(network: Network) -> None:
    found = plan(network, 20.0, 1, parts_of(network, **EVERYTHING))  # type: ignore[arg-type]
    broken = Counter((fault.part.group, fault.kind) for event in found for fault in event.faults)
    assert broken.keys() == NATURES.keys()
    assert max(broken.values()) <= min(broken.values()) + 2, "all about as often"
    pairs = [event for event in found if len(event.faults) == 2]
    assert len(found) / 4 < len(pairs) <= len(found) / 3
    assert [event.number for event in found] == list(range(1, len(found) + 1))


@given(st.integers(0, 10_000), st.sampled_from(list(NETWORKS)), st.sampled_from([0.5, 1.0, 3.0]))
def test_no_event_parts_the_network_or_breaks_a_part_twice_or_takes_too_long(
    seed: int, name: str, minutes: float
) -> None:
    network = NETWORKS[name]
    found = plan(network, minutes, seed, PARTS[name])
    assert found
    for event in found:
        cuts = {fault.part.name for fault in event.faults if fault.part.group is Group.LINK}
        assert connected(network, cuts)
        assert len({fault.part for fault in event.faults}) == len(event.faults)
        least = min(NATURES[fault.part.group, fault.kind].hold_s[0] for fault in event.faults)
        assert least <= event.hold_s <= 6.0
    assert sum(event.hold_s + event.stagger_s for event in found) < 60 * minutes


def test_only_parts_that_are_there_are_broken_and_only_as_the_machine_can() -> None:
    parts = parts_of(TRIANGLE, radios=False)
    assert {part.group for part in parts}.isdisjoint({Group.RADIOS, Group.SLICER, Group.ETCD, Group.SNMPD})
    found = plan(TRIANGLE, 10.0, 1, parts, ways(["kill"]))
    assert {fault.kind for event in found for fault in event.faults} == {Kind.KILL}
    assert {fault.part for event in found for fault in event.faults} <= set(parts)
    assert plan(TRIANGLE, 10.0, 1, parts, ways(["radios"])) == ()


def test_the_only_link_between_two_switches_is_never_broken() -> None:
    both = [link.id for link in TRIANGLE.links if {link.source, link.target} == {"a", "b"}]
    one = next(each for each in both if "plc" in each)
    assert set(cuttable(TRIANGLE)) == {"ab-plc", "ab-wifi"}
    assert not connected(TRIANGLE, set(both))
    assert set(both_directions(TRIANGLE, one)) == {"ab-plc", "ab-plc~"}


def test_what_keeps_a_fault_from_being_noticed_may_cost_all_until_it_is_over() -> None:
    cut, lose = Fault(Part(Group.LINK, "ab-plc"), Kind.CUT), Fault(Part(Group.LINK, "ab-plc"), Kind.LOSE, 0.2)
    frozen, radios = Fault(Part(Group.CONTROLLER, "c1"), Kind.STOP), Fault(Part(Group.RADIOS), Kind.KILL)
    assert allowance(Event(1, (cut,), 2.0)).lost_s < 1.0
    assert allowance(Event(1, (cut, radios), 2.0)).lost_s < 1.5
    assert allowance(Event(1, (cut, frozen), 2.0)).lost_s == ALL
    assert allowance(Event(1, (frozen,), 6.0)).lost_s < 1.0, "switches and agents go on"
    assert allowance(Event(1, (lose,), 5.0)).lost_s == pytest.approx(allowance(Event(1, (cut,), 2.0)).lost_s + 3.0)
