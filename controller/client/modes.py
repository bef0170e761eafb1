"""From a policy, the modes chosen live and the state of monthly caps to the message ``configure`` of
``hyroads-client``. Pure.

``full-speed`` uses all interfaces that a flow accepts; ``cost-efficient`` takes the metered ones only while none of the
others is usable; ``high-robustness`` sends a copy on each, of which the waypoint drops all but the first. A flow's own
mode, chosen live or in the file, counts more than the client's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hyroads.controller.core.checking import describe, one_of, suggestion
from hyroads.controller.core.errors import HyroadsError

from .flow_match import Match
from .policy import BLOCK, COST_EFFICIENT, DIRECT, HIGH_ROBUSTNESS, KERNEL, MODES, WAYPOINT, FlowPolicy, Policy

Document = dict[str, Any]


class ModeError(HyroadsError):
    """A mode that can't be chosen."""


@dataclass(frozen=True, slots=True)
class Modes:
    """What was chosen live: the client's mode (None: the file's) and those of some flows, by name."""

    client: str | None = None
    flows: Mapping[str, str] = field(default_factory=dict)

    def of(self, policy: Policy, flow: FlowPolicy) -> str:
        """The mode of a flow: chosen for it live, else its own, else the client's."""
        return self.flows.get(flow.name) or flow.mode or self.client or policy.mode

    def with_choice(self, policy: Policy, mode: str, flow: str | None) -> Modes:
        """With another mode of the client, or of one flow; :class:`ModeError` if that is not possible."""
        check_mode(policy, mode)
        named = {each.name: each for each in policy.flows}
        if flow is not None and flow not in named:
            raise ModeError(f"unknown flow {describe(flow)}, expected {one_of(named)}")
        if flow is None:
            return replace(self, client=mode)
        if mode == HIGH_ROBUSTNESS and named[flow].via == DIRECT:
            raise ModeError(f"flow {flow} goes direct: {HIGH_ROBUSTNESS} needs via: waypoint")
        return replace(self, flows={**self.flows, flow: mode})


def check_mode(policy: Policy, mode: str) -> None:
    """:class:`ModeError` if there is no such mode, or this policy leaves it nothing that could make copies."""
    if mode not in MODES:
        raise ModeError(f"unknown mode {describe(mode)}, expected {one_of(MODES)}{suggestion(mode, MODES)}")
    if mode == HIGH_ROBUSTNESS and policy.waypoint is None:
        raise ModeError(f"{policy.document}: waypoint: {HIGH_ROBUSTNESS} needs a waypoint, and there is none")
    if mode == HIGH_ROBUSTNESS and policy.plane == KERNEL:
        raise ModeError(f"{policy.document}: plane: {HIGH_ROBUSTNESS} needs plane: agent, which makes copies")


@dataclass(frozen=True, slots=True)
class WaypointSession:
    """What a waypoint gave this client: its data address and port, the session's number and key (32 hex digits), and
    the addresses that the client's flows have there.
    """

    address: str
    port: int
    session: int
    key: str = field(repr=False)
    address4: str | None
    address6: str | None

    def document(self) -> Document:
        """As in the message ``configure``."""
        return {"address": self.address, "port": self.port, "session": self.session, "key": self.key}


Addresses = tuple[str | None, str | None]


def own_addresses(policy: Policy, session: WaypointSession | None) -> Addresses:
    """The addresses of hr0, IPv4 and IPv6: what the waypoint gave, else the policy's."""
    if session is None:
        return policy.address4, policy.address6
    return session.address4, session.address6


def configuration(
    policy: Policy,
    modes: Modes,
    used_up: Collection[str] = (),
    session: WaypointSession | None = None,
    addresses: Addresses | None = None,
    *,
    copied: Sequence[FlowPolicy] = (),
) -> Document:
    """The message ``configure`` without its ``seq``. Interfaces in ``used_up`` have carried what they may in this
    month: they are not usable, even if no other one is.

    Without a ``session`` all flows go direct, each by one interface: no peer would put copies or packets in order. With
    ``on_loss: block`` those that want the waypoint go nowhere then.
    ``addresses`` are hr0's, where they are not those of session or policy. ``copied`` are single connections whose
    packets are copied, whatever their flows' modes are; they come first.
    """
    address4, address6 = addresses or own_addresses(policy, session)
    flows = [(flow, HIGH_ROBUSTNESS) for flow in copied] + [(flow, modes.of(policy, flow)) for flow in policy.flows]
    rules = [rule for flow, mode in flows for rule in _rules(policy, flow, mode, session)]
    main = {name for rule in rules for name in rule["interfaces"]}
    return {
        "type": "configure",
        "address4": address4,
        "address6": address6,
        "interfaces": [
            {
                "name": each.name,
                "rate_mbps": each.rate_mbps,
                "backup": each.name not in main,
                "usable": each.name not in used_up,
                "dns": list(each.dns),
            }
            for each in policy.interfaces.values()
        ],
        "waypoint": None if session is None else session.document(),
        "rules": rules,
    }


def _rules(policy: Policy, flow: FlowPolicy, mode: str, session: WaypointSession | None) -> Iterator[Document]:
    """The rules of one flow: one for each pair of port ranges, for a rule has one range at each end."""
    blocks = policy.waypoint is not None and policy.waypoint.on_loss == BLOCK and flow.via != DIRECT
    by_waypoint = flow.via != DIRECT and (session is not None or blocks)
    metered = [name for name in flow.interfaces if policy.interfaces[name].metered]
    free = [name for name in flow.interfaces if name not in metered]
    saving = mode == COST_EFFICIENT and bool(free)
    for number, match in enumerate(_matches(flow.match), start=1):
        yield {
            "name": flow.name if number == 1 else f"{flow.name}#{number}",
            "match": match,
            "weight": flow.weight,
            "urgent": flow.urgent,
            "interfaces": free if saving else list(flow.interfaces),
            "backup": metered if saving else [],
            "copies": mode == HIGH_ROBUSTNESS and by_waypoint,
            "spread": flow.spread if by_waypoint else "flow",
            "via": WAYPOINT if by_waypoint else DIRECT,
            # Only where it is used, so that a program of an earlier version takes the rest.
            **({"on_loss": BLOCK} if blocks else {}),
        }


def flow_name(rule: str) -> str:
    """The policy's name of a rule's flow."""
    return rule.partition("#")[0]


def _matches(match: Match) -> Iterator[Document]:
    # Only where it is used, so that a program of an earlier version takes the rest.
    application = {} if match.application is None else {"application": match.application}
    for source in match.source_ports or (None,):
        for destination in match.destination_ports or (None,):
            yield {
                "protocol": match.protocol,
                "source": match.source,
                "destination": match.destination,
                "source_port": None if source is None else list(source),
                "destination_port": None if destination is None else list(destination),
                "dscp": match.dscp,
                **application,
            }
