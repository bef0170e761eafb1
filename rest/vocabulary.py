"""What the names of fields and parameters mean, with an example of each, for the OpenAPI document.

A name has one meaning wherever it stands; where a schema says more of a field, or has an example, that counts.
Examples are taken from one network, that of ``hyroads emulate triangle``. Of several the first is used that is of the
field's type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]
_MAC, _IP = "02:00:00:00:00:01", "10.0.0.1"
_PATHS = [["ab-plc", "bc-wifi"]]
_RULE = {"name": "tv", "priority": 100, "match": {"eth_type": 2048, "ipv4_dst": "10.0.0.3"}}
_SLICE = {
    "name": "research",
    "owner_token_sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "controllers": ["tcp:127.0.0.1:6700"],
    "permissions": ["read", "write"],
    "flowspace": [_RULE],
}

# name -> what it means (None: each schema says it), examples
VOCABULARY: Mapping[str, tuple[str | None, tuple[Any, ...]]] = {
    "Idempotency-Key": (None, ("5c3f0a52",)),
    "Last-Event-ID": (None, ("1024",)),
    "access_rules": ("a page of access rules", ()),
    "action": ("what happens to them", ("deny",)),
    "adapter": (None, ("00:b0:52:00:00:0a",)),
    "address_id": (None, (2,)),
    "added": ("names that are new", (["research"],)),
    "addresses": ("network addresses that were seen there", ()),
    "after_s": ("seconds since it was asked for", (0.012,)),
    "age_s": ("seconds since it was known", (0.05,)),
    "agent": ("its `hyroads-edge`; null: it has none", ()),
    "agents": ("one for each node with an agent", ()),
    "airtime": ("planned share of the time in its interference domain, 0 to 1", (0.95,)),
    "airtime_ms_per_mb": ("milliseconds on the medium for a megabit; null: not built", (61.0,)),
    "airtime_per_mbps": (None, (0.061,)),
    "arms": ("multipaths that a bandit chooses from, best first", (5,)),
    "aside": (None, ("state.json.broken-1",)),
    "associate_s": ("at most until the client is at its new place", (2.0,)),
    "at": (None, ("192.168.1.1", 1790000000.0)),
    "attachments": ("where its interfaces are", ()),
    "backup": (None, (False,)),
    "bandit": (None, (None,)),
    "begun_by": (None, ("client",)),
    "block_errors": (None, (0.02,)),
    "broken_keys": (None, (["intents/flows/video"],)),
    "box": ("id of a box", ("b827eb-41c0a1",)),
    "boxes": ("a page of boxes", ()),
    "busy": (None, (0.4,)),
    "call_ms": ("how long its calls took; null: none yet", ()),
    "calls": ("how often it was called", (4711,)),
    "capacities": ("where capacities come from: the network file, or measurement", ()),
    "capacity_mbps": ("Mb/s at L2 payload that the link carries alone; null: not known", (9.8,)),
    "changed": ("names of what differs", (["research"],)),
    "client": ("node id of a client", ("c",)),
    "client_ip": (None, (_IP,)),
    "client_port": (None, (39572,)),
    "clients": ("a page of clients", ()),
    "clusters": ("flows of one level, and the interfaces that serve them", ()),
    "confidence": ("how far it can be trusted, 0 to 1", (0.99,)),
    "confirm_s": ("at most until switches and agents have confirmed", (1.0,)),
    "connected": ("whether it is connected to us", (True,)),
    "connection": ("id of an MPTCP connection", ("aa13a7b7",)),
    "connections": ("a page of connections", ()),
    "controllers": ("where the slice's controllers listen", (["tcp:127.0.0.1:6700"],)),
    "cookie": ("entries with this cookie under `cookie_mask`", (0,)),
    "cookie_mask": ("bits of `cookie` that count", (0,)),
    "copies": ("by how many places each packet goes", (2, False)),
    "count": ("how many there were since the start", (600,)),
    "counters": ("counted since the start", ()),
    "cpu_s": ("seconds of processor time since the start", (1.2,)),
    "cursor": (None, ("WyJmMSJd",)),
    "decided_by": (None, ("solver",)),
    "cost_share": (None, (0.2,)),
    "declared_mbps": (None, (10.0,)),
    "delay_ms": ("milliseconds that a packet takes", (2.1,)),
    "delivered_bytes": ("bytes that left the network at the egress; null: not reported", (1485000,)),
    "delivered_frames": ("frames that left the network at the egress; null: not reported", (990,)),
    "depth": (None, (3,)),
    "detail": ("what was wrong with this request", ("no flow f9",)),
    "directed": ("each link has a direction", (True,)),
    "dpid": ("datapath id of the switch", (1, "1", "0000000000000001", "0x1")),
    "dropped": ("packets that the port dropped; null: not told", (0,)),
    "dst": ("the port at which it ends", ()),
    "duplicate": ("frames that came twice and were dropped; null: not reported", (0,)),
    "duration_ms": ("milliseconds that it took", (3.1,)),
    "egress": ("the edge that puts the packets in order; null: there is none", ("b",)),
    "enabled_in_s": ("seconds until it is enabled again; null: it is enabled", (None,)),
    "errors": ("how many there were; null: not told", (0,)),
    "estimate": ("what is known of the capacity; null: it is not measured", ()),
    "external": ("share of the time in its domain that traffic takes that is not ours, 0 to 1", (0.0,)),
    "expires_in_s": (None, (3600.0,)),
    "expires_s": (None, (1790000000.0,)),
    "faults": ("what it did wrong", ()),
    "file": ("name of the file", ("state.json",)),
    "flags": (None, ([],)),
    "flow": ("id of a flow", ("f1", 3)),
    "flow_mods": ("rules sent to switches, added, changed or deleted", (14,)),
    "flows": ("a page of flows; numbers of flows", ()),
    "flowspace": ("rules that say which packets are the slice's", ()),
    "format": ("netjson: a NetJSON NetworkGraph", ("hyroads",)),
    "from": ("node id of where it begins", ("a",)),
    "gone": (None, ({},)),
    "group": ("multicast group", ("239.1.2.3",)),
    "group_id": ("number of a group, or `all`", ("1",)),
    "half_width": (None, (0.03,)),
    "handover": ("id of a handover", ("h1",)),
    "handovers": ("a page of handovers", ()),
    "held_max": ("most frames that were held at a time to put them in order; null: not reported", (20,)),
    "hold_s": ("how long both places stay configured at most", (2.0,)),
    "host": ("the host at the node", ()),
    "hw_addr": ("MAC address of the port", (_MAC,)),
    "id": ("its name, or number, among all of its kind", ("f1", 1)),
    "ingress": ("the edge that splits the flow; null: there is none", ("a",)),
    "interface": (None, (_MAC,)),
    "interfaces": ("one for each interface", ()),
    "interference_domains": ("a page of interference domains", ()),
    "ip": ("IPv4 or IPv6 address; null: not known", (_IP,)),
    "ipv4": ("IPv4 addresses", ([_IP],)),
    "ipv6": ("IPv6 addresses", (["fd00::1"],)),
    "kind": ("what sort it is", ()),
    "joined": ("whether the user is in the slice", (True,)),
    "kinds": (None, ("link,flow.moved",)),
    "known_by": (None, ("traffic",)),
    "label": ("its label; null: it has none", (17, "triangle")),
    "last": ("the latest; null: there was none", ()),
    "last_errors": ("the latest, oldest first", ()),
    "late": ("frames that came after they had been given up; null: not reported", (0,)),
    "latency": (None, (None,)),
    "leave_s": ("at most until the client has left its old place", (2.0,)),
    "limit": ("how many at most", (100,)),
    "limits": ("bounds of what the slice may have and do", ({"flow_entries": 1000},)),
    "link": ("id of a link", ("ab-plc",)),
    "links": ("links, or ids of links", (["ab-plc", "bc-wifi"],)),
    "loss": ("share of packets that is lost, 0 to 1", (0.0,)),
    "lost": ("packets that never came; null: not reported", (0,)),
    "mac": ("MAC address; null: not known", (_MAC,)),
    "malformed": ("packets that could not be read; null: not reported", (0,)),
    "malformed_agent": ("messages of agents that could not be read", (0,)),
    "malformed_messages": ("messages that could not be read", (0,)),
    "malformed_openflow": ("messages of switches that could not be read", (0,)),
    "manager": ("the handover manager", ("hoolock",)),
    "margin": ("share of the time that stays free, 0 to 1", (0.05,)),
    "match": ("what its packets have in common; empty: all of them", ({"eth_type": 2048, "udp_dst": 5004},)),
    "max": ("the longest, ms", (3.0,)),
    "membership": ("whether it is as hosts join and leave the group", (False,)),
    "memory_mb": ("MB of memory; null: it does not run", (41.0,)),
    "meter_id": ("number of a meter, or `all`", ("1",)),
    "metric": ("what the costs of links mean", ("capacity",)),
    "migrations": ("a page of migrations", (2,)),
    "mode": ("how it works; the modes of a client are full-speed, cost-efficient, high-robustness", ("full-speed",)),
    "multigraph": ("there may be several links between two nodes", (True,)),
    "multipath": ("its paths, with their rates", ()),
    "name": ("its name", ("research", _MAC)),
    "ncasts": ("a page of n-casts", ()),
    "neighbours": ("other radios that it hears", ()),
    "network": ("the network file", ("triangle.yaml",)),
    "next": (None, (None,)),
    "node": ("node id", ("a",)),
    "nodes": ("the nodes", ()),
    "ok": ("whether nothing is missing", (True,)),
    "open": (None, (True,)),
    "openflow_errors": ("errors that switches answered", (0,)),
    "opt_in": (None, ({"open": True, "users": "all", "priority": 50},)),
    "opt_ins": ("a page of users and slices", ()),
    "operation": ("id of an operation", ("1",)),
    "operations": ("a page of operations", ()),
    "origin": (
        "declared by the network file, over the API, or by the controller for a subflow of an MPTCP connection",
        (),
    ),
    "out_group": ("entries that send to this group", (1,)),
    "out_port": ("entries that send to this port", (1,)),
    "over": ("whether it has ended", (True,)),
    "over_after_s": ("seconds from the request to its end; null: not yet", (0.21,)),
    "owner": ("who made it", ("video",)),
    "owner_token_sha256": ("SHA-256 of the token of its owner, in hexadecimal", (_SLICE["owner_token_sha256"],)),
    "p50": ("the median, ms", (0.4,)),
    "pairs": ("pairs of links that were tested", ()),
    "parent": ("the slice that it is a part of", ("production",)),
    "participant": ("node id of a participant", ("b",)),
    "participants": ("node ids of who gets all that one of them sends", (["a", "b", "c"],)),
    "paths": ("paths; a path is a list of link ids", (_PATHS,)),
    "peer": (None, ("02:aa:00:00:00:09",)),
    "peer_ip": (None, ("10.0.0.9",)),
    "peer_port": (None, (443,)),
    "needed_bytes": (None, (1554,)),
    "packet_bytes": (None, (1482,)),
    "pending": (None, ([],)),
    "permissions": ("what its owner may do over REST", (["read", "write"],)),
    "phase": ("what it does now", ("done",)),
    "pid": ("process id", (4711,)),
    "planned_mbps": ("sum of the planned rates of the paths over it, Mb/s", (9.5,)),
    "plans": ("how often paths were computed", (3,)),
    "plugins": ("a page of plugins", ()),
    "policy": ("how paths and rates are chosen; throughput by default", ("throughput",)),
    "port": ("number of a port, or the port", ("1",)),
    "port_no": ("number of the port, hexadecimal", ("00000001",)),
    "ports": ("its ports", ()),
    "position_m": ("x and y, m; null: not declared", ([0.0, 12.5],)),
    "priority": ("which of several counts: the highest", (100,)),
    "problem": ("what is wrong with it", ("expected JSON",)),
    "protocol": ("who made the graph", ("HyRoads",)),
    "quality": ("how good the figure is", ("good",)),
    "queue_id": ("number of a queue, or `ALL`", ("0",)),
    "queued": ("packets that wait at the ingress; null: not reported", (0,)),
    "quotas": ("a page of the quotas of tokens", ()),
    "rate_mbps": ("Mb/s at L2 payload", (9.5,)),
    "reason": ("why; null: there is nothing to say", (None,)),
    "received_bytes": ("bytes that came; null: not reported", (909000,)),
    "received_frames": ("frames that came; null: not reported", (598,)),
    "relative_error": ("how far it may be off, as a share of it; null: not known", (0.02,)),
    "removed": ("names of what is gone", (["old"],)),
    "reordered": ("frames that came after a later one; null: not reported", (12,)),
    "reservation": ("id of a reservation", ("r1",)),
    "reservations": ("a page of reservations", ()),
    "resource": (None, ("/api/v1/flows/f1",)),
    "restart": (None, (["settings: listen"],)),
    "role": ("what the node is", ("gateway",)),
    "rule": ("name of a rule of the slice's flowspace", ("tv", 1)),
    "rules": ("flow entries that it has", (14,)),
    "running": ("the test at work; null: none", ()),
    "sending": ("links that send now", (["ab-plc"],)),
    "sent": ("packets that the ingress sent; null: not reported", (1000,)),
    "sent_bytes": ("bytes that were sent; null: not reported", (912000,)),
    "sent_frames": ("frames that were sent; null: not reported", (600,)),
    "session": ("id of a session", ("s1",)),
    "sessions": ("a page of sessions", ()),
    "settling": ("whether it waits for agents and switches after its start", (False,)),
    "shortest": (None, (5,)),
    "signal_dbm": ("how strong the access point hears it, dBm; null: not known", (-61.0,)),
    "since": (None, (1790000000000042,)),
    "since_s": (None, (12.5,)),
    "subflows": (None, ()),
    "syn_copies": (None, ("off",)),
    "single_path": ("the best single path", ()),
    "slice": ("name of a slice", ("research",)),
    "slices": ("the slices", ([_SLICE],)),
    "slot_ble_mbps": (None, ([110.0, 96.0],)),
    "slot_ms": ("milliseconds between two decisions of rates", (100,)),
    "slots": ("how rates are decided", ()),
    "source": ("where it comes from", ("modulation", True)),
    "sources": (None, ([["port", "counters"]],)),
    "src": ("the port at which it begins", ()),
    "ssids": ("SSIDs whose stations are the slice's", ([{"ssid": "research"}],)),
    "started_from": ("which file the controller read at its start", ()),
    "starts": ("how often it was started", (1,)),
    "state": ("how far it is", ("done",)),
    "status": ("the HTTP status", (404,)),
    "steady_s": ("how long the new place must carry before the old one is left", (0.1,)),
    "steps": ("the phases that it went through", ()),
    "switch": ("its switch; null: it has none", ()),
    "switches": ("one for each switch", ()),
    "takes": (None, ([{}],)),
    "table_id": ("entries of this table", (0,)),
    "technologies": ("names of technologies", (["plc", "wifi"],)),
    "technology": ("name of a technology, as in the network file", ("wifi",)),
    "time_s": ("when the figures were taken, by the controller's clock", (123.4,)),
    "timed_out": ("frames that were no longer waited for; null: not reported", (0,)),
    "times_disabled": ("how often it was disabled for what it did wrong", (0,)),
    "timings": ("bounds of waiting, other than the usual ones", ({"confirm_s": 1.0},)),
    "title": ("what kind of problem it is", ("Not Found",)),
    "to": ("node id of where it ends, or a place", ("c",)),
    "token": ("name of a token", ("app",)),
    "total": ("how many there were", (0,)),
    "total_mbps": ("Mb/s of all paths together", (16.67,)),
    "traffic": ("what the flow is told by: all packets, or TCP and its acknowledgements", ("any",)),
    "trees": ("the trees by which packets reach all participants", ()),
    "type": ("what the document is", ("about:blank",)),
    "up": ("whether it works", (True,)),
    "uptime_s": ("seconds since the controller's start", (12.3,)),
    "user": ("name of a user, as in the slicer's settings", ("ann",)),
    "utility": (None, ("log",)),
    "verdict": (None, ("conflict",)),
    "version": ("rises with every change; of /health: that of HyRoads", (12, "0.3.0")),
    "wait": ("false: answer 202 at once, without waiting for switches and agents", (True,)),
    "warm_s": ("how long a path carries copies before it counts", (0.05,)),
    "waypoint": (None, (None,)),
    "weight": ("its weight where flows share; 1 by default", (1.0,)),
    "what": ("what it is about", ("flow f1",)),
    "where": ("the part in which it happened", ("switch a",)),
}

# Bodies of requests, whose fields must be right together.
REQUESTS: Mapping[str, Any] = {
    "post /api/v1/ha/handover": {"to": "b"},
    "post /api/v1/ha/drain": {"drain": True},
    "post /api/v1/boxes": {
        "id": "b827eb-41c0a1",
        "key": "c" * 64,
        "claim": "d" * 64,
        "tokens": {"agent": "a" * 64, "radio": "b" * 64},
        "request": "-----BEGIN CERTIFICATE REQUEST-----",
        "system": "Debian GNU/Linux 12 (bookworm)",
        "interfaces": [{"name": "eth1", "kind": "ethernet", "mtu": 1500, "address": _MAC}],
        "clock_s": 1790000000.0,
    },
    "post /api/v1/boxes/{box}/wait": {"claim": "5c3f0a52", "until": "adopted"},
    "post /api/v1/boxes/{box}/leave": {"claim": "5c3f0a52"},
    "post /api/v1/boxes/{box}/adopt": {"as": "b", "ports": {"plc": "eth1", "host": "eth2"}},
    "post /api/v1/flows": {
        "id": "tv",
        "from": "a",
        "to": "c",
        "policy": "throughput",
        "match": {"eth_type": 2048, "udp_dst": 5004},
    },
    "post /api/v1/access-rules": {
        "id": "no-mail",
        "action": "deny",
        "client": "c",
        "match": {"eth_type": 2048, "tcp_dst": 25},
        "expires_in_s": 3600.0,
    },
    "patch /api/v1/access-rules/{rule}": {"expires_in_s": 600.0},
    "patch /api/v1/clients/{client}": {"steering": False},
    "post /api/v1/clients/{client}/transition": {"to": {"node": "b", "technology": "wifi"}},
    "post /api/v1/handovers": {"client": "c", "to": {"node": "b", "technology": "wifi"}, "manager": "hard"},
    "put /api/v1/clients/{client}/policy": {
        "interfaces": {"wlan0": {}, "wwan0": {"metered": True, "cap_gib_month": 20}},
        "mode": "full-speed",
        "flows": [{"name": "voice", "match": {"udp_dst": 5060}, "urgent": True}, {"name": "rest"}],
    },
    "patch /api/v1/clients/{client}/policy": {"mode": "cost-efficient"},
    "post /api/v1/clients/{client}/migrations": {"flow": 3, "interface": "wwan0"},
    "post /api/v1/ncasts": {"flow": "f1", "copies": 2},
    "post /api/v1/reservations": {"id": "r1", "flow": "f1", "rate_mbps": 4.0},
    "patch /api/v1/reservations/{reservation}": {"rate_mbps": 6.0},
    "post /api/v1/sessions": {"id": "meeting", "group": "239.1.2.3", "participants": ["a", "b", "c"]},
    "patch /api/v1/sessions/{session}": {"participants": ["a", "c"]},
    "post /api/v1/sessions/{session}/participants": {"name": "b"},
    "post /stats/flow/{dpid}": {"table_id": 0},
    "post /stats/aggregateflow/{dpid}": {"table_id": 0},
    "put /api/v1/slices": {"slices": [_SLICE]},
    "put /api/v1/slices/{name}": _SLICE,
    "patch /api/v1/slices/{name}": {"permissions": ["read"]},
    "put /api/v1/opt-ins/{name}/{user}": {"match": {"ipv4_dst": "10.0.0.0/8"}},
    "put /api/v1/slices/{name}/flowspace": {"flowspace": [_RULE]},
    "post /api/v1/slices/{name}/flowspace": _RULE,
}
_DEEPEST = 8


def describe(fields: Mapping[str, Document]) -> None:
    """Give all fields of a schema that say nothing of themselves the description of their name."""
    for name, schema in fields.items():
        text = VOCABULARY.get(name, (None, ()))[0]
        if text is not None:
            schema.setdefault("description", text)


def example(schema: Document, schemas: Mapping[str, Document], name: str = "", depth: int = _DEEPEST) -> Any:
    """A document that a schema describes, made of the examples of the names in it.

    ``schemas`` are the components that it refers to, ``name`` is that of the field whose schema it is.
    """
    if "example" in schema:
        return schema["example"]
    if "$ref" in schema:
        return example(schemas[schema["$ref"].rpartition("/")[2]], schemas, name, depth)
    several = next((schema[word] for word in ("allOf", "oneOf", "anyOf") if word in schema), None)
    if several:
        return example(several[0], schemas, name, depth)
    found = [each for each in VOCABULARY.get(name, (None, ()))[1] if _is(each, schema)]
    return found[0] if found else _made(schema, schemas, name, depth)


def _made(schema: Document, schemas: Mapping[str, Document], name: str, depth: int) -> Any:
    """An example for a name that has none."""
    if "enum" in schema:
        return schema["enum"][0]
    if depth and "properties" in schema:
        return {key: example(each, schemas, key, depth - 1) for key, each in schema["properties"].items()}
    if depth and "items" in schema:
        return [example(schema["items"], schemas, _SINGULAR.get(name, name), depth - 1)]
    return _smallest(schema)


# Lists of what has an example itself.
_SINGULAR = {"hears": "node", "transmissions": "node", "silent_interfaces": "interface",
             "without_busy_time": "interface"}  # fmt: skip
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "object": dict, "array": list,
    "null": type(None),
}  # fmt: skip


def _kinds(schema: Document) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


def _is(value: Any, schema: Document) -> bool:
    """Whether a value is of the schema's type."""
    if "enum" in schema:
        return value in schema["enum"]
    if "properties" in schema or "$ref" in schema:
        return False
    if isinstance(value, bool):
        return not _kinds(schema) or "boolean" in _kinds(schema)
    if "pattern" in schema and not (isinstance(value, str) and re.search(schema["pattern"], value)):
        return False
    right = not _kinds(schema) or any(isinstance(value, _KINDS[kind]) for kind in _kinds(schema))
    return right and (not isinstance(value, list) or all(_is(each, schema.get("items", {})) for each in value))


def _smallest(schema: Document) -> Any:
    """The least value that a schema allows."""
    kind = next(iter(_kinds(schema)), "object")
    least = schema.get("minimum", 0)
    return {
        "string": "text",
        "integer": int(least),
        "number": float(least),
        "boolean": True,
        "object": {},
        "array": [],
    }.get(kind)
