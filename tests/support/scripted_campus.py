"""Every switch, agent and radio of a network, scripted, in one process: for a real controller, without packets.

Switches keep the rules, groups and meters that they are given, and tell them when they are asked. Agents carry what
their flows' rates allow, without loss, and report it; radios tell of a medium that is half busy. As a program it dials
a controller and takes one JSON request a line: ``python scripted_campus.py NETWORK --openflow PORT --agents PORT``.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import selectors
import socket
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from hyroads.controller.core.addressing import Addressing, Labels
from hyroads.controller.core.network import Network
from hyroads.controller.files.documents import read_file
from hyroads.controller.ofp import wire

FRAME_BYTES = 1400
REPORT_S = 0.1
REDIAL_S = 0.5
_FLOW_MOD = struct.Struct("!QQBBHHHIIIH2x")
_FLOW_STATS = struct.Struct("!HBxIIHHHH4xQQQ")
_PORT = struct.Struct("!I4x6s2x16sII24x")
_READ_BYTES = 1 << 18
_MOST_PART_BYTES = 60_000


class Peer:
    """One connection to the controller; ``take`` is given what comes in."""

    def __init__(self, campus: Campus, port: int, take: Callable[[Peer, bytearray], None]) -> None:
        self.campus, self.take = campus, take
        self._waiting = bytearray()
        self.data = bytearray()
        self.is_open = True
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        campus.selector.register(self.socket, selectors.EVENT_READ, self)

    def send(self, data: bytes) -> None:
        """Now, or as soon as the controller reads."""
        if not self.is_open:
            return
        if not self._waiting:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                pass
            except OSError:
                self.close()
                return
            if data:
                self.campus.selector.modify(self.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self)
        self._waiting += data

    def on_event(self, mask: int) -> None:
        """It can be read or written."""
        if mask & selectors.EVENT_WRITE:
            self._write()
        if mask & selectors.EVENT_READ and self.is_open:
            try:
                more = self.socket.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                more = b""
            if not more:
                self.close()
                return
            self.data += more
            self.take(self, self.data)

    def _write(self) -> None:
        try:
            del self._waiting[: self.socket.send(self._waiting)]
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not self._waiting:
            self.campus.selector.modify(self.socket, selectors.EVENT_READ, self)

    def close(self) -> None:
        """The connection is over."""
        if self.is_open:
            self.is_open = False
            self.campus.selector.unregister(self.socket)
            self.socket.close()
            self.campus.lost += 1


class Switch:
    """OpenFlow 1.3 as far as the controller uses it."""

    def __init__(self, campus: Campus, node: str) -> None:
        self.campus = campus
        self.dpid = campus.addressing.dpid[node]
        self.ports = campus.addressing.port_names(node)
        self.rules: dict[tuple[int, int, bytes], bytes] = {}
        """(table, priority, match) -> the entry of a flow statistics reply."""
        self.groups: set[int] = set()
        self.peer: Peer | None = None

    def dial(self) -> None:
        """Connect, and say hello."""
        self.peer = Peer(self.campus, self.campus.openflow, self._take)
        self.peer.send(wire.message(b"", 1, wire.HELLO))

    def _take(self, peer: Peer, data: bytearray) -> None:
        at = 0
        while len(data) - at >= 8:
            length = int.from_bytes(data[at + 2 : at + 4], "big")
            if len(data) - at < length:
                break
            self._answer(peer, bytes(data[at : at + length]))
            at += length
        del data[:at]

    def _answer(self, peer: Peer, message: bytes) -> None:
        kind, xid = message[1], int.from_bytes(message[4:8], "big")
        if kind == wire.FLOW_MOD:
            self._change(message)
        elif kind == wire.GROUP_MOD:
            self._change_group(message)
        elif kind == wire.BARRIER_REQUEST:
            peer.send(wire.message(b"", xid, wire.BARRIER_REPLY))
        elif kind == wire.ECHO_REQUEST:
            peer.send(wire.message(message[8:], xid, wire.ECHO_REPLY))
        elif kind == wire.FEATURES_REQUEST:
            features = struct.pack("!QIBB2xII", self.dpid, 0, 254, 0, 0x4F, 0)
            peer.send(wire.message(features, xid, wire.FEATURES_REPLY))
        elif kind == wire.MULTIPART_REQUEST:
            for part in self._parts(message):
                peer.send(wire.message(part, xid, wire.MULTIPART_REPLY))
        elif kind == wire.ROLE_REQUEST:
            peer.send(wire.message(message[8:], xid, wire.ROLE_REPLY))
        elif kind == wire.GET_CONFIG_REQUEST:
            peer.send(wire.message(struct.pack("!HH", 0, 0xFFFF), xid, 8))

    def _change(self, message: bytes) -> None:
        cookie, mask, table, command, _, _, priority, *_ = _FLOW_MOD.unpack_from(message, 8)
        length = int.from_bytes(message[50:52], "big")
        match = message[48 : 48 + (length + 7) // 8 * 8]
        counts = self.campus.counts
        if command in {wire.ADD, wire.MODIFY, wire.MODIFY_STRICT}:
            counts["adds"] += 1
            body = match + message[48 + len(match) :]
            size = _FLOW_STATS.size + len(body)
            head = _FLOW_STATS.pack(size, table, 0, 0, priority, 0, 0, 0, cookie, 0, 0)
            self.rules[table, priority, match] = head + body
        elif command == wire.DELETE_STRICT:
            counts["deletes"] += 1
            self.rules.pop((table, priority, match), None)
        else:
            counts["deletes"] += 1
            gone = [key for key, entry in self.rules.items() if _is_in(entry, key, table, cookie, mask, match)]
            for key in gone:
                del self.rules[key]

    def _change_group(self, message: bytes) -> None:
        command, number = struct.unpack_from("!H2xI", message, 8)
        self.campus.counts["groups"] += 1
        if command == wire.GROUP_DELETE:
            self.groups.discard(number)
        else:
            self.groups.add(number)

    def _parts(self, message: bytes) -> Iterator[bytes]:
        kind = int.from_bytes(message[8:10], "big")
        entries: list[bytes] = []
        if kind == wire.MULTIPART_PORT_DESC:
            entries = [
                _PORT.pack(i, b"\2" + self.dpid.to_bytes(4, "big")[-4:] + bytes((i,)), name.encode(), 0, 0)
                for i, name in enumerate(self.ports, start=1)
            ]
        elif kind == wire.MULTIPART_FLOW:
            table, cookie, mask = message[16], *struct.unpack_from("!QQ", message, 32)
            match = message[48:]
            entries = [e for key, e in self.rules.items() if _is_in(e, key, table, cookie, mask, match)]
        elif kind == wire.MULTIPART_GROUP_DESC:
            entries = [struct.pack("!HBxI", 8, 0, group) for group in sorted(self.groups)]
        elif kind == wire.MULTIPART_METER_FEATURES:
            entries = [struct.pack("!IIIBBxx", 1 << 16, 0, 0, 8, 0)]
        yield from _parts_of(kind, entries)


def _parts_of(kind: int, entries: list[bytes]) -> Iterator[bytes]:
    part: list[bytes] = []
    size = 0
    for entry in entries:
        if size + len(entry) > _MOST_PART_BYTES:
            yield struct.pack("!HH4x", kind, 1) + b"".join(part)
            part, size = [], 0
        part.append(entry)
        size += len(entry)
    yield struct.pack("!HH4x", kind, 0) + b"".join(part)


def _is_in(entry: bytes, key: tuple[int, int, bytes], table: int, cookie: int, mask: int, match: bytes) -> bool:
    """Whether an entry is of this table, cookie and, where the match has fields, of such fields."""
    own = int.from_bytes(entry[24:32], "big")
    fields = match[4 : int.from_bytes(match[2:4], "big")]
    return table in {key[0], wire.ALL_TABLES} and own & mask == cookie & mask and fields in key[2]


class Changes:
    """What a session was told of the reports of an agent (docs/reference/dataplane.md, *Reports of what changed*)."""

    def __init__(self, whole_s: float) -> None:
        self._whole_s = whole_s
        self._whole: dict[str, Any] = {}
        self._told_s = -whole_s

    def line(self, text: str, now_s: float) -> str:
        """What is said of a whole report; nothing if an agent without flows has nothing to tell."""
        now = json.loads(text)
        if now_s < self._told_s + self._whole_s:
            told = _changed(self._whole, now)
            if told is not None:
                found = {"type": "changes", **told, "time_s": now["time_s"]}
                is_idle = len(found) == 2 and not now["ingress"] and not now["egress"]
                return "" if is_idle else json.dumps(found, separators=(",", ":")) + "\n"
        self._whole, self._told_s = now, now_s
        return text


def _changed(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any] | None:
    """The fields that differ; None if other entries are there."""
    found: dict[str, Any] = {}
    for key, value in now.items():
        if not isinstance(value, list):
            if value != before[key] and key not in {"last_heard_ms", "cpu_s", "woken_late"}:
                found[key] = value
            continue
        if [_name(entry) for entry in value] != [_name(entry) for entry in before[key]]:
            return None
        told = [(entry, _changed(was, entry)) for was, entry in zip(before[key], value, strict=True)]
        if any(fields is None for _, fields in told):
            return None
        entries = [{**_name(entry), **fields} for entry, fields in told if fields]
        found.update({key: entries} if entries else {})
    return found


def _name(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: entry[key] for key in ("number", "id", "link") if key in entry}


class Agent:
    """An edge agent. What a flow may send it sends, and the far agent has it at once."""

    def __init__(self, campus: Campus, node: str) -> None:
        self.campus, self.node = campus, node
        self.peer: Peer | None = None
        self.revision = 0
        self.ingress: dict[int, dict[int, float]] = {}
        """Flow number -> path id -> Mb/s."""
        self.labels: dict[tuple[int, int], frozenset[int]] = {}
        self.egress: list[tuple[int, tuple[int, ...]]] = []
        self._links: dict[str, bool] = {}
        self._links_text = ""
        self._changes: Changes | None = None
        self._at_s = time.monotonic()

    def dial(self) -> None:
        """Connect, and say hello."""
        self.peer = Peer(self.campus, self.campus.agents_port, self._take)
        self._write({"type": "hello", "version": 1, "node": self.node, "program": "scripted 1.0", "boot": "1",
                     "token": None, "changes": True, "revision": self.revision})  # fmt: skip

    def _write(self, message: dict[str, Any]) -> None:
        if self.peer is not None:
            self.peer.send(json.dumps(message).encode() + b"\n")

    def _take(self, peer: Peer, data: bytearray) -> None:
        *lines, rest = data.split(b"\n")
        data[:] = rest
        for line in lines:
            self._answer(json.loads(line))

    def _answer(self, message: dict[str, Any]) -> None:
        kind, seq = message["type"], message.get("seq")
        if kind == "welcome":
            self._changes = Changes(message["whole_ms"] / 1e3) if "whole_ms" in message else None
        elif kind == "ping":
            self._write({"type": "pong", "seq": seq})
        elif kind == "stats":
            self.report(seq)
        elif kind == "config":
            self._configure(message)
            self._write({"type": "ok", "seq": seq})
        elif kind == "rates":
            self.advance()
            for number, rates in message["rates"].items():
                self.ingress[int(number)].update({int(path): rate for path, rate in rates.items()})
            self._write({"type": "ok", "seq": seq})
        if kind in {"config", "rates"}:
            self.campus.told(self)

    def _configure(self, message: dict[str, Any]) -> None:
        self.advance()
        self.campus.counts["configs"] += 1
        self.revision = message["revision"]
        self.ingress = {
            flow["number"]: {path["id"]: path["rate_mbps"] or 0.0 for path in flow["paths"]}
            for flow in message["ingress"]
        }
        self.labels = {
            (flow["number"], path["id"]): frozenset(path["labels"])
            for flow in message["ingress"]
            for path in flow["paths"]
        }
        self.egress = [(flow["number"], tuple(flow["paths"])) for flow in message["egress"]]
        expected = [each["link"] for each in message["hello"]["expect"]]
        self._links = {link: self._links.get(link, True) for link in expected}
        self._describe_links()

    def _describe_links(self) -> None:
        links = [{"link": link, "up": up, "last_heard_ms": 1.0} for link, up in self._links.items()]
        self._links_text = json.dumps(links)

    def link(self, link: str, *, up: bool) -> None:
        """An inbound link is silent, or heard again."""
        self._links[link] = up
        self._describe_links()
        self._write({"type": "link", "link": link, "up": up})

    def advance(self) -> None:
        """Carry what the rates allow, until now."""
        now_s = time.monotonic()
        elapsed_s, self._at_s = now_s - self._at_s, now_s
        carried = self.campus.carried_bytes
        for number, rates in self.ingress.items():
            for path, rate_mbps in rates.items():
                carried[number, path] += rate_mbps * 125_000 * elapsed_s

    def report(self, seq: int | None = None) -> None:
        """All counters."""
        if self.peer is None or not self.peer.is_open:
            return
        self.advance()
        carried = self.campus.carried_bytes
        ingress = ",".join(self._sent(number, rates, carried) for number, rates in self.ingress.items())
        egress = ",".join(self._received(number, paths, carried) for number, paths in self.egress)
        text = (
            f'{{"type":"report","seq":{"null" if seq is None else seq},"time_s":{self._at_s:.6f},'
            f'"revision":{self.revision},"ingress":[{ingress}],"egress":[{egress}],"links":{self._links_text or "[]"},'
            '"branched":0,"unclassified":0,"malformed":0,"unknown_flow":0,"overrun":0,"cpu_s":1.5,'
            '"woken_late":{"max_ms":0.1,"over_5_ms_s":0.0,"over_20_ms_s":0.0,"over_100_ms_s":0.0},"more":false}\n'
        )
        self.campus.counts["reports"] += 1
        if seq is None and self._changes is not None:
            text = self._changes.line(text, self._at_s)
        self.peer.send(text.encode())

    @staticmethod
    def _sent(number: int, rates: dict[int, float], carried: dict[tuple[int, int], float]) -> str:
        paths, total = [], 0
        for path, rate in rates.items():
            count = int(carried[number, path])
            total += count // FRAME_BYTES
            paths.append(
                f'{{"id":{path},"rate_mbps":{rate:.6g},"sent_frames":{count // FRAME_BYTES},"sent_bytes":{count}}}'
            )
        return (
            f'{{"number":{number},"queued":20,"queued_bytes":28000,"dropped":0,"too_big":0,"sent":{total},"dummies":0,'
            f'"paths":[{",".join(paths)}]}}'
        )

    @staticmethod
    def _received(number: int, ids: tuple[int, ...], carried: dict[tuple[int, int], float]) -> str:
        paths, total = [], 0
        for path in ids:
            count = int(carried[number, path])
            total += count
            paths.append(
                f'{{"id":{path},"received_frames":{count // FRAME_BYTES},"received_bytes":{count},"delay_ms":2.5,'
                '"last_heard_ms":1.5}'
            )
        return (
            f'{{"number":{number},"delivered_frames":{total // FRAME_BYTES},"delivered_bytes":{total},"reordered":0,'
            '"late":0,"stale":0,"duplicate":0,"lost":0,"timed_out":0,"restarts":0,"dummies":0,"held":0,"held_max":0,'
            f'"hold_mean_ms":0.1,"paths":[{",".join(paths)}]}}'
        )


class Radio:
    """The telemetry session of an access point: capacities as in the file."""

    def __init__(self, campus: Campus, node: str) -> None:
        self.campus, self.node = campus, node
        self.peer: Peer | None = None
        self._whole_s, self._told_s = 0.0, -1e9
        self._media = [(k, json.dumps(campus.neighbours(node, k))) for k in campus.addressing.technologies(node)]

    def dial(self) -> None:
        """Connect, and say hello."""
        self.peer = Peer(self.campus, self.campus.agents_port, self._take)
        hello = {"type": "hello", "version": 1, "role": "radio", "node": self.node, "program": "scripted 1.0",
                 "boot": "1", "token": None, "changes": True}  # fmt: skip
        self.peer.send(json.dumps(hello).encode() + b"\n")

    def _take(self, peer: Peer, data: bytearray) -> None:
        *lines, rest = data.split(b"\n")
        data[:] = rest
        for line in lines:
            message = json.loads(line)
            if message["type"] == "welcome":
                self._whole_s, self._told_s = message.get("whole_ms", 0) / 1e3, -1e9
            elif message["type"] == "ping":
                peer.send(json.dumps({"type": "pong", "seq": message["seq"]}).encode() + b"\n")
            elif message["type"] == "read":
                self.report(message["seq"])

    def report(self, seq: int | None = None) -> None:
        """A reading."""
        if self.peer is None or not self.peer.is_open:
            return
        now_s = time.monotonic()
        is_whole = seq is not None or now_s >= self._told_s + self._whole_s
        if is_whole and seq is None:
            self._told_s = now_s
        used = ",".join(
            f'{{"technology":"{k}","busy_us":{int(now_s * 5e5)},"active_us":{int(now_s * 1e6)}'
            + (f',"neighbours":{rows}}}' if is_whole else "}")
            for k, rows in self._media
        )
        number = "null" if seq is None else seq
        kind = f'"radio","seq":{number}' if is_whole else '"radio-changes"'
        self.campus.counts["readings"] += 1
        self.peer.send(f'{{"type":{kind},"time_s":{now_s:.6f},"interfaces":[{used}]}}\n'.encode())


class Campus:
    """All devices of a network; :meth:`run` until the controller of this process says that it ends."""

    def __init__(self, network: Network, openflow: int, agents: int, *, radios: bool = True) -> None:
        self.network, self.openflow, self.agents_port = network, openflow, agents
        self.addressing = Addressing.of(network)
        self._label = Labels.of(network, self.addressing).link
        self.selector = selectors.DefaultSelector()
        self.counts: dict[str, int] = defaultdict(int)
        self.lost = 0
        self.carried_bytes: dict[tuple[int, int], float] = defaultdict(float)
        self._outgoing: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for link in network.links:
            self._outgoing[link.source, link.technology].append(self._heard(link))
        self.switches = {node: Switch(self, node) for node in self.addressing.dpid}
        self.agents = {node: Agent(self, node) for node in sorted(self.addressing.agents)}
        self.radios = {node: Radio(self, node) for node in self.addressing.dpid} if radios else {}
        self._cut: tuple[float, int, set[tuple[str, int]]] | None = None
        self._cut_ms: float | None = None
        self._asked = bytearray()

    def _heard(self, link: Any) -> dict[str, Any]:
        """A row of a radio's report: the far end of a link."""
        mac = self.addressing.interface_mac[link.target, link.technology]
        return {"mac": mac, "tx_mbps": round(link.capacity_mbps, 3), "rx_mbps": None, "loss": 0.0, "signal_dbm": -50,
                "last_heard_ms": 5}  # fmt: skip

    def neighbours(self, node: str, technology: str) -> list[dict[str, Any]]:
        """What the radio of a node hears."""
        return self._outgoing[node, technology]

    # -- a cut, and how long until no agent sends by the link any more

    def cut(self, link: str, *, up: bool) -> None:
        """A link falls silent, or is heard again: its far end says so."""
        label = self._label[link]
        users = {
            (agent.node, number)
            for agent in self.agents.values()
            for number, rates in agent.ingress.items()
            for path, rate in rates.items()
            if rate > 0 and label in agent.labels[number, path]
        }
        self._cut, self._cut_ms = (time.monotonic(), label, users), None
        self.agents[self.network.links[self.network.link_index[link]].target].link(link, up=up)

    def told(self, agent: Agent) -> None:
        """An agent has a new configuration or new rates."""
        if self._cut is None:
            return
        began_s, label, users = self._cut
        for number, rates in agent.ingress.items():
            if all(rate == 0 or label not in agent.labels[number, path] for path, rate in rates.items()):
                users.discard((agent.node, number))
        if not users and self._cut_ms is None:
            self._cut_ms = 1e3 * (time.monotonic() - began_s)

    # -- requests of the process that started this one

    def _answer(self, line: bytes) -> dict[str, Any]:
        request = json.loads(line)
        operation = request["op"]
        if operation == "cut":
            self.cut(request["link"], up=request.get("up", False))
        elif operation == "used":
            return {"links": self._used()}
        elif operation == "cut-ms":
            waiting = len(self._cut[2]) if self._cut else 0
            return {"ms": self._cut_ms, "flows_on_it": waiting}
        elif operation == "cpu":
            return {"cpu_s": time.process_time()}
        rules = [len(switch.rules) for switch in self.switches.values()]
        configured = sum(bool(agent.revision) for agent in self.agents.values())
        totals = {"rules_most": max(rules), "rules_total": sum(rules), "configured": configured}
        return {"counts": dict(self.counts), "lost_connections": self.lost, **totals}

    def _used(self) -> list[str]:
        """Links that flows use now, on the air."""
        name_of = {label: link for link, label in self._label.items()}
        used = {
            name_of[label]
            for agent in self.agents.values()
            for (number, path), labels in agent.labels.items()
            if agent.ingress.get(number, {}).get(path, 0.0) > 0
            for label in labels & name_of.keys()
        }
        return sorted(used)

    def _take_requests(self) -> bool:
        data = os.read(0, 1 << 16)
        if not data:
            return False
        *lines, rest = (self._asked + data).split(b"\n")
        self._asked = bytearray(rest)
        for line in lines:
            print(json.dumps(self._answer(line)), flush=True)
        return True

    # -- the loop

    def run(self) -> None:
        """Dial, report each ``REPORT_S``, spread over that time, and dial again whoever lost the connection."""
        self.selector.register(0, selectors.EVENT_READ, None)
        devices = [*self.switches.values(), *self.agents.values(), *self.radios.values()]
        now_s = time.monotonic()
        due: list[tuple[float, int, Any]] = [(now_s + i * 2e-3, i, d) for i, d in enumerate(devices)]
        heapq.heapify(due)
        while True:
            wait_s = max(0.0, due[0][0] - time.monotonic())
            for key, mask in self.selector.select(wait_s):
                if key.data is not None:
                    key.data.on_event(mask)
                elif not self._take_requests():
                    return
            now_s = time.monotonic()
            for _ in range(200):
                if due[0][0] > now_s:
                    break
                at_s, i, device = heapq.heappop(due)
                heapq.heappush(due, (self._next_s(device, max(at_s, now_s - REPORT_S)), i, device))

    @staticmethod
    def _next_s(device: Any, now_s: float) -> float:
        """Dial or report; when this device is due again."""
        if device.peer is None or not device.peer.is_open:
            try:
                device.dial()
            except OSError:
                device.peer = None
            return now_s + REDIAL_S
        if isinstance(device, Switch):
            return now_s + REDIAL_S
        device.report()
        return now_s + REPORT_S


def main() -> int:
    """Until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network")
    parser.add_argument("--openflow", type=int, required=True)
    parser.add_argument("--agents", type=int, required=True)
    parser.add_argument("--no-radios", action="store_true")
    asked = parser.parse_args()
    Campus(read_file(asked.network), asked.openflow, asked.agents, radios=not asked.no_radios).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
