"""Groups of a switch session: read back with the rules, sent before what needs them, deleted after it."""

from __future__ import annotations

import struct

import pytest
from silent_switch import SilentSwitch, reply, xid_of

from hyroads.controller.ofp import match as act
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.intents import Hop, SwitchIntent, TreeBranch
from hyroads.controller.ofp.rule import GroupEntry, is_our_group
from hyroads.controller.switches.sessions import DesiredRules, SwitchSession

PARENT = Hop("a-wifi", "02:00:01:01:00:09")
COPIES = (Hop("a-plc", "02:00:01:02:00:02"), Hop("a-wifi", "02:00:01:01:00:03"))
MACS = {"a-plc": "02:00:01:02:00:01", "a-wifi": "02:00:01:01:00:01"}


def described(*groups: int) -> bytes:
    return b"".join(struct.pack("!HBxI", 8, 0, group) for group in groups)


def wanted(*labels: int) -> DesiredRules:
    branches = tuple(TreeBranch(label, PARENT, copies=COPIES) for label in labels)
    return DesiredRules(SwitchIntent("a", 1, 100, 101, macs=MACS, branches=branches), {})


@pytest.fixture
def session() -> SwitchSession:
    reports: list[str] = []
    session = SwitchSession("a", SilentSwitch(1, [*MACS]), lambda: 0.0, reports.append, lambda: None)
    session.start()
    return session


def read(session: SwitchSession, *groups: int) -> None:
    rules, asked = session.connection.take()[2:4]
    session.on_flow_stats(reply(rules))
    assert not session.is_read
    session.on_groups(reply(asked, described(*groups)))
    assert session.is_read
    # The meter of what it may send to us.
    session.connection.take()


def confirm(session: SwitchSession) -> list[bytes]:
    sent = session.connection.take()
    for message in sent:
        if message[1] == wire.BARRIER_REQUEST:
            session.on_barrier(xid_of(message))
    return sent


def test_groups_come_before_rules_and_go_after_them(session: SwitchSession) -> None:
    read(session)
    session.want(wanted(5000))
    sent = confirm(session)
    kinds = [message[1] for message in sent]
    assert kinds[:2] == [wire.GROUP_MOD, wire.BARRIER_REQUEST] and wire.GROUP_MOD not in kinds[2:]
    assert session.confirmed == wanted(5000)
    # The same copies behind another label are the same group.
    session.want(wanted(6000))
    assert wire.GROUP_MOD not in [message[1] for message in confirm(session)]
    session.want(wanted())
    kinds = [message[1] for message in confirm(session)]
    assert kinds[-2:] == [wire.GROUP_MOD, wire.BARRIER_REQUEST] and wire.GROUP_MOD not in kinds[:-2]
    assert session.synced


def test_what_is_there_is_not_sent_again_and_what_is_not_ours_stays(session: SwitchSession) -> None:
    buckets = [(act.SetEthSrc(MACS["a-plc"]), act.SetEthDst(COPIES[0].mac), act.Output(1))]
    buckets.append((act.SetEthSrc(MACS["a-wifi"]), act.SetEthDst(COPIES[1].mac), act.Output(act.IN_PORT)))
    known, stale, foreign = GroupEntry(tuple(buckets)).id, 0x4ABCDEF0, 7
    assert is_our_group(known) and is_our_group(stale) and not is_our_group(foreign)
    read(session, known, stale, foreign)
    session.want(wanted(5000))
    mods = [message for message in confirm(session) if message[1] == wire.GROUP_MOD]
    assert [struct.unpack_from("!HBxI", message, 8) for message in mods] == [(wire.GROUP_DELETE, 0, stale)]


def test_a_switch_that_knows_no_groups_is_read_all_the_same(session: SwitchSession) -> None:
    rules, asked = session.connection.take()[2:4]
    session.on_flow_stats(reply(rules))
    session.on_error(wire.message(struct.pack("!HH", 1, 2) + asked[:8], xid_of(asked), wire.ERROR))
    assert session.is_read


def test_a_refused_group_is_not_taken_for_known(session: SwitchSession) -> None:
    read(session)
    session.want(wanted(5000))
    group = next(message for message in session.connection.sent if message[1] == wire.GROUP_MOD)
    session.on_error(wire.message(struct.pack("!HH", 6, 1) + group[:8], xid_of(group), wire.ERROR))
    confirm(session)
    # The rule went out before the refusal was known; a real switch refuses it, too.
    session.want(wanted(5000, 6000))
    assert wire.GROUP_MOD in [message[1] for message in session.connection.sent]


def test_two_groups_of_one_id_by_chance_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from hyroads.controller.ofp.sessions import Groups

    groups, first = Groups(), [(act.Output(1),), (act.Output(2),)]
    (one,) = groups.copies(first)
    (entry,) = groups.by_id.values()
    groups.by_id = {GroupEntry(((act.Output(3),), (act.Output(4),))).id: entry}
    assert isinstance(one, act.Group)
    assert groups.copies([(act.Output(3),), (act.Output(4),)]) == (
        act.Clone((act.Output(3),)),
        act.Clone((act.Output(4),)),
    )
