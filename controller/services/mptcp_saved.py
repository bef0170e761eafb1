"""Routed MPTCP connections as the state file and etcd hold them: a new controller goes on with them.

No handshake shows again which TCP connections belong together, so what is not saved is lost with the controller. Only
connections that are routed are saved: there are few of them, and they change as seldom as their flows do. A token is
saved, as it is in the names of the flows; no key ever is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.mptcp import ends
from hyroads.controller.core.mptcp_connections import MAX_SUBFLOWS, At, Connection, Subflow
from hyroads.controller.core.network import FlowSpec
from hyroads.controller.core.subflows import MAX_TOKEN, MptcpConnection, TcpEnd, subflow_flows
from hyroads.controller.core.subflows import Subflow as RoutedSubflow
from hyroads.controller.model.state import TopologyContext

Document = dict[str, Any]
_DOCUMENT = "state file"
_KEY_BYTES = (12, 36)
"""Of two addresses, IPv4 or IPv6, and two ports."""
MAX_NAME, MAX_BEGUN = 80, 1 << 31


def connection_document(connection: Connection) -> Document:
    """A connection as it is saved. Times are left out: they would change all the time, and clocks begin anew."""
    return {
        "id": connection.id,
        "version": connection.version,
        "token": connection.token,
        "client_token": connection.client_token,
        "client": connection.client,
        "peer": connection.peer,
        "begun": connection.begun,
        "subflows": [
            {
                "number": subflow.number,
                "key": subflow.key.hex(),
                "by_peer": subflow.by_peer,
                "address_id": subflow.address_id,
                "backup": subflow.backup,
                "at": list(subflow.at),
                "peer_at": list(subflow.peer_at),
            }
            for subflow in connection.subflows.values()
        ],
    }


def connections_from(
    documents: object, context: TopologyContext, now_s: float, most: int
) -> tuple[list[Connection], list[ConfigError]]:
    """What :func:`connection_document` saved, ``most`` at most, and what is left out. Everything counts as heard at
    ``now_s``.
    """
    found: dict[str, Connection] = {}
    keys: set[bytes] = set()
    problems = []
    for index, document in enumerate(documents if isinstance(documents, list) and most else ()):
        where = f"services.connections[{index}]"
        connection = _connection(document, context, now_s)
        if connection is None:
            problems.append(ConfigError(_DOCUMENT, where, "expected an MPTCP connection, and where its subflows enter"))
        elif connection.id in found or keys & connection.subflows.keys() or len(found) >= most:
            problems.append(ConfigError(_DOCUMENT, where, f"expected at most {most} connections, each subflow once"))
        else:
            found[connection.id] = connection
            keys |= connection.subflows.keys()
    return list(found.values()), problems


def _connection(document: object, context: TopologyContext, now_s: float) -> Connection | None:
    match document:
        case {
            "id": str(name),
            "version": (0 | 1) as version,
            "token": int(token),
            "client_token": (int() | None) as client_token,
            "client": str(client),
            "peer": str(peer),
            "begun": int(begun),
            "subflows": [_, *_] as given,
        } if (
            0 <= token <= MAX_TOKEN
            and name == f"{token:08x}"
            and (client_token is None or 0 <= client_token <= MAX_TOKEN)
            and 0 < len(given) <= MAX_SUBFLOWS
            and 0 < len(client) <= MAX_NAME
            and 0 < len(peer) <= MAX_NAME
            and 0 < begun < MAX_BEGUN
        ):
            subflows = [_subflow(one, context, now_s) for one in given]
        case _:
            return None
    connection = Connection(name, version, token, client, peer, now_s, now_s, client_token, begun)
    connection.subflows = {each.key: each for each in subflows if each is not None and each.number < begun}
    numbers = {each.number for each in connection.subflows.values()}
    return connection if len(numbers) == len(connection.subflows) == len(given) else None


def _subflow(document: object, context: TopologyContext, now_s: float) -> Subflow | None:
    match document:
        case {
            "number": int(number),
            "key": str(key),
            "by_peer": bool(by_peer),
            "address_id": int(address_id),
            "backup": bool(backup),
            "at": [str(), str(), str() | None] as at,
            "peer_at": [str(), str(), str() | None] as peer_at,
        } if number >= 0 and 0 <= address_id <= 0xFF:
            places = At(*at), At(*peer_at)
        case _:
            return None
    raw = _bytes(key)
    if len(raw) not in _KEY_BYTES or not all(_is_here(place, context) for place in places):
        return None
    return Subflow(number, raw, by_peer, address_id, backup, *places, now_s)


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _is_here(place: At, context: TopologyContext) -> bool:
    """Whether the network file still has the switch and the host."""
    addressing = context.addressing
    return place.node in addressing.dpid and (place.host is None or place.host in addressing.host_mac)


def routable(connection: Connection) -> MptcpConnection | None:
    """The subflows of a connection for ``core.subflows.subflow_flows``; None if none can be routed.

    Routes lead from node to node, so subflows count whose both ends are hosts of nodes of the network file. Of two
    connections with one token only that counts whose id is the token: the names of flows are made of it.
    """
    if connection.id != f"{connection.token:08x}":
        return None
    subflows = tuple(found for each in connection.subflows.values() if (found := _routable(each)) is not None)
    return MptcpConnection(connection.token, subflows) if subflows else None


def _routable(subflow: Subflow) -> RoutedSubflow | None:
    client, peer, at = subflow.at.host, subflow.peer_at.host, ends(subflow.key)
    if client is None or peer is None:
        return None
    here, there = TcpEnd(client, at.source, at.source_port), TcpEnd(peer, at.target, at.target_port)
    return RoutedSubflow(subflow.number, here, there)


class SavedConnections:
    """Reads connections, as often as they change. ``most`` are routed at most. A flow that is as before is the very
    object of before, so that nobody plans it again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._specs: dict[str, FlowSpec] = {}

    def of(
        self, documents: object, context: TopologyContext, now_s: float
    ) -> tuple[list[Connection], list[ConfigError]]:
        """As :func:`connections_from` gives them."""
        return connections_from(documents, context, now_s, self._most)

    def flows(self, connections: Iterable[Connection], taken: Mapping[str, object]) -> list[FlowSpec]:
        """The flows of their subflows; a user's flow of the same id, one that is ``taken``, comes first."""
        groups = (group for one in connections if (group := routable(one)) is not None)
        found = {spec.id: spec for group in groups for spec in subflow_flows(group) if spec.id not in taken}
        known = self._specs
        self._specs = {flow: known[flow] if known.get(flow) == spec else spec for flow, spec in found.items()}
        return list(self._specs.values())
