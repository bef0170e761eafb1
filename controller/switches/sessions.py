"""The only place that sends OpenFlow: one :class:`SwitchSession` per connection keeps a switch at what is wanted.

On connection the rules in the switch are read back; from then on wanted rules are compared with what is known to be in
it, the difference is sent as one batch, and the barrier's answer makes it known. Nothing is ever flushed. A batch that
is not answered ends the connection: the switch dials again and is read back again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from struct import Struct

from hyroads.controller.control.flow_order import SwitchView
from hyroads.controller.core.errors import OpenFlowError
from hyroads.controller.framework.ryu_shim import Connection
from hyroads.controller.ofp import wire
from hyroads.controller.ofp.access import is_access
from hyroads.controller.ofp.diff import Batch, Installed, batch_of, error_of, next_xid
from hyroads.controller.ofp.hosts import is_learned
from hyroads.controller.ofp.intents import ClassifiedFlow, SwitchIntent
from hyroads.controller.ofp.match import Match
from hyroads.controller.ofp.pipeline import Table
from hyroads.controller.ofp.readback import (
    FlowStat,
    PortCounters,
    parse_flow_stats,
    parse_groups,
    parse_meters,
    parse_port_stats,
)
from hyroads.controller.ofp.rule import MARK_MASK, MARK_VALUE, GroupEntry, Rule, RuleKey, is_ours
from hyroads.controller.ofp.vlan_tags import TABLES as TAG_TABLES
from hyroads.controller.ofp.vlan_tags import TagRules

from .access_layer import AccessLayer
from .host_layer import ANSWER_WITHIN_S, MAX_PUNTED_PER_S, RETRY_REFUSED_S, HostLayer
from .roles import SwitchRole, parse_role_reply
from .wanted import Ports, WantedRules

LOG = logging.getLogger("hyroads.switches")
MAX_PORTS = 65_536
MAX_READBACK_RULES = 1_000_000
MAX_READBACK_GROUPS = 65_536
_METER_FEATURES = Struct("!IIIBBxx")


@dataclass(frozen=True)
class DesiredRules:
    """What a switch shall do: its intent without flows (but with sessions), and the flows that it may classify.

    Who changes ``flows`` makes another mapping; a flow that stays is the very object in both.
    """

    intent: SwitchIntent
    flows: Mapping[str, ClassifiedFlow]


@dataclass
class Counters:
    """Since the controller started."""

    flow_mods: int = 0
    errors: int = 0
    packet_ins: int = 0


@dataclass
class SwitchSession:
    """One connection to a known switch. ``report(what)`` is told of what went wrong, ``changed()`` of progress,
    ``datapath_known(self)`` of where its datapath is.
    """

    node: str
    connection: Connection
    clock: Callable[[], float]
    report: Callable[[str], None]
    changed: Callable[[], None]
    counters: Counters = field(default_factory=Counters)
    datapath_known: Callable[[SwitchSession], None] = lambda session: None
    was_read: Callable[[], None] = lambda: None
    """Told once its rules and groups are known."""
    touched: Callable[[], None] = lambda: None
    """Told whenever :meth:`view` or what :meth:`want` sends may be another one than before."""
    has_asked: Callable[[], None] = lambda: None
    """Told whenever an answer to something is awaited from now on, by a time that :meth:`tick` looks at."""
    in_kernel: bool | None = None
    """Whether its datapath is in the kernel; None: not known yet."""
    tags: TagRules | None = None
    """How it treats VLAN tags; None: there is no kernel datapath in the network, or it refused to."""
    tags_refused: bool = False
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Name of an interface in intents -> its address, where these differ; :meth:`use_addresses` changes it."""
    role: SwitchRole | None = None
    """None: there is one controller, and no role is ever asked for."""

    def __post_init__(self) -> None:
        self.ports = self.connection.ports()
        self._wanted = WantedRules()
        self._installed: dict[RuleKey, Installed] | None = None
        self._classifying: set[int] = set()
        """Cookies of installed rules of CLASSIFY."""
        self._reading: list[Installed] = []
        self._readback_xid = 0
        self._groups: set[int] = set()
        self._groups_xid: int | None = None
        self._meters_xid: int | None = None
        self._controller_meter_xid: int | None = None
        self._all_meters_xid: int | None = None
        self._counters_xid = 0
        self._on_counters: Callable[[FlowStat], None] = lambda stat: None
        self._uses_xid = 0
        self._on_use: Callable[[FlowStat], None] = lambda stat: None
        self._batch: Batch | None = None
        self._deadline_s = math.inf
        self._last_xid = 0
        self._goal: _Goal | None = None
        self._ports_of_goal: Mapping[str, int] | None = None
        """The ports that the goal was compared with last."""
        self._told: dict[str, ClassifiedFlow] = {}
        self._viewed: tuple[DesiredRules, object, object, object, object, object, object, int, SwitchView] | None = None
        self._applied = 0
        self._confirmed_goal: _Goal | None = None
        self._refused: tuple[RuleKey, ...] = ()
        self._refused_until_s = 0.0
        self._ports_xid: int | None = None
        self._ports_until_s = 0.0
        self._port_counters: list[PortCounters] = []
        self._life_until_s = math.inf
        send, may_change, report = self.connection.send, lambda: self.may_change, self._fault
        self.hosts = HostLayer(send, self.xid, self.clock, report, may_send=may_change)
        self.access = AccessLayer(send, self.xid, self.clock, report, self.changed, may_send=may_change)

    # -- what the controller asks

    @property
    def may_change(self) -> bool:
        """Whether the switch takes changes from us: always, or once it has confirmed that we are its master."""
        return self.role is None or self.role.is_master

    @property
    def is_read(self) -> bool:
        """Whether the switch's rules are known."""
        return self._installed is not None

    @property
    def confirmed(self) -> DesiredRules | None:
        """What was wanted the last time that all of it was in force; None: not yet."""
        return None if self._confirmed_goal is None or self._refused else self._confirmed_goal.wanted

    @property
    def synced(self) -> bool:
        """Whether everything last wanted is in force, also of learned hosts and access rules."""
        return self._is_at_goal and self.hosts.is_in_force and self.access.is_in_force

    @property
    def has_confirmed(self) -> bool:
        """Whether all that is asked for by REST is in force: rules of flows and sessions, and access rules."""
        return self._is_at_goal and self.access.is_told and self.access.is_in_force

    @property
    def _is_at_goal(self) -> bool:
        return self._goal is not None and self._goal is self._confirmed_goal and not self._refused

    @property
    def rule_count(self) -> int:
        """Our rules in the switch, as far as is known."""
        return len(self._installed or ()) + self.hosts.rule_count + self.access.rule_count

    @property
    def vlan_tags(self) -> str | None:
        """What becomes of VLAN tags in frames that enter the network here: ``whole``, ``rebuilt`` at the far end from
        what OpenFlow can see of them, or ``lost`` with their frames; None: not known.
        """
        if self.in_kernel is None:
            return None
        carried = "rebuilt" if self.tags is not None else "lost"
        return carried if self.in_kernel else "whole"

    def view(self, wanted: DesiredRules) -> SwitchView:
        """Which flows are classified now, surely and possibly: of those in ``wanted`` and of those told before."""
        seen = self._viewed
        if (
            seen is not None
            and (seen[0] is wanted or (seen[0].intent is wanted.intent and seen[0].flows is wanted.flows))
            and seen[1] is self.ports
            and seen[2] is self.tags
            and seen[3] is self._goal
            and seen[4] is self._confirmed_goal
            and seen[5] is self._batch
            and seen[6] is self._refused
            and seen[7] == self._applied
        ):
            return seen[8]
        view = self._view(wanted)
        if seen is not None and seen[8] == view:
            # Whoever works with views looks only at those that are another object.
            view = seen[8]
        goals = (self._goal, self._confirmed_goal)
        self._viewed = (wanted, self.ports, self.tags, *goals, self._batch, self._refused, self._applied, view)
        return view

    def _view(self, wanted: DesiredRules) -> SwitchView:
        # A cookie says all of a rule, so it is enough to know which are there; what looks at every flow is compiled.
        cookies = self._wanted.cookies(wanted.intent, {**self._told, **wanted.flows}, self.ports, self.tags)

        def flows_of(found: Container[int]) -> frozenset[str]:
            return frozenset(compress(cookies, map(found.__contains__, cookies.values())))

        ready = self._confirmed_goal is not None and not self._refused
        sure = flows_of(self._classifying)
        if self._batch is None:
            return SwitchView(ready, sure, sure)
        change, installed = self._batch.change, self._installed or {}
        replaced = (installed.get(rule.key) for rule in change.adds)
        unsure = {rule.cookie for rule in (*replaced, *change.deletes) if rule is not None}
        return SwitchView(ready, sure - flows_of(unsure), sure | flows_of({rule.cookie for rule in change.adds}))

    def goes_on_from(self, old: SwitchSession) -> None:
        """Take the place of another session on the same connection: answers to it must not be taken for ours."""
        self._last_xid, self.in_kernel = old._last_xid, old.in_kernel

    def start(self) -> None:
        """Begin, and read at once what is in the switch."""
        self.begin()
        self.read()

    def begin(self) -> None:
        """Ask for our role, and where its datapath is; :meth:`read` has to follow."""
        # In this order: rules that depend on the datapath must not be deleted because the answer is not there yet.
        self._meters_xid, self._readback_xid, self._groups_xid = self.xid(), self.xid(), self.xid()
        # A role comes first: what is read after it no other controller can change any more.
        role = b""
        if self.role is not None:
            self._controller_meter_xid = self.xid()
            role = self.role.begin() + wire.controller_meter_request(self._controller_meter_xid)
        self._all_meters_xid = self.xid()
        meters = wire.meter_features_request(self._meters_xid) + wire.meters_request(self._all_meters_xid)
        self.connection.send(role + meters)

    def read(self) -> None:
        """Ask for the rules and groups in the switch."""
        self._deadline_s = self.clock() + ANSWER_WITHIN_S
        groups_xid = self._groups_xid if self._groups_xid is not None else self.xid()
        self.connection.send(wire.flow_stats_request(self._readback_xid) + wire.group_desc_request(groups_xid))

    def want(self, wanted: DesiredRules) -> bool:
        """Set the goal; whether it is another one. Sends the difference unless a batch is under way (then after it)."""
        goal = self._goal
        is_same = goal is not None and goal.wanted is wanted and goal.tags is self.tags
        if goal is not None and is_same and self._ports_of_goal is self.ports and goal.addresses is self.addresses:
            self._advance()
            return False
        self._ports_of_goal = self.ports
        ports = tuple(sorted(self.ports.items()))
        new = goal is None or goal.wanted != wanted or goal.ports != ports or goal.tags != self.tags
        new = new or (goal is not None and goal.addresses != self.addresses)
        if new:
            self._wanted.follow(wanted.intent, wanted.flows, ports, self.tags, self.addresses)
            self._goal = _Goal(wanted, ports, self.tags, self.addresses)
            self._told.update(wanted.flows)
            self._refused = ()
            self.touched()
        self._advance()
        return new

    def carry(self, tags: TagRules | None) -> None:
        """How it shall treat VLAN tags, unless it refused to before."""
        if tags == self.tags or (self.tags_refused and tags is not None):
            return
        self.tags = tags
        self.touched()
        self.hosts.carry(tags)
        if self._goal is not None:
            self.want(self._goal.wanted)

    def use_addresses(self, addresses: Mapping[str, str]) -> None:
        """The interfaces that intents name have these addresses, as far as they differ; rules follow at once."""
        if addresses != self.addresses:
            self.addresses = addresses
            self.touched()
            if self._goal is not None:
                self.want(self._goal.wanted)

    def _is_idle(self) -> bool:
        """Whether no answer is awaited, and nothing is to be tried again."""
        is_read = self._batch is None and self._installed is not None
        is_quiet = is_read and not self._refused and self._life_until_s == math.inf
        return is_quiet and self.hosts.is_idle and self.access.is_idle

    def tick(self) -> bool:
        """Ends a connection that does not answer; tries again what was refused. Whether nothing is awaited."""
        if self._is_idle():
            return True
        self._look_at_times()
        return False

    def _look_at_times(self) -> None:
        now_s = self.clock()
        waiting = self._batch is not None or self._installed is None
        layers_late = [self.hosts.is_late(), self.access.is_late()]
        is_late = (waiting and now_s > self._deadline_s) or any(layers_late)
        if (is_late or now_s > self._life_until_s) and self.connection.has_unread():
            # It answered something, and it is us who are late.
            return
        if is_late:
            self.report(f"no answer in {ANSWER_WITHIN_S:g} s, closing the connection")
            self._deadline_s = now_s + ANSWER_WITHIN_S
            self.connection.close()
        elif now_s > self._life_until_s:
            self.report("no sign of life, closing the connection")
            self._life_until_s = math.inf
            self.connection.close()
        elif self._refused and now_s > self._refused_until_s:
            self._refused = ()
            self._confirmed_goal = None
            self.touched()
            self._advance()

    def ask_counters(self, matches: Iterable[Match], told: Callable[[FlowStat], None]) -> None:
        """Ask for the counters of our rules of CLASSIFY with these fields; ``told`` gets what comes for the last
        question.
        """
        self._counters_xid, self._on_counters = self.xid(), told
        ours = partial(wire.flow_stats_request, table=Table.CLASSIFY, cookie=MARK_VALUE, cookie_mask=MARK_MASK)
        self.connection.send(b"".join(ours(self._counters_xid, match=match) for match in matches))

    def ask_uses(self, told: Callable[[FlowStat], None]) -> None:
        """Ask how often each of our rules of FORWARD was used; ``told`` gets what comes for the last question."""
        self._uses_xid, self._on_use = self.xid(), told
        request = wire.flow_stats_request(self._uses_xid, table=Table.FORWARD, cookie=MARK_VALUE, cookie_mask=MARK_MASK)
        self.connection.send(request)

    @property
    def installed(self) -> Iterable[Installed]:
        """The rules in the switch but those of learned hosts and access rules, as far as is known."""
        return (self._installed or {}).values()

    def ask_ports(self) -> None:
        """Ask for the counters of all ports, unless an answer is still awaited."""
        now_s = self.clock()
        if self._ports_xid is not None and now_s < self._ports_until_s:
            return
        self._ports_xid, self._ports_until_s = self.xid(), now_s + ANSWER_WITHIN_S
        self._port_counters = []
        self.connection.send(wire.port_stats_request(self._ports_xid))

    def ask_sign_of_life(self, within_s: float) -> None:
        """Unless it answers in this time its connection is closed: its node may have lost its power."""
        self._life_until_s = self.clock() + within_s
        self.has_asked()
        self.ask_ports()

    # -- what the switch says

    def on_port_stats(self, message: bytes) -> list[PortCounters] | None:
        """A part of the counters of ports; all of them once the last part is there."""
        if wire.HEADER.unpack_from(message)[3] != self._ports_xid:
            return None
        self._life_until_s = math.inf
        counters, more = parse_port_stats(message)
        self._port_counters += counters
        if more and len(self._port_counters) <= MAX_PORTS:
            return None
        self._ports_xid = None
        return self._port_counters

    def on_flow_stats(self, message: bytes) -> list[tuple[int, str]] | None:
        """A part of the answer to the readback request, or to one for counters; of those of hosts, with the last part,
        who has sent something.
        """
        xid = wire.HEADER.unpack_from(message)[3]
        if xid == self._counters_xid:
            for stat in parse_flow_stats(message)[0]:
                self._on_counters(stat)
        if xid == self._uses_xid:
            for stat in parse_flow_stats(message)[0]:
                self._on_use(stat)
        if self._installed is not None:
            return self.hosts.on_stats(xid, *parse_flow_stats(message))
        if xid != self._readback_xid:
            return None
        flows, more = parse_flow_stats(message)
        self._reading.extend(stat.rule for stat in flows)
        if len(self._reading) > MAX_READBACK_RULES:
            raise OpenFlowError(f"more than {MAX_READBACK_RULES} rules")
        if not more:
            self._readback_xid = 0
            self._all_read()
        return None

    def on_meter_features(self, message: bytes) -> None:
        """What its meters can do: Open vSwitch's tell where the datapath is, which nothing else in OpenFlow does.

        In Linux a meter has one band; in user space several.
        """
        if wire.HEADER.unpack_from(message)[3] != self._meters_xid:
            return
        self._meters_xid = None
        most_bands = _METER_FEATURES.unpack_from(message, wire.HEADER.size + 8)[3]
        self.in_kernel = most_bands == 1
        self.datapath_known(self)

    def on_meter(self, message: bytes) -> None:
        """The meter of what it may send to the controller, which a takeover leaves as it is; or all others."""
        if wire.HEADER.unpack_from(message)[3] == self._all_meters_xid:
            meters, more = parse_meters(message)
            self.access.meters_are(meters)
            if not more:
                self._all_meters_xid = None
            return
        self.hosts.is_metered = wire.is_controller_meter(message, MAX_PUNTED_PER_S)

    def on_groups(self, message: bytes) -> None:
        """A part of the answer to the question for groups."""
        if wire.HEADER.unpack_from(message)[3] != self._groups_xid:
            return
        groups, more = parse_groups(message)
        self._groups.update(groups)
        if len(self._groups) > MAX_READBACK_GROUPS:
            raise OpenFlowError(f"more than {MAX_READBACK_GROUPS} groups")
        if not more:
            self._groups_xid = None
            self._all_read()

    def _all_read(self) -> None:
        if self._readback_xid or self._groups_xid is not None:
            return
        ours = [rule for rule in self._reading if is_ours(rule.cookie)]
        if foreign := [rule.table for rule in self._reading if not is_ours(rule.cookie)]:
            tables = ", ".join(map(str, sorted(set(foreign))))
            self.report(f"rules of other programs, which HyRoads does not remove: {len(foreign)}, in tables {tables}")
        access = [rule for rule in ours if is_access(rule.table, rule.priority)]
        learned = [rule for rule in ours if is_learned(rule.priority)]
        known = {rule.key for rule in (*learned, *access)}
        self._installed = {rule.key: rule for rule in self._reading if rule.key not in known}
        self._classifying = {rule.cookie for rule in self._installed.values() if rule.table == Table.CLASSIFY}
        self._applied += 1
        self.touched()
        self.hosts.start(learned)
        self.access.start(access)
        LOG.debug("switch %s: %d rules, %d groups read back", self.node, len(self._reading), len(self._groups))
        self._reading = []
        self.was_read()
        self.changed()

    def on_barrier(self, xid: int) -> None:
        """A barrier reply."""
        batch = self._batch
        if (
            self.hosts.on_barrier(xid)
            or self.access.on_barrier(xid)
            or batch is None
            or not batch.on_barrier(xid)
            or not batch.done
        ):
            return
        self._batch = None
        self.touched()
        self._apply(batch)
        self._advance()
        self.changed()

    def on_error(self, message: bytes) -> None:
        """An error message."""
        xid, kind, code = error_of(message)
        if xid == self._groups_xid:
            # A switch that knows no groups has none; it will refuse those of sessions.
            self._groups_xid = None
            self._all_read()
            return
        if xid == self._meters_xid:
            self._meters_xid = None
            return
        if xid == self._all_meters_xid:
            self._all_meters_xid = None
            return
        if xid == self._controller_meter_xid:
            # There is none yet.
            self._controller_meter_xid = None
            return
        about_role = False
        if self.role is not None:
            about_role, further = self.role.on_error(xid, kind, code)
            if further:
                self.connection.send(further)
        if about_role:
            self._role_refused()
            return
        self.counters.errors += self.may_change
        layers = self.hosts.on_error(xid, kind, code) or self.access.on_error(xid, kind, code)
        ours = layers or (self._batch and self._batch.on_error(xid, kind, code))
        if not ours:
            self._fault(f"OpenFlow error type {kind} code {code} for request {xid}")

    def on_role(self, message: bytes) -> None:
        """A role reply: a leader may begin to push, a follower only reads."""
        if self.role is not None:
            could = self.may_change
            further = self.role.on_reply(*parse_role_reply(message))
            if further:
                self.connection.send(further)
            if self.may_change and not could:
                self._may_push()

    def _role_refused(self) -> None:
        if self.role is not None and not self.role.knows_roles:
            self._fault("knows no roles: a leader of an earlier epoch could still change it")
            self._may_push()

    def _may_push(self) -> None:
        """The switch takes changes from now on."""
        if self.is_read:
            self.hosts.begin()
            self._advance()
            self.access.flush()
        self.changed()

    def _fault(self, what: str) -> None:
        """Something went wrong; that a switch has another master by now is no fault."""
        if self.may_change:
            self.report(what)
        else:
            LOG.info("switch %s, of which we are not the master: %s", self.node, what)

    def on_ports(self) -> None:
        """The ports changed."""
        self.ports = self.connection.ports()
        self.touched()

    def _advance(self) -> None:
        """Send the difference between goal and switch, if nothing is under way."""
        goal = self._goal
        if goal is None or self._installed is None or self._batch is not None or goal is self._confirmed_goal:
            return
        change = self._wanted.change(self._installed, self._groups)
        if self._refused:
            adds = tuple(rule for rule in change.adds if rule.key not in self._refused)
            change = replace(change, adds=adds, group_adds=() if not adds else change.group_adds)
        if not change:
            for rule in change.conflicts:
                self.report(f"a foreign rule has the place of table {rule.table} priority {rule.priority}")
            self._confirmed_goal = goal
            self._told = dict(goal.wanted.flows)
            self.touched()
            return
        if not self.may_change:
            return
        self._batch = batch = batch_of(change, self.xid())
        self.touched()
        self._last_xid = batch.last_xid
        self._deadline_s = self.clock() + ANSWER_WITHIN_S
        self.has_asked()
        self.counters.flow_mods += len(change.adds) + len(change.deletes)
        LOG.info("switch %s: %d rules to add, %d to delete", self.node, len(change.adds), len(change.deletes))
        if not self.connection.send(batch.data):
            self.report("the connection is closing")

    def _apply(self, batch: Batch) -> None:
        """A batch is through: know what is in the switch now."""
        self._applied += 1
        installed = self._installed if self._installed is not None else {}
        added, deleted = batch.in_force()
        replaced = (installed.pop(rule.key, None) for rule in (*added, *deleted))
        self._classifying.difference_update([rule.cookie for rule in (*replaced, *deleted) if rule is not None])
        installed.update((rule.key, rule) for rule in added)
        self._classifying.update(rule.cookie for rule in added if rule.table == Table.CLASSIFY)
        no_groups = {refusal.subject.id for refusal in batch.refusals if isinstance(refusal.subject, GroupEntry)}
        self._groups |= {group.id for group in batch.change.group_adds} - no_groups
        self._groups.difference_update(batch.change.group_deletes)
        if any(isinstance(r.subject, Rule) and r.subject.table in TAG_TABLES for r in batch.refusals):
            self.tags_refused = True
            self._fault(f"refused the rules for VLAN tags ({batch.refusals[0]}): frames with tags may be lost")
            self.carry(None)
            return
        for refusal in batch.refusals:
            self._fault(f"refused: {refusal}")
        if batch.refused:
            self._refused = tuple(batch.refused)
            self._refused_until_s = self.clock() + RETRY_REFUSED_S

    def xid(self, count: int = 1) -> int:
        """The first of so many transaction ids in a row."""
        first = next_xid(self._last_xid)
        self._last_xid = first + count - 1
        return first


@dataclass(frozen=True, eq=False)
class _Goal:
    """What is wanted, and of which ports, with which treatment of tags and which addresses of interfaces."""

    wanted: DesiredRules
    ports: Ports
    tags: TagRules | None
    addresses: Mapping[str, str]
