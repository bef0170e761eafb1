"""VLAN tags behind labels on Open vSwitch's kernel datapath, which can't put a header in front of a tagged frame.

Linux keeps the outermost tag of a frame beside the frame, and refuses ``push_eth`` while there is one. So the tags of a
user's frame are taken off in front of its label and travel as labels right behind it, and the last switch puts them
back. Datapaths in user space send the frame whole; every switch understands both:

    whole     Ethernet | label (bottom)  | user's frame with its tags
    one tag   Ethernet | label | tag (bottom) | user's frame without the tag
    two tags  Ethernet | label | outer tag | inner tag (bottom) | user's frame without the tags
    MPLS      Ethernet | label | ``NO_TAG`` | user's frame, which is MPLS itself, so that no entry is the bottom

A tag's label is 0xF0000 and the tag's 16 bits. OpenFlow can't see the type of a tag: one alone comes back as 0x8100,
the outer of two as 0x88a8. It can't see the tag's DEI bit either, which comes back as 0.

The rules of a switch are compiled without regard to all this, and changed here if its network has a kernel datapath.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from . import match as act
from .match import TAGGED, Match
from .pipeline import ETH_TYPE_MPLS, Priority, Table
from .rule import Rule

TAG_LABEL = 0xF_0000
NO_TAG = 0xE_FFFF
TAG_TYPE, OUTER_TAG_TYPE = 0x8100, 0x88A8
ETH_TYPE_MPLS_MULTICAST = 0x8848
_TAG_BITS = 16
_RESTORE = {
    Table.DELIVER: (Table.TAGS, Table.INNER_TAG, Table.ONE_TAG, Table.TWO_TAGS),
    Table.MEMBERS: (Table.MEMBER_TAGS, Table.MEMBER_INNER_TAG, Table.MEMBER_ONE_TAG, Table.MEMBER_TWO_TAGS),
}
TABLES = frozenset({Table.UNTAG, Table.UNTAG_INNER, *chain.from_iterable(_RESTORE.values())})
"""The tables that no other rules use."""
_UNTAG = act.Resubmit(Table.UNTAG)
_DECAP = (act.Decap(), act.Decap(act.PACKET_TYPE_ETHERNET))


@dataclass(frozen=True, slots=True)
class TagRules:
    """How a switch treats tags in a network with a kernel datapath; ``takes_off``: its own is in the kernel."""

    takes_off: bool

    def rules(self) -> tuple[Rule, ...]:
        """The rules of the tables for tags."""
        restoring = (_restoring(final, *tables) for final, tables in _RESTORE.items())
        return tuple(chain(_untagging() if self.takes_off else (), _marking(), *restoring))


def with_tag_rules(rules: Iterable[Rule], tags: TagRules | None) -> tuple[Rule, ...]:
    """The rules with tags taken off in front of each label, and with variants for labels that tags follow.

    Without ``tags`` they stay as they are.
    """
    return tuple(rules) if tags is None else tuple(_changed(rules))


def with_tags_off(actions: tuple[act.Action, ...], tags: TagRules | None) -> tuple[act.Action, ...]:
    """Actions with tags taken off in front of each label; without ``tags`` as they are."""
    return actions if tags is None else _untag(actions)


def _changed(rules: Iterable[Rule]) -> Iterator[Rule]:
    for rule in rules:
        yield _untagged_first(rule)
        if rule.table == Table.LABEL and rule.match.mpls_bos == 1:
            yield from _with_tags_behind(rule)


def _untagged_first(rule: Rule) -> Rule:
    actions = _untag(rule.actions)
    return rule if actions == rule.actions else replace(rule, actions=actions)


def _untag(actions: tuple[act.Action, ...]) -> tuple[act.Action, ...]:
    changed: list[act.Action] = []
    for action in actions:
        if isinstance(action, act.Clone):
            changed.append(act.Clone(_untag(action.actions)))
        elif isinstance(action, act.Encap) and action.packet_type == act.PACKET_TYPE_MPLS:
            changed += (_UNTAG, action)
        else:
            changed.append(action)
    return tuple(changed)


def _with_tags_behind(rule: Rule) -> Iterator[Rule]:
    """For a label that a switch put in front of a frame; agents' labels never have tags behind them."""
    match = replace(rule.match, mpls_bos=0)
    final = rule.actions[-1] if rule.actions else None
    if rule.actions[-3:-1] == _DECAP and isinstance(final, act.Resubmit):
        tags = _RESTORE[Table(final.table)][0]
        yield replace(rule, match=match, actions=(*rule.actions[:-3], act.PopMpls(ETH_TYPE_MPLS), act.Resubmit(tags)))
    elif rule.actions and isinstance(rule.actions[0], act.DecMplsTtl):
        yield replace(rule, match=match)


def _tag_label(register: int) -> tuple[act.Action, ...]:
    encap = act.Encap(act.PACKET_TYPE_MPLS)
    return (encap, act.SetMplsLabel(TAG_LABEL), act.Move(_TAG_BITS, register, act.MPLS_LABEL))


def _untagging() -> Iterator[Rule]:
    """Outer tag to register 0, inner tag to register 1, if there is one; then both become labels."""
    outer = (act.Move(_TAG_BITS, act.VLAN_TCI, act.REGISTER_0), act.PopVlan(), act.Resubmit(Table.UNTAG_INNER))
    inner = (act.Move(_TAG_BITS, act.VLAN_TCI, act.REGISTER_1), act.PopVlan())
    both = inner + _tag_label(act.REGISTER_1) + _tag_label(act.REGISTER_0)
    yield Rule(Table.UNTAG, Priority.UNICAST, Match(vlan=TAGGED), outer)
    yield Rule(Table.UNTAG_INNER, Priority.UNICAST, Match(vlan=TAGGED), both)
    yield Rule(Table.UNTAG_INNER, Priority.DEFAULT, Match(), _tag_label(act.REGISTER_0))


def _marking() -> Iterator[Rule]:
    """Also with tags, for what looks like labels behind a label must be ours."""
    actions = (act.Encap(act.PACKET_TYPE_MPLS), act.SetMplsLabel(NO_TAG))
    for eth_type in (ETH_TYPE_MPLS, ETH_TYPE_MPLS_MULTICAST):
        yield Rule(Table.UNTAG, Priority.UNICAST_VARIANT, Match(eth_type=eth_type), actions)


def _restoring(final: Table, tags: Table, inner: Table, one: Table, two: Table) -> Iterator[Rule]:
    """Tags to registers, the labels off, the tags on again; then ``final``."""
    last = Match(eth_type=ETH_TYPE_MPLS, mpls_bos=1)
    not_last = Match(eth_type=ETH_TYPE_MPLS, mpls_bos=0)
    save_outer, save_inner = (act.Move(_TAG_BITS, act.MPLS_LABEL, r) for r in (act.REGISTER_0, act.REGISTER_1))
    # A user's own MPLS ends here, as it does without tags: Open vSwitch can't take labels off in front of it.
    yield Rule(tags, Priority.UNICAST_VARIANT, Match(eth_type=ETH_TYPE_MPLS, mpls_label=NO_TAG))
    yield Rule(tags, Priority.UNICAST, last, (save_outer, *_DECAP, act.Resubmit(one)))
    yield Rule(tags, Priority.UNICAST, not_last, (save_outer, act.PopMpls(ETH_TYPE_MPLS), act.Resubmit(inner)))
    yield Rule(inner, Priority.UNICAST, last, (save_inner, *_DECAP, act.Resubmit(two)))
    yield Rule(one, Priority.DEFAULT, Match(), (*_tag(TAG_TYPE, act.REGISTER_0), act.Resubmit(final)))
    both = _tag(TAG_TYPE, act.REGISTER_1) + _tag(OUTER_TAG_TYPE, act.REGISTER_0)
    yield Rule(two, Priority.DEFAULT, Match(), (*both, act.Resubmit(final)))


def _tag(eth_type: int, register: int) -> tuple[act.Action, ...]:
    return (act.PushVlan(eth_type), act.Move(_TAG_BITS, register, act.VLAN_TCI))
