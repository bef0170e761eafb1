"""What differs between the settings and network file that run and those that were read again. Pure.

Each difference is named by its place in the file, and is either taken by a running controller or needs a restart.
Nothing that a place names is a secret: tokens are compared, never shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.interference import Interference
from hyroads.controller.core.network import Network

from .controller import MEASURED, Settings

_LISTEN = ("openflow", "agents", "rest", "peer")
# Taken whole, and named as one.
_WHOLE_LIVE = ("network", "margin", "tcp_margin", "policies", "placement", "agent_token", "identities", "revoked")
_LIMITS_LIVE = ("requests_per_s", "burst")
_NODE_NEEDS = ("role", "position_m", "agent", "dpid", "mac", "ip", "ports", "attached_to")
_LINK_NEEDS = ("source", "target", "technology", "loss")
_LINK_WORDS = {"source": "from", "target": "to"}
_WHOLE_NETWORK_NEEDS = ("discovered", "unmeasured", "unshared", "metered")


@dataclass(frozen=True, slots=True)
class Files:
    """Settings and the network that their file ``network`` holds, both checked."""

    settings: Settings
    network: Network


@dataclass(frozen=True, slots=True)
class Changes:
    """Places that differ: ``live`` are those that a running controller takes, ``restart`` those that it can't.

    ``capacities`` says whether links have other capacities, ``interference`` whether the domains differ.
    """

    live: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    capacities: bool = False
    interference: bool = False


@dataclass
class _Found:
    live: list[str] = field(default_factory=list)
    restart: list[str] = field(default_factory=list)

    def note(self, places: Iterator[str], *, live: bool) -> None:
        (self.live if live else self.restart).extend(places)


def compare(old: Files, new: Files) -> Changes:
    """What of ``new`` differs from ``old``, named by place, in the order of the files: settings, then network."""
    found = _Found()
    _compare_settings(old.settings, new.settings, found)
    is_measured = old.settings.capacities == MEASURED
    capacities = list(_capacities(old.network, new.network))
    _compare_network(old.network, new.network, found)
    found.note(iter(capacities), live=not is_measured)
    same_links = [link.id for link in old.network.links] == [link.id for link in new.network.links]
    differs = same_links and not same_domains(old.network.interference, new.network.interference)
    found.note(iter(["network: interference"] if differs else []), live=not is_measured)
    if not found.restart and not _same_addresses(old, new):
        # Capacities choose where a plain client is attached at first, and so may decide where it gets its address.
        found.restart.append("network: links: other capacities change where plain clients are attached first")
    return Changes(tuple(found.live), tuple(found.restart), bool(capacities), differs)


# -- settings


def _compare_settings(old: Settings, new: Settings, found: _Found) -> None:
    for one in fields(Settings):
        was, now = getattr(old, one.name), getattr(new, one.name)
        if was == now:
            continue
        if one.name in _WHOLE_LIVE:
            found.live.append(f"settings: {one.name}")
        elif one.name == "api_tokens":
            names = _entries({each.name: each for each in was}, {each.name: each for each in now})
            found.note((f"settings: api_tokens.{name}" for name in names), live=True)
        elif one.name == "clients":
            found.note((f"settings: clients.{name}" for name in _entries(was, now)), live=True)
        elif one.name == "slices":
            found.note((f"settings: slices.{name}" for name in _entries(was.shares, now.shares)), live=True)
        elif one.name in ("api_limits", "timings"):
            _compare_parts(one.name, was, now, found)
        else:
            found.restart.append(f"settings: {'listen.' if one.name in _LISTEN else ''}{one.name}")


def _compare_parts(name: str, was: Any, now: Any, found: _Found) -> None:
    for part in fields(was):
        if getattr(was, part.name) != getattr(now, part.name):
            places = iter([f"settings: {name}.{part.name}"])
            found.note(places, live=name == "api_limits" and part.name in _LIMITS_LIVE)


def _entries(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names whose entries came, went or changed, in the order of the files."""
    return [name for name in {**was, **now} if was.get(name) != now.get(name)]


# -- the network file


def _compare_network(old: Network, new: Network, found: _Found) -> None:
    found.note(_came_and_went("nodes", old.nodes, new.nodes), live=False)
    for node, was in old.nodes.items():
        now = new.nodes.get(node)
        found.note(_parts(f"nodes.{node}", was, now, _NODE_NEEDS), live=False)
    before, after = ({link.id: link for link in network.links} for network in (old, new))
    found.note(_came_and_went("links", before, after), live=False)
    for link, known in before.items():
        found.note(_parts(f"links.{link}", known, after.get(link), _LINK_NEEDS), live=False)
        found.note(_parts(f"links.{link}", known, after.get(link), ("delay_ms",)), live=True)
    found.note(_parts("", old, new, _WHOLE_NETWORK_NEEDS), live=False)
    found.note(_parts("", old, new, ("name", "margin", "contention", "radios")), live=True)
    flows = _entries({flow.id: flow for flow in old.flows}, {flow.id: flow for flow in new.flows})
    found.note((f"network: flows.{flow}" for flow in flows), live=True)


def _came_and_went(section: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"network: {section}.{name}: removed" for name in was if name not in now)
    yield from (f"network: {section}.{name}: new" for name in now if name not in was)
    if was.keys() == now.keys() and list(was) != list(now):
        # Numbers, addresses and labels follow from the order.
        yield f"network: {section}: in another order"


def _parts(place: str, was: object, now: object, names: tuple[str, ...]) -> Iterator[str]:
    if now is None:
        return
    for name in names:
        if getattr(was, name) != getattr(now, name):
            yield "network: " + (f"{place}." if place else "") + _LINK_WORDS.get(name, name)


def _capacities(old: Network, new: Network) -> Iterator[str]:
    after = {link.id: link for link in new.links}
    for link in old.links:
        now = after.get(link.id)
        if now is not None and now.capacity_mbps != link.capacity_mbps:
            yield f"network: links.{link.id}.capacity_mbps"


def same_domains(first: Interference, second: Interference) -> bool:
    """Whether the same links contend by both rules; they are over the same links."""
    if first.link_count != second.link_count:
        return False
    # Links that are of one class by both rules have equal domains: one of them is compared for all.
    pairs = np.stack([first.classes(), second.classes()], axis=1)
    _, one_of_each = np.unique(pairs, axis=0, return_index=True)
    return all(np.array_equal(first.domain(link), second.domain(link)) for link in one_of_each.tolist())


def _same_addresses(old: Files, new: Files) -> bool:
    return Addressing.of(old.network) == Addressing.of(new.network, new.settings.network)
