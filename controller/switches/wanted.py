"""The rules that one switch shall have, kept from one goal to the next: one flow more or less costs that flow.

Pure. The rules of the network and of sessions are made again when their intent, the ports, the addresses of interfaces
or the treatment of tags change, and then all rules are compared with those in the switch. The rules of a flow are kept
as long as the flow is the very object. Once the switch is known to have all that is wanted, only rules that changed are
compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from hyroads.controller.core.mappings import differing
from hyroads.controller.ofp.diff import Change, Installed, difference, difference_at
from hyroads.controller.ofp.intents import ClassifiedFlow, SwitchIntent, translated
from hyroads.controller.ofp.rule import GroupEntry, Rule, RuleKey, is_ours
from hyroads.controller.ofp.rules import flow_rules, network_rules, rules_of_sessions
from hyroads.controller.ofp.vlan_tags import TagRules

Ports = tuple[tuple[str, int], ...]
"""Names and numbers of ports, by name."""
NO_ADDRESSES: Mapping[str, str] = MappingProxyType({})
Made = dict[str, tuple[Rule, ...]]
"""Flow -> its rules."""


@dataclass(frozen=True)
class _Base:
    """All rules but those of flows, and what they were made of."""

    intent: SwitchIntent
    ports: Ports
    tags: TagRules | None
    addresses: Mapping[str, str]
    """Name of an interface in the intent -> its address, where these differ."""
    network: SwitchIntent
    """The intent without flows and sessions."""
    network_rules: tuple[Rule, ...]
    rules: tuple[Rule, ...]
    groups: tuple[GroupEntry, ...]


def _base(
    intent: SwitchIntent, ports: Ports, tags: TagRules | None, addresses: Mapping[str, str], last: _Base | None
) -> _Base:
    """The last one if it is the same; what differs in sessions alone shares the rest with it."""
    is_alike = last is not None and (last.ports, last.tags, last.addresses) == (ports, tags, addresses)
    if last is not None and is_alike and last.intent is intent:
        return last
    network = replace(intent, flows=(), branches=(), entries=(), members=(), hears_reports=False)
    if last is not None and is_alike and last.network == network:
        network, rules = last.network, last.network_rules
    else:
        rules = network_rules(translated(network, addresses), dict(ports), tags).rules
    sessions = rules_of_sessions(translated(intent, addresses), dict(ports), tags)
    return _Base(intent, ports, tags, addresses, network, rules, rules + sessions.rules, sessions.groups)


@dataclass(frozen=True, slots=True)
class _Handing:
    """How a switch hands frames of flows to its agent: what the rules of all flows depend on."""

    number: int | None
    """Of the agent's port; None: it is not there, and neither are rules."""
    relays: bool
    tags: TagRules | None

    def rules(self, flow: ClassifiedFlow) -> tuple[Rule, ...]:
        if self.number is None:
            return ()
        return flow_rules(flow, self.number, relays=self.relays, tags=self.tags)


def _handing(intent: SwitchIntent, ports: Mapping[str, int], tags: TagRules | None) -> _Handing:
    number = ports.get(intent.agent.access) if intent.agent is not None else None
    return _Handing(number, intent.relays, tags)


class _Flows:
    """Flows and their rules."""

    def __init__(self) -> None:
        self.flows: Mapping[str, ClassifiedFlow] = {}
        self.handing: _Handing | None = None
        self.rules: Made = {}

    def follow(self, flows: Mapping[str, ClassifiedFlow], handing: _Handing, others: _Flows) -> tuple[Made, Made]:
        """Take these flows for those of before: the rules that go with that, and those that come. What ``others``
        made is not made again. Nothing changes if a rule can't be made (OpenFlowError).
        """
        changed = differing(self.flows, flows) if handing == self.handing else {*self.flows, *flows}
        known = others.flows if others.handing == handing else {}
        # Sorted: what is sent does not depend on the order of a set.
        come = {
            name: others.rules[name] if known.get(name) is flows[name] else handing.rules(flows[name])
            for name in sorted(changed)
            if name in flows
        }
        gone = {name: self.rules.pop(name) for name in changed if name in self.rules}
        self.rules.update(come)
        self.flows, self.handing = flows, handing
        return gone, come


class WantedRules:
    """What one switch shall have (:meth:`follow`), and what has to be sent for it (:meth:`change`). For one session:
    what a switch that was read has is compared as a whole.

    Mappings of flows that it is given must not change afterwards: what differs from the last one is found by identity.
    """

    def __init__(self) -> None:
        self._base: _Base | None = None
        self._flows, self._viewed = _Flows(), _Flows()
        self._cookies: dict[str, int] = {}
        """Of the flows that were viewed."""
        self._by_key: dict[RuleKey, Rule] = {}
        """Rules of flows."""
        self._is_unique = True
        """No two flows have rules with the same key."""
        self._is_whole = True
        """All rules are to be compared: the switch is not known to have all but those that changed."""
        self._changed: dict[RuleKey, None] = {}
        """Keys of flows' rules that changed since the switch was known to have all that was wanted."""
        self._conflicts: dict[RuleKey, Rule] = {}

    def follow(
        self,
        intent: SwitchIntent,
        flows: Mapping[str, ClassifiedFlow],
        ports: Ports,
        tags: TagRules | None,
        addresses: Mapping[str, str] = NO_ADDRESSES,
    ) -> None:
        """The switch shall do this from now on, with these ``addresses`` of the interfaces that the intent names.
        OpenFlowError, and nothing changes, if that can't be encoded.
        """
        base = _base(intent, ports, tags, addresses, self._base)
        gone, come = self._flows.follow(flows, _handing(intent, dict(ports), tags), self._viewed)
        if base is not self._base:
            self._base, self._is_whole = base, True
        if not self._is_unique:
            self._by_key, self._is_unique, self._is_whole = {}, True, True
            gone, come = {}, self._flows.rules
        for rule in (rule for rules in gone.values() for rule in rules):
            self._by_key.pop(rule.key, None)
            self._changed[rule.key] = None
        for rule in (rule for rules in come.values() for rule in rules):
            self._is_unique &= self._by_key.setdefault(rule.key, rule) is rule
            self._changed[rule.key] = None

    def rules(self) -> tuple[Rule, ...]:
        """All of them."""
        base = self._base.rules if self._base is not None else ()
        return base + tuple(rule for rules in self._flows.rules.values() for rule in rules)

    def change(self, installed: Mapping[RuleKey, Installed], groups: Iterable[int]) -> Change:
        """What is to be sent to a switch with these rules, by key, and groups: none if it has all that is wanted, which
        is known from then on. OpenFlowError if two wanted rules have the same key but differ.
        """
        if self._is_whole or not self._is_unique:
            return self._whole_change(installed, groups)
        change = difference_at(self._changed, self._by_key, installed)
        for key in self._changed:
            self._conflicts.pop(key, None)
        self._conflicts.update((rule.key, rule) for rule in change.conflicts)
        if not change:
            self._changed = {}
        return replace(change, conflicts=tuple(self._conflicts.values()))

    def _whole_change(self, installed: Mapping[RuleKey, Installed], groups: Iterable[int]) -> Change:
        rules, needed = self.rules(), self._base.groups if self._base is not None else ()
        change = difference(rules, installed.values(), needed, groups)
        self._conflicts = {rule.key: rule for rule in change.conflicts}
        if not change and self._is_unique:
            # A switch may write a match in another way than we do: such a rule is known by its cookie alone.
            keys = {rule.key for rule in rules}
            self._is_whole = any(is_ours(rule.cookie) and key not in keys for key, rule in installed.items())
            self._changed = {}
        return change

    def cookies(
        self,
        intent: SwitchIntent,
        flows: Mapping[str, ClassifiedFlow],
        ports: Mapping[str, int],
        tags: TagRules | None,
    ) -> Mapping[str, int]:
        """Flow -> the cookie of the rule that classifies it in a switch that does this; empty without the agent's port.
        The next call changes the mapping.
        """
        gone, come = self._viewed.follow(flows, _handing(intent, ports, tags), self._flows)
        for name in gone:
            self._cookies.pop(name, None)
        self._cookies.update((name, rules[0].cookie) for name, rules in come.items() if rules)
        return self._cookies
