"""Multicast sessions as JSON documents, for REST and for the state file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hyroads.controller.control.sessions import Host, LabelledPlan, LiveSession, Rates, airtime_per_mbps
from hyroads.controller.core.addressing import FIRST_LABEL, LABEL_SPACE
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.multicast import Media
from hyroads.controller.core.network import Network
from hyroads.controller.core.services.sessions import SessionSpec, session_document, session_spec
from hyroads.controller.ofp.sessions import TreePlan

Document = dict[str, Any]
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def session_view(live: LiveSession, media: Media | None, rates: Rates, pending: Sequence[str]) -> Document:
    """What REST says of a session."""
    apart = _apart(live)
    participants = [
        {
            "name": host.name,
            "node": host.node,
            "mac": host.mac,
            "ip": host.ip,
            "source": host.is_source,
            "reached": host.node is not None and host.node not in apart,
        }
        for host in live.hosts
    ]
    whole = not live.lost and all(one["reached"] for one in participants)
    share = None if media is None else airtime_per_mbps(media, live)
    return {
        "id": live.spec.id,
        "group": live.spec.group.text,
        "mac": live.spec.group.mac,
        "rate_mbps": live.spec.rate_mbps,
        "membership": live.spec.membership,
        "state": "activating" if pending else "active" if whole else "partial",
        "pending": list(pending),
        "participants": participants,
        "airtime_per_mbps": None if share is None else float(np.max(share, initial=0.0)),
        "trees": [_tree(live, source, media, rates) for source in sorted(live.session.trees)],
    }


def _apart(live: LiveSession) -> set[str]:
    """Nodes that no other source reaches."""
    missed = Counter(node for nodes in live.lost.values() for node in nodes)
    return {node for node, count in missed.items() if count == len(live.session.trees.keys() - {node})}


def _tree(live: LiveSession, source: str, media: Media | None, rates: Rates) -> Document:
    plan = live.plans.get(source)
    airtime = None if media is None else media.airtime(live.session.trees[source].links)
    return {
        "source": source,
        "transmissions": [] if plan is None else [list(sent) for sent in plan.plan.transmissions],
        "label": None if plan is None else plan.label,
        "lost": sorted(live.lost.get(source, ())),
        "airtime_ms_per_mb": None if airtime is None or not np.isfinite(airtime) else 1e3 * airtime,
        "sent_mbps": rates.get((live.spec.id, source)),
    }


def to_save(live: LiveSession) -> Document:
    """What the state file keeps: what was declared, and the trees that switches were told of."""
    trees = {
        source: {
            "label": saved.label,
            "transmissions": [list(sent) for sent in saved.plan.transmissions],
            "receivers": sorted(saved.plan.receivers),
        }
        for source, saved in sorted(live.plans.items())
    }
    hosts = [
        {"name": host.name, "node": host.node, "mac": host.mac, "ip": host.ip, "technology": host.technology}
        for host in live.hosts
    ]
    return {**session_document(live.spec), "trees": trees, "hosts": hosts}


Saved = tuple[SessionSpec, Mapping[str, LabelledPlan], tuple[Host, ...]]
"""What was declared, the trees, and where hosts were."""


def from_saved(document: object, network: Network, name: str) -> Saved:
    """What :func:`to_save` saved; trees that the network does not have any more are left out. ``ConfigError``."""
    if not isinstance(document, Mapping):
        raise ConfigError(name, "sessions", "expected a session")
    declared = {key: value for key, value in document.items() if key not in ("trees", "hosts")}
    spec, given = session_spec(declared, name), document.get("trees")
    plans = {}
    for source, tree in given.items() if isinstance(given, Mapping) else ():
        plan = _plan(source, tree, network)
        if plan is not None:
            plans[source] = plan
    hosts = document.get("hosts")
    return spec, plans, tuple(_hosts(hosts, spec, network)) if isinstance(hosts, list) else ()


def _hosts(given: list[object], spec: SessionSpec, network: Network) -> Iterator[Host]:
    for host in given:
        if not isinstance(host, Mapping):
            continue
        participant = spec.find(str(host.get("name")))
        mac, ip = host.get("mac"), host.get("ip")
        sound = _is_in(host.get("node"), network.nodes) and isinstance(mac, str) and _MAC.fullmatch(mac) is not None
        if participant is not None and sound:
            technology = host.get("technology") if host.get("technology") in network.technologies else None
            ip = ip if isinstance(ip, str) else None
            yield Host(participant.name, participant.is_source, host["node"], mac, ip, technology)


def _is_in(name: object, known: Container[str]) -> bool:
    return isinstance(name, str) and name in known


def _plan(source: object, tree: object, network: Network) -> LabelledPlan | None:
    if not isinstance(tree, Mapping) or source not in network.nodes:
        return None
    label, sent, receivers = tree.get("label"), tree.get("transmissions"), tree.get("receivers")
    if not isinstance(label, int) or not FIRST_LABEL <= label < LABEL_SPACE:
        return None
    if not isinstance(sent, list) or not all(isinstance(one, list) and one for one in sent):
        return None
    if not isinstance(receivers, list) or not all(_is_in(node, network.nodes) for node in receivers):
        return None
    links = [link for one in sent for link in one]
    if not all(_is_in(link, network.link_index) for link in links):
        return None
    transmissions = tuple(tuple(one) for one in sent)
    plan = TreePlan(str(source), transmissions, frozenset(receivers))
    return LabelledPlan(plan, label) if _is_tree(plan, network) else None


def _is_tree(plan: TreePlan, network: Network) -> bool:
    """Every node has one link into it and hangs on the source; links of one transmission have one sender and medium."""
    links = {name: network.links[network.link_index[name]] for name in plan.links}
    parents = {link.target: link.source for link in links.values()}
    one_sender = all(len({(links[n].source, links[n].technology) for n in sent}) == 1 for sent in plan.transmissions)
    if len(parents) < sum(map(len, plan.transmissions)) or plan.source in parents or not one_sender:
        return False
    for node in parents:
        seen, at = {node}, node
        while at != plan.source:
            at = parents.get(at, "")
            if not at or at in seen:
                return False
            seen.add(at)
    return True
