"""The scripted devices of a campus (``scripted_campus``): switches, agents and radios that never wait for anybody.

Switches keep the rules, groups and meters that they are given, and tell them when they are asked. Agents carry what
their flows' rates allow, without loss, and report it; radios tell of a medium that is half busy. Each device has a
:class:`Line` with every controller, and tells those that do not lead each second, as real ones do.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from noisy_air import NoisyAir
from scripted_lines import Device, Line, Peer, Told

from hyroads.controller.access_point.reading_changes import Changes
from hyroads.controller.ofp import wire

if TYPE_CHECKING:
    from scripted_campus import Campus

FRAME_BYTES = 1400
_FLOW_MOD = struct.Struct("!QQBBHHHIIIH2x")
_FLOW_STATS = struct.Struct("!HBxIIHHHH4xQQQ")
_PORT = struct.Struct("!I4x6s2x16sII24x")
_MOST_PART_BYTES = 60_000


def factory_address(dpid: int, number: int) -> bytes:
    """The address of a port, as the switch reports it."""
    return b"\2" + dpid.to_bytes(4, "big")[-4:] + bytes((number,))


class Switch(Device):
    """OpenFlow 1.3 as far as the controller uses it."""

    def __init__(self, campus: Campus, node: str) -> None:
        super().__init__(campus, node, campus.openflow)
        self.dpid = campus.addressing.dpid[node]
        self.ports = campus.addressing.port_names(node)
        self.rules: dict[tuple[int, int, bytes], bytes] = {}
        """(table, priority, match) -> the entry of a flow statistics reply."""
        self.groups: set[int] = set()

    def hello(self) -> bytes:
        """What is said first."""
        return wire.message(b"", 1, wire.HELLO)

    def take(self, line: Line, peer: Peer, data: bytearray) -> None:
        """Whole messages of what came."""
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
                _PORT.pack(i, factory_address(self.dpid, i), name.encode(), 0, 0)
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


class Agent(Device):
    """An edge agent. What a flow may send it sends, and the far agent has it at once."""

    def __init__(self, campus: Campus, node: str) -> None:
        super().__init__(campus, node, campus.agents_ports)
        self.revision = 0
        self.ingress: dict[int, dict[int, float]] = {}
        """Flow number -> path id -> Mb/s."""
        self.labels: dict[tuple[int, int], frozenset[int]] = {}
        self.egress: list[tuple[int, tuple[int, ...]]] = []
        self._links: dict[str, bool] = {}
        self._links_text = ""
        self._at_s = time.monotonic()

    def hello(self) -> bytes:
        """What is said first."""
        hello = {"type": "hello", "version": 1, "node": self.node, "program": "scripted 1.0", "boot": "1",
                 "token": None, "changes": True, "revision": self.revision}  # fmt: skip
        seen = {"epoch": self.greatest} if self.greatest else {}
        return json.dumps({**hello, **seen}).encode() + b"\n"

    def answer(self, line: Line, message: dict[str, Any]) -> None:
        """To a line of JSON."""
        kind, seq = message["type"], message.get("seq")
        if kind == "welcome":
            line.whole_s = message["whole_ms"] / 1e3 if "whole_ms" in message else None
            line.report_s = message["report_ms"] / 1e3
            line.told, line.is_welcome = None, True
        elif kind == "ping":
            self.campus.counts["asks"] += message.get("leader", False)
            line.write({"type": "pong", "seq": seq})
        elif kind == "stats":
            self.report(line, seq)
        elif kind == "lead":
            line.lead(message, revision=self.revision, rates=self.ingress)
        elif kind in {"config", "rates"} and not line.leads:
            line.refuse(message)
        elif kind in {"config", "rates"}:
            self._change(kind, message)
            line.write({"type": "ok", "seq": seq})
            self.campus.told(self)

    def _change(self, kind: str, message: dict[str, Any]) -> None:
        if kind == "config":
            self._configure(message)
            return
        self.advance()
        self.campus.counts["rates"] += 1
        for number, rates in message["rates"].items():
            self.ingress[int(number)].update({int(path): rate for path, rate in rates.items()})

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
        for line in self.lines:
            line.write({"type": "link", "link": link, "up": up})

    def advance(self) -> None:
        """Carry what the rates allow, until now."""
        now_s = time.monotonic()
        elapsed_s, self._at_s = now_s - self._at_s, now_s
        carried = self.campus.carried_bytes
        for number, rates in self.ingress.items():
            for path, rate_mbps in rates.items():
                carried[number, path] += rate_mbps * 125_000 * elapsed_s

    def report(self, line: Line, seq: int | None = None) -> None:
        """All counters, or those that changed since they were all told."""
        if line.peer is None or not line.is_up:
            return
        self.advance()
        self.campus.counts["reports"] += 1
        if seq is None and self._tells_changes(line):
            return
        carried = self.campus.carried_bytes
        ingress = ",".join(self._sent(number, rates, carried) for number, rates in self.ingress.items())
        egress = ",".join(self._received(number, paths, carried) for number, paths in self._arrivals())
        text = (
            f'{{"type":"report","seq":{"null" if seq is None else seq},"time_s":{self._at_s:.6f},'
            f'"revision":{self.revision},"ingress":[{ingress}],"egress":[{egress}],"links":{self._links_text or "[]"},'
            '"branched":0,"unclassified":0,"malformed":0,"unknown_flow":0,"overrun":0,"cpu_s":1.5,'
            '"woken_late":{"max_ms":0.1,"over_5_ms_s":0.0,"over_20_ms_s":0.0,"over_100_ms_s":0.0},"more":false}\n'
        )
        line.peer.send(text.encode())

    def _tells_changes(self, line: Line) -> bool:
        """Tell what differs from the last whole report; False if all is to be told now."""
        told = line.told
        if line.whole_s is None or line.peer is None:
            return False
        if (
            told is None
            or self._at_s >= told.at_s + line.whole_s
            or told.links.keys() != self._links.keys()
            or told.revision != self.revision
        ):
            line.told = self._now()
            return False
        parts = [f'"time_s":{self._at_s:.6f}']
        if self.ingress or self.egress:
            parts += self._flows_changed(told)
        if self._links != told.links:
            links = [{"link": name, "up": up} for name, up in self._links.items() if told.links[name] != up]
            parts.append(f'"links":{json.dumps(links)}')
        elif not (self.ingress or self.egress):
            return True
        line.peer.send(f'{{"type":"changes",{",".join(parts)}}}\n'.encode())
        return True

    def _now(self) -> Told:
        carried = self.campus.carried_bytes
        rates = {(number, path): rate for number, paths in self.ingress.items() for path, rate in paths.items()}
        received = {(number, path): int(carried[number, path]) for number, paths in self.egress for path in paths}
        sent = {key: int(carried[key]) for key in rates}
        return Told(self._at_s, self.revision, dict(self._links), rates, sent, received)

    def _flows_changed(self, told: Told) -> Iterator[str]:
        carried, ingress, egress = self.campus.carried_bytes, [], []
        for number, rates in self.ingress.items():
            paths, total, is_new = [], 0, False
            for path, rate in rates.items():
                key = (number, path)
                count = int(carried[key])
                total += count // FRAME_BYTES
                if count != told.sent[key] or rate != told.rates[key]:
                    is_new |= count != told.sent[key]
                    rated = f'"rate_mbps":{rate:.6g},' if rate != told.rates[key] else ""
                    paths.append(f'{{"id":{path},{rated}"sent_frames":{count // FRAME_BYTES},"sent_bytes":{count}}}')
            if paths:
                sent = f'"sent":{total},' if is_new else ""
                ingress.append(f'{{"number":{number},{sent}"paths":[{",".join(paths)}]}}')
        for number, ids in self._arrivals():
            paths, total = [], 0
            for path in ids:
                count = int(carried[number, path])
                total += count
                if count != told.received[number, path]:
                    frames = count // FRAME_BYTES
                    paths.append(
                        f'{{"id":{path},"received_frames":{frames},"received_bytes":{count},"last_heard_ms":1.5}}'
                    )
            if paths:
                delivered = f'"delivered_frames":{total // FRAME_BYTES},"delivered_bytes":{total}'
                egress.append(f'{{"number":{number},{delivered},"paths":[{",".join(paths)}]}}')
        if ingress:
            yield f'"ingress":[{",".join(ingress)}]'
        if egress:
            yield f'"egress":[{",".join(egress)}]'

    def _arrivals(self) -> list[tuple[int, tuple[int, ...]]]:
        """By flow: the paths that it reports as receiver."""
        return [(number, paths if self.campus.arrivals else ()) for number, paths in self.egress]

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


class Radio(Device):
    """The telemetry session of an access point. On air at rest capacities are as in the file. On noisy air
    (``noisy_air``) what is sent is decided by the code of real access points (``access_point.reading_changes``).
    """

    def __init__(self, campus: Campus, node: str) -> None:
        super().__init__(campus, node, campus.agents_ports)
        self._told_s = dict.fromkeys(self.lines, -1e9)
        rows = {k: campus.neighbours(node, k) for k in campus.addressing.technologies(node)}
        self._media = [(k, json.dumps(each)) for k, each in rows.items()]
        self._air = None if campus.moving is None else NoisyAir(rows, node, campus.moving)
        self._changes: dict[Line, Changes] = {}

    def hello(self) -> bytes:
        """What is said first."""
        hello = {"type": "hello", "version": 1, "role": "radio", "node": self.node, "program": "scripted 1.0",
                 "boot": "1", "token": None, "changes": True}  # fmt: skip
        seen = {"epoch": self.greatest} if self.greatest else {}
        return json.dumps({**hello, **seen}).encode() + b"\n"

    def answer(self, line: Line, message: dict[str, Any]) -> None:
        """To a line of JSON."""
        kind = message["type"]
        if kind == "welcome":
            line.whole_s, self._told_s[line] = message.get("whole_ms", 0) / 1e3, -1e9
            self._changes[line] = Changes(line.whole_s)
            line.report_s, line.is_welcome = message["interval_ms"] / 1e3, True
        elif kind == "ping":
            line.write({"type": "pong", "seq": message["seq"]})
        elif kind == "read":
            self.report(line, message["seq"])
        elif kind == "lead":
            line.lead(message)

    def report(self, line: Line, seq: int | None = None) -> None:
        """A reading."""
        if line.peer is None or not line.is_up:
            return
        now_s = time.monotonic()
        self.campus.counts["readings"] += 1
        text = self._at_rest(line, now_s, seq) if self._air is None else self._noisy(self._air, line, now_s, seq)
        line.peer.send(text.encode())

    def _noisy(self, air: NoisyAir, line: Line, now_s: float, seq: int | None) -> str:
        interfaces = [
            {"technology": k, "busy_us": int(now_s * 5e5), "active_us": int(now_s * 1e6), "neighbours": rows}
            for k, rows in air.read().items()
        ]
        reading = {"time_s": round(now_s, 6), "interfaces": interfaces}
        if seq is None:
            message = self._changes[line].message(reading, now_s)
        else:
            message = {"type": "radio", "seq": seq, **reading}
        rows = sum(len(each.get("neighbours", ())) for each in message["interfaces"])
        self.campus.counts["readings_with_rows"] += rows > 0
        self.campus.counts["rows"] += rows
        return json.dumps(message, separators=(",", ":")) + "\n"

    def _at_rest(self, line: Line, now_s: float, seq: int | None) -> str:
        is_whole = seq is not None or now_s >= self._told_s[line] + (line.whole_s or 0.0)
        if is_whole and seq is None:
            self._told_s[line] = now_s
        used = ",".join(
            f'{{"technology":"{k}","busy_us":{int(now_s * 5e5)},"active_us":{int(now_s * 1e6)}'
            + (f',"neighbours":{rows}}}' if is_whole else "}")
            for k, rows in self._media
        )
        number = "null" if seq is None else seq
        kind = f'"radio","seq":{number}' if is_whole else '"radio-changes"'
        return f'{{"type":{kind},"time_s":{now_s:.6f},"interfaces":[{used}]}}\n'
