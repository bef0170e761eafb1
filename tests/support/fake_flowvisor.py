"""FlowVisor 1.4's management API, with its bugs. ``fake_flowvisor_https`` serves it.

The real one is a Java program of 2013 that no registry has. This one answers as the real one did when its answers
were recorded (``flowvisor-1.4.json``, then ``flowvisor-1.4-more.json``; ``test_fake.py`` replays both): entries are
read back with signed numbers, numbers out of range are cut, a worker dies of two entries at once, two entries may have
one name, what was removed comes back into force with the next add until the slice is updated, an update without a
match widens the entry, entries of disabled slices are hidden and can't be removed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import md5
from ipaddress import IPv4Network
from itertools import count
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

PASSWORD = "secret of the operator"
INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL, PARSE = -32600, -32601, -32602, -32603, -32700
ADMIN = "fvadmin"
_EVERY_SWITCH = ("all", "any", "*", "all_dpids")
# Lowest bit and bits of each field in the wildcards of OpenFlow 1.0.
_WILDCARDS = {
    "in_port": (0, 1), "dl_vlan": (1, 1), "dl_src": (2, 1), "dl_dst": (3, 1), "dl_type": (4, 1), "nw_proto": (5, 1),
    "tp_src": (6, 1), "tp_dst": (7, 1), "nw_src": (8, 6), "nw_dst": (14, 6), "dl_vpcp": (20, 1), "nw_tos": (21, 1),
}  # fmt: skip
_ALL_WILDCARDS = (1 << 22) - 1
_BITS = {
    **dict.fromkeys(("in_port", "dl_vlan", "dl_type", "tp_src", "tp_dst"), 16),
    **dict.fromkeys(("dl_vpcp", "nw_proto", "nw_tos"), 8),
}
_ANY_PARAMETERS = ("list-slices", "list-version", "save-config", "list-datapaths", "list-links", "list-fv-health")
_ARRAYS = ("add-flowspace", "update-flowspace", "remove-flowspace")
_KINDS = ("GENERAL", "DEVICE_CONNECTED", "SLICE_CONNECTED", "SLICE_DISCONNECTED")
_RPC, _JETTY = "com.thetransactioncompany.jsonrpc2.JSONRPC2", "org.eclipse.jetty"
_TRACE = (
    f"{_RPC}Parser.parseJSONRPC2Request(Unknown Source)",
    f"{_RPC}Request.parse(Unknown Source)",
    f"{_RPC}Request.parse(Unknown Source)",
    "org.flowvisor.api.JSONRPCService.parseJSONRequest(JSONRPCService.java:77)",
    "org.flowvisor.api.JSONRPCService.dispatch(JSONRPCService.java:37)",
    "org.flowvisor.api.JettyServer$AuthenticationHandler.handle(JettyServer.java:121)",
    f"{_JETTY}.security.SecurityHandler.handle(SecurityHandler.java:446)",
    f"{_JETTY}.server.handler.HandlerWrapper.handle(HandlerWrapper.java:113)",
    f"{_JETTY}.server.Server.handle(Server.java:337)",
    f"{_JETTY}.server.HttpConnection.handleRequest(HttpConnection.java:581)",
    f"{_JETTY}.server.HttpConnection$RequestHandler.content(HttpConnection.java:1020)",
    f"{_JETTY}.http.HttpParser.parseNext(HttpParser.java:775)",
    f"{_JETTY}.http.HttpParser.parseAvailable(HttpParser.java:222)",
    f"{_JETTY}.server.HttpConnection.handle(HttpConnection.java:417)",
    f"{_JETTY}.io.nio.SelectChannelEndPoint.run(SelectChannelEndPoint.java:474)",
    f"{_JETTY}.util.thread.QueuedThreadPool$2.run(QueuedThreadPool.java:437)",
    "java.base/java.lang.Thread.run(Thread.java:840)",
)
_NO_PARSE = "\n\tat ".join(
    (
        f"------\r\n{_RPC}ParseException: Invalid JSON-RPC 2.0 request: Method parameters have unexpected JSON type",
        *_TRACE,
    )
)


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


def _admin() -> dict[str, dict[str, Any]]:
    return {ADMIN: {"admin-status": True, "host": "none", "port": 0, "contact": "fvadmin@localhost", "lldp": True}}


@dataclass
class FakeFlowVisor:
    """``crash_on``: methods that fail with an empty HTTP 500; ``polls``: how often a request is pending."""

    password: str = PASSWORD
    salts: dict[str, str] = field(default_factory=dict)
    """Of slices' passwords; the real one draws them. So it does with the names of entries that are given none."""
    draw_name: Callable[[], str] = lambda: str(uuid.uuid4())
    openflow_port: int = 6633
    api_port: int = 8081
    topology_control: bool = False
    """Whether it has run since the last start; ``enable-topo-ctrl`` in the settings counts from the next start."""
    slices: dict[str, dict[str, Any]] = field(default_factory=_admin)
    rules: list[dict[str, Any]] = field(default_factory=list)
    """As in its data base: what is listed. Several may have one name."""
    ghosts: list[dict[str, Any]] = field(default_factory=list)
    """Removed, and in force again with the next entry that is added."""
    risen: list[dict[str, Any]] = field(default_factory=list)
    """Removed, and in force."""
    pending: dict[int, list[Any]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    worker_lives: bool = True
    crash_on: set[str] = field(default_factory=set)
    polls: int = 1
    calls: list[tuple[str, Any]] = field(default_factory=list)
    callbacks: list[dict[str, str]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    requests: int = 0
    _ids: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def names(self) -> list[str]:
        """Of the entries in its data base."""
        return [rule["name"] for rule in self.rules]

    @property
    def in_force(self) -> list[str]:
        """The names of the entries that packets obey."""
        return [rule["name"] for rule in (*self.rules, *self.risen)]

    def call(self, method: str, parameters: Any) -> Any:
        self.calls.append((method, parameters))
        if parameters is not None and not isinstance(parameters, list | dict):
            raise Refused(PARSE, _NO_PARSE)
        handler: Callable[[Any], Any] | None = getattr(self, "do_" + method.replace("-", "_"), None)
        if handler is None:
            raise Refused(NO_METHOD, "Method not found")
        if method not in _ANY_PARAMETERS:
            wanted = "ARRAY" if method in _ARRAYS else "OBJECT"
            got = {type(None): "NO_PARAMS", list: "ARRAY", dict: "OBJECT"}[type(parameters)]
            if got != wanted:
                raise Refused(INVALID_PARAMS, f"{method} requires: {wanted}; got: {got}")
        return handler(parameters)

    def do_list_slices(self, _: Any) -> Any:
        return [{"slice-name": name, "admin-status": each["admin-status"]} for name, each in self.slices.items()]

    def do_add_slice(self, given: Any) -> bool:
        controller, name, contact, password = _needed(
            "add-slice", given, "controller-url", "slice-name", "admin-contact", "password"
        )
        kind, host, *port = controller.split(":")
        if kind != "tcp":
            raise Refused(INVALID_PARAMS, f"Flowvisor currently only supports 'tcp' proto, not: {kind}")
        if given.get("drop-policy", "exact") not in ("exact", "rule"):
            message = "add-slice: Flowvisor currently supports an 'exact' or a 'rule' based drop policy"
            raise Refused(INVALID_PARAMS, message)
        if len(name) > 45:
            message = f"add-slice: The length of the sliceName: {name}  should be less than 45 characters"
            raise Refused(INVALID_PARAMS, message)
        if name in self.slices:
            raise Refused(INVALID_PARAMS, "add-slice: Cannot create slice with existing name.")
        where = {"host": host, "port": int(port[0]) if port else 6633}
        if any((each["host"], each["port"]) == tuple(where.values()) for each in self.slices.values()):
            message = f"{host}:{where['port']} already exists, this slice ({name}) will not be null"
            raise Refused(INVALID_REQUEST, f"add-slice: A slice with this controller: {message}")
        self.slices[name] = {
            **where, "contact": contact, "password": password, "lldp": given.get("recv-lldp", False),
            "drop": given.get("drop-policy", "exact"), "admin-status": given.get("admin-status", True),
            "rate-limit": given.get("rate-limit", -1), "flowmod-limit": given.get("flowmod-limit", -1),
        }  # fmt: skip
        return True

    def do_update_slice(self, given: Any) -> bool:
        (name,) = _needed("update-slice", given, "slice-name")
        each = self.slices.get(name)
        if each is None:
            raise Refused(INVALID_PARAMS, f"update-slice: Slice {name} does not exist")
        known = {"controller-host": "host", "controller-port": "port", "admin-contact": "contact"}
        known |= {key: key for key in ("admin-status", "rate-limit", "flowmod-limit")}
        each.update({known[key]: value for key, value in given.items() if key in known})
        self.ghosts = [rule for rule in self.ghosts if name not in _slices_of(rule)]
        self.risen = [rule for rule in self.risen if name not in _slices_of(rule)]
        return True

    def do_remove_slice(self, given: Any) -> bool:
        (name,) = _needed("remove-slice", given, "slice-name")
        if self.slices.pop(name, None) is None:
            raise Refused(INVALID_PARAMS, f"remove-slice: Unknown slice name : {name}")
        for rule in self.rules:
            rule["slice-action"] = [each for each in rule["slice-action"] if each["slice-name"] != name]
        self.rules = [rule for rule in self.rules if rule["slice-action"]]
        return True

    def do_update_slice_password(self, given: Any) -> bool:
        name, password = _needed("update-slice-password", given, "slice-name", "password")
        if name not in self.slices:
            message = f"Unable to set slice password : Password for slice {name} was not updated"
            raise Refused(INTERNAL, f"update-slice-password: {message}")
        self.slices[name]["password"] = password
        return True

    def do_update_admin_password(self, given: Any) -> bool:
        (self.password,) = _needed("update-admin-password", given, "password")
        return True

    def do_add_flowspace(self, given: Any) -> int:
        for entry in given:
            _needed("add-flowspace", entry, "dpid", "priority", "match", "slice-action")
            unknown = entry["match"].keys() - _WILDCARDS.keys()
            if unknown:
                message = f"add-flowspace: Unknown field(s) in match struct : [{', '.join(sorted(unknown))}]"
                raise Refused(INVALID_PARAMS, message)
            for name in _slices_of(entry):
                if name not in self.slices:
                    raise Refused(INVALID_PARAMS, f"add-flowspace: Slice Name {name} does not exist!")
        entries = [_stored(entry, entry.get("name") or self.draw_name()) for entry in given]
        # Nothing to do is never done.
        self.pending[self.requests] = [self.polls, entries or None]
        self.requests += 1
        return self.requests - 1

    def do_list_fs_status(self, given: Any) -> str:
        (number,) = _needed("list-fs-status", given, "fs-id")
        if number >= self.requests:
            return "UNKNOWN"
        if number in self.pending:
            waiting = self.pending[number]
            if not self.worker_lives or waiting[0] > 0 or waiting[1] is None:
                waiting[0] -= 1
                return "PENDING"
            self._carry_out(number, self.pending.pop(number)[1])
        return self.failed.get(number, "SUCCESS")

    def _carry_out(self, number: int, entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            number_of_entry = next(self._ids)
            if len(entry["name"]) > 64:
                self.failed[number] = "Unable to set the flowmap in db"
                return
            self.rules.append({**entry, "id": number_of_entry})
        self.risen += self.ghosts
        self.ghosts = []
        # It removes the request once for each entry, and the second time fails.
        self.worker_lives = len(entries) == 1

    def _found(self, name: str, problem: str) -> list[dict[str, Any]]:
        """The entries of a name, but for those of disabled slices alone: it does not find these."""
        found = [
            rule
            for rule in self.rules
            if rule["name"] == name and any(self.slices[each]["admin-status"] for each in _slices_of(rule))
        ]
        if not found:
            raise Refused(INTERNAL, f"{problem}{name}")
        return found

    def do_update_flowspace(self, given: Any) -> int:
        """The number of the last entry, which is done at once and is no request that has a status."""
        if not given:
            raise RuntimeError("null pointer")
        for change in given:
            old = self._found(change["name"], "update-flowspaceUnable to find flowspace entry :")[0]
            new = {**_stored({**old, "match": {}, **change}, old["name"]), "id": next(self._ids)}
            self.rules = [*(rule for rule in self.rules if rule is not old), new]
        return int(self.rules[-1]["id"])

    def do_remove_flowspace(self, given: Any) -> bool:
        if not given:
            raise Refused(INVALID_PARAMS, "remove-flowspace: Nothing to remove")
        gone = [rule for name in given for rule in self._found(name, "remove-flowspace: unable to find flow entry : ")]
        numbers: set[int] = set()
        for rule in gone:
            if rule["id"] in numbers:
                raise Refused(INTERNAL, f"remove-flowspace: unable to find flow entry : {rule['id']}")
            numbers.add(rule["id"])
        self.ghosts += gone
        self.rules = [rule for rule in self.rules if rule["id"] not in numbers]
        return True

    def do_list_flowspace(self, given: Any) -> Any:
        """One line for each slice of an entry, as its data base joins them; so none for an entry of no slice."""
        only, show = given.get("slice-name"), given.get("show-disabled", False) or "slice-name" in given
        return [
            _listed(rule)
            for rule in self.rules
            for name in _slices_of(rule)
            if (only is None or name == only) and (show or self.slices[name]["admin-status"])
        ]

    def do_list_version(self, _: Any) -> Any:
        return {"db-version": "2", "flowvisor-version": "flowvisor-1.4.0"}

    def do_list_datapaths(self, _: Any) -> Any:
        return []

    do_list_links = do_list_datapaths

    def do_list_fv_health(self, _: Any) -> Any:
        return {"average-delay": 0, "instant-delay": 0}

    def do_set_config(self, given: Any) -> bool:
        self.settings |= given
        return True

    def do_get_config(self, given: Any) -> Any:
        return {
            "api_jetty_webserver_port": self.api_port, "api_webserver_port": -1, "checkpointing": False,
            "config_name": "default", "db_version": "2", "flow-stats-cache": 30, "host": "localhost",
            "enable-topo-ctrl": self.settings.get("enable-topo-ctrl", False),
            "flood-perm": {"dpid": "all", "slice-name": ADMIN},
            "flowmod-limit": {name: {"any": None} for name in self.slices}, "log_facility": "LOG_LOCAL7",
            "log_ident": "flowvisor", "logging": "NOTE", "stats-desc": False, "track-flows": False,
            "version": "flowvisor-1.4.0",
        }  # fmt: skip

    def do_save_config(self, _: Any) -> str:
        """All of its configuration as a text, with the hashes of passwords."""
        own = {
            "checkpointing": False, "default_flood_perm": ADMIN, "config_name": "default",
            "listen_port": self.openflow_port, "log_ident": "flowvisor", "stats_desc_hack": False,
            "api_webserver_port": -1, "run_topology_server": self.settings.get("enable-topo-ctrl", False),
            "api_jetty_webserver_port": self.api_port, "version": "flowvisor-1.4.0", "track_flows": False,
            "db_version": 2, "log_facility": "LOG_LOCAL7", "host": "localhost", "logging": "NOTE",
        }  # fmt: skip
        slices = [self._saved(name, each) for name, each in self.slices.items()]
        return json.dumps({"flowvisor": [own], "Slice": slices}, indent=2)

    def _saved(self, name: str, each: dict[str, Any]) -> dict[str, Any]:
        salt = self.salts.get(name, "1")
        password = self.password if name == ADMIN else each.get("password", "")
        return {
            "config_name": "default", "lldp_spam": each.get("lldp", False), "creator": ADMIN,
            "controller_port": each["port"], "contact_email": each["contact"], "drop_policy": each.get("drop", "exact"),
            "passwd_crypt": md5((salt + password).encode(), usedforsecurity=False).hexdigest(), "passwd_salt": salt,
            "name": name, "admin_status": each["admin-status"], "max_flow_rules": each.get("flowmod-limit", -1),
            "flowmap_type": "federated", "controller_hostname": each["host"],
        }  # fmt: skip

    def do_register_event_callback(self, given: Any) -> bool:
        self._check_kind("register-event-callback", given, "url")
        if self.topology_control:
            self.callbacks.append(given)
        return self.topology_control

    def do_unregister_event_callback(self, given: Any) -> bool:
        self._check_kind("unregister-event-callback", given)
        if self.topology_control:
            raise RuntimeError("it changes the list that it walks through")
        return False

    def _check_kind(self, method: str, given: Any, *more: str) -> None:
        _needed(method, given, *more, "method", "event-type", "cookie")
        if given["event-type"] not in _KINDS:
            raise RuntimeError("no such constant")

    def happen(self, kind: str, *about: Any) -> list[int]:
        """Posts an event as the real one does; the HTTP status of each answer."""
        return [_post(each, about) for each in self.callbacks if each["event-type"] == kind]


def _post(registered: dict[str, str], about: tuple[Any, ...]) -> int:
    method = registered["method"]
    if registered["event-type"] == "GENERAL":
        kind = "text/xml"
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>'
            '<methodCall xmlns:ex="http://ws.apache.org/xmlrpc/namespaces/extensions">'
            f"<methodName>{method}</methodName><params><param><value><ex:nil/></value></param></params></methodCall>"
        )
    else:
        kind = "application/x-www-form-urlencoded"
        body = json.dumps({"method": method, "id": 1, "params": list(about), "jsonrpc": "2.0"})
    try:
        with urlopen(Request(registered["url"], body.encode(), {"Content-Type": kind}), timeout=5) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def _needed(method: str, given: Any, *names: str) -> list[Any]:
    for name in names:
        if name not in given:
            raise Refused(INVALID_PARAMS, f"{method}: {name} is required ")
    return [given[name] for name in names]


def _slices_of(rule: dict[str, Any]) -> list[str]:
    return [action["slice-name"] for action in rule["slice-action"]]


def _stored(entry: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        "name": name, "dpid": _dpid(entry["dpid"]), "priority": entry["priority"],
        "match": {key: _cut(key, value) for key, value in entry["match"].items()},
        "slice-action": [dict(each) for each in entry["slice-action"]], "queues": [], "force-enqueue": -1,
    }  # fmt: skip


def _dpid(text: str) -> str:
    if text in _EVERY_SWITCH:
        return "all_dpids"
    number = int(text.replace(":", ""), 16)
    if number >> 63:
        raise RuntimeError("its numbers are signed")
    return number.to_bytes(8, "big").hex(":")


def _cut(key: str, value: Any) -> Any:
    """What is left of a value: numbers and parts of addresses lose the bits that have no place, and are signed."""
    if key in _BITS:
        bits = _BITS[key]
        number = value & ((1 << bits) - 1)
        return number - (1 << bits) if number >> (bits - 1) else number
    if key in ("nw_src", "nw_dst"):
        address, _, length = value.partition("/")
        number = 0
        for part in address.split("."):
            number = (number << 8) + int(part)
        network = IPv4Network((number & 0xFFFFFFFF, int(length or 32)), strict=False)
        return str(network.network_address) if network.prefixlen == 32 else str(network)
    return value.lower()


def _listed(rule: dict[str, Any]) -> dict[str, Any]:
    wildcards, match = _ALL_WILDCARDS, {}
    for key, value in rule["match"].items():
        place, bits = _WILDCARDS[key]
        wildcards &= ~(((1 << bits) - 1) << place)
        if bits > 1:
            wildcards |= (32 - IPv4Network(value).prefixlen) << place
        if not (bits > 1 and value.endswith("/0")):
            match[key] = value
    return {**rule, "match": {**match, "wildcards": wildcards}}
