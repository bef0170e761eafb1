"""A client with several interfaces, its waypoint, a router between them and a server, with the real ``hyroads-client``.

Each is a network namespace ``hr-NAME-ROLE``. The client's interfaces ``if0``, ``if1``, ... lead to the router, which
leads to server and waypoint. An interface is a veth pair, or, where it has a delay or loses packets, a pair of TAPs of
``hyroads-medium``; its rate is that of a token bucket at both ends, so that a sender feels it at once. The host's part,
addresses, routes and rules of nftables, is here; the same is done on a real client by ``hyroads client run``.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .control_sockets import MediumClient, StackClient, StackError
from .programs import EmulationError, Program, Scope, find_program, run, wait_until
from .run_directory import NETNS_ROOT, namespace_name

ROLES = ("client", "router", "server", "waypoint")
SERVER4, SERVER6 = "10.100.0.2", "fd00:100::2"
WAYPOINT4, WAYPOINT6 = "10.101.0.2", "fd00:101::2"
_ADDRESSES = {"server": {4: SERVER4, 6: SERVER6}, "waypoint": {4: WAYPOINT4, 6: WAYPOINT6}}
# The client's address inside the tunnel, which the waypoint gives it, and the one without a waypoint.
INNER4, INNER6 = "100.72.0.2", "fd72::2"
ALONE4, ALONE6 = "10.171.0.2", "fd68::2"
WAYPOINT_PORT, SESSION = 6656, 7
START_TIMEOUT_S = 5.0
# A token bucket holds a millisecond's bytes, and at least two full frames; its queue a tenth of a second's.
_BURST_S, _QUEUE_S = 0.001, 0.1
_LEAST_BURST_BYTES, _LEAST_QUEUE_BYTES = 3200, 30_000
# More than any rate that is asked for: the token buckets shape, the medium only delays and loses.
_MEDIUM_MBPS = 1000.0
_MEDIUM_QUEUE_FRAMES = 2000
# The kernel must not answer to flows of hr0 that arrive at an interface.
_NO_ANSWERS = """table inet hyroads_client { chain input { type filter hook input priority -300;
    iifname "if*" meta l4proto { tcp, udp } th dport 20000-32767 drop; }; }"""
_MASQUERADE = """table inet waypoint { chain post { type nat hook postrouting priority 100;
    iifname "hrw0" oifname != "hrw0" masquerade; }; }"""


@dataclass(frozen=True)
class Uplink:
    """An interface of the client and what is behind it, the same in both directions.

    ``rate_mbps`` None is as fast as the machine, ``delay_ms`` is one way, ``loss`` a share of frames. ``private``: the
    interface is in 192.168.1.0/24, behind a router of its own that translates addresses, as all private ones are.
    """

    rate_mbps: float | None = None
    delay_ms: float = 0.0
    loss: float = 0.0
    mtu: int = 1500
    private: bool = False

    @property
    def on_medium(self) -> bool:
        """Whether the emulator of shared media carries it."""
        return bool(self.delay_ms or self.loss)


def namespaces_of(name: str, uplinks: Sequence[Uplink]) -> list[str]:
    """The namespaces of a client stack of that name."""
    homes = [f"home{number}" for number, uplink in enumerate(uplinks) if uplink.private]
    return [namespace_name(name, role) for role in (*ROLES, *homes)]


class ClientStack(Scope):
    """The namespaces, links and programs while the context lasts.

    ``folder`` takes sockets and logs. With ``waypoint`` false the client has direct flows only, with ``realtime`` its
    programs run at real-time priority.
    """

    def __init__(
        self, name: str, folder: Path, uplinks: Sequence[Uplink], *, waypoint: bool = True, realtime: bool = False
    ) -> None:
        super().__init__()
        self._options = ["--realtime"] if realtime else []
        self.name, self.folder, self.uplinks, self.has_waypoint = name, folder, list(uplinks), waypoint
        self.programs: dict[str, Program] = {}
        self.key = ""
        self._medium: Path | None = None

    # What it is made of

    def _build(self) -> None:
        existing = {path.name for path in NETNS_ROOT.iterdir()} if NETNS_ROOT.exists() else set()
        for namespace in namespaces_of(self.name, self.uplinks):
            if namespace in existing:
                run("ip", "netns", "del", namespace)
            run("ip", "netns", "add", namespace)
            self._stack.callback(run, "ip", "netns", "del", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
            self._sysctls(namespace)
        self._start_medium()
        for number in range(len(self.uplinks)):
            self._connect(number)
        for number, role in ((100, "server"), (101, "waypoint")):
            self._veth(role, "up0", "router", role)
            self._address("router", role, f"10.{number}.0.1/24", f"fd00:{number}::1/64")
            self._address(role, "up0", f"10.{number}.0.2/24", f"fd00:{number}::2/64")
            self._default(role, f"10.{number}.0.1", f"fd00:{number}::1", "up0", 100)
        if self.has_waypoint:
            self._start_waypoint()
        self.nft("client", _NO_ANSWERS)
        self.start_client()

    @staticmethod
    def _sysctls(namespace: str) -> None:
        wanted = ["ipv4.ip_forward=1", "ipv6.conf.all.forwarding=1", "ipv6.conf.all.keep_addr_on_down=1"]
        wanted += [f"ipv4.conf.{which}.rp_filter=0" for which in ("all", "default")]
        wanted += [f"ipv6.conf.{which}.accept_dad=0" for which in ("all", "default")]
        run("ip", "netns", "exec", namespace, "sysctl", "-qw", *(f"net.{each}" for each in wanted))

    def _start_medium(self) -> None:
        numbers = [number for number, uplink in enumerate(self.uplinks) if uplink.on_medium]
        if not numbers:
            return
        ports, links = [], []
        for number in numbers:
            uplink = self.uplinks[number]
            ends = [("client", f"if{number}"), (self._far(number), f"r{number}")]
            for (role, port), (_, other) in (ends, ends[::-1]):
                named = {"name": port, "netns": self.namespace(role), "technology": port, "uplink": other}
                mac = f"02:00:0{role == 'client':d}:00:00:{number:02x}"
                ports.append({**named, "mac": mac})
                quality = {"delay_ms": uplink.delay_ms, "loss": uplink.loss, "capacity_mbps": _MEDIUM_MBPS}
                links.append({"id": f"{port}-{other}", "from": port, "to": other, "up": True, **quality})
        options = {"mtu": 1500, "queue_frames": _MEDIUM_QUEUE_FRAMES}
        config = {"options": options, "ports": ports, "links": links, "conflicts": {"pairs": []}}
        file, self._medium = self.folder / "medium.json", self.folder / "medium.sock"
        file.write_text(json.dumps(config), encoding="utf-8")
        command = [find_program("hyroads-medium"), "--config", str(file), "--socket", str(self._medium), "--realtime"]
        self._program("hyroads-medium", command, self._medium)

    def _program(self, name: str, command: Sequence[str], socket: Path) -> Program:
        """Starts a program and waits for its control socket."""
        socket.unlink(missing_ok=True)
        program = Program(name, command, self.folder / f"{name}.log", bound_to_parent=True)
        self._run_until_left(program, socket, START_TIMEOUT_S)
        self.programs[name] = program
        return program

    def _far(self, number: int) -> str:
        """Where an interface's other end is."""
        return f"home{number}" if self.uplinks[number].private else "router"

    def _connect(self, number: int) -> None:
        uplink, near, far = self.uplinks[number], f"if{number}", f"r{number}"
        if not uplink.on_medium:
            self._veth("client", near, self._far(number), far)
        for role, device in (("client", near), (self._far(number), far)):
            self.ip(role, "link", "set", device, "mtu", str(uplink.mtu), "up")
            if uplink.rate_mbps is not None:
                self._shape(role, device, uplink.rate_mbps)
        net4, net6 = f"10.{number + 1}.0", f"fd00:{number + 1}:"
        if uplink.private:
            home = self._far(number)
            self._veth(home, "wan", "router", f"w{number}")
            self._address("router", f"w{number}", f"{net4}.1/24", f"{net6}:1/64")
            self._address(home, "wan", f"{net4}.2/24", f"{net6}:2/64")
            self._default(home, f"{net4}.1", f"{net6}:1", "wan", 100)
            self.nft(home, _MASQUERADE.replace('iifname "hrw0" oifname != "hrw0"', 'oifname "wan"'))
            net4, net6 = "192.168.1", "fd00:192:"
        self._address(self._far(number), far, f"{net4}.1/24", f"{net6}:1/64")
        self._address("client", near, f"{net4}.2/24", f"{net6}:2/64")
        self._default("client", f"{net4}.1", f"{net6}:1", near, 100 + number)

    def _veth(self, role: str, device: str, other: str, its: str) -> None:
        ends = (("netns", self.namespace(role)), ("netns", self.namespace(other)))
        run("ip", "link", "add", device, *ends[0], "type", "veth", "peer", "name", its, *ends[1])
        self.ip(role, "link", "set", device, "up")
        self.ip(other, "link", "set", its, "up")

    def _address(self, role: str, device: str, *addresses: str) -> None:
        for address in addresses:
            self.ip(role, "addr", "replace", address, "dev", device, *(["nodad"] if ":" in address else []))

    def _default(self, role: str, via4: str, via6: str, device: str, metric: int) -> None:
        for family, via in (("-4", via4), ("-6", via6)):
            self.ip(role, family, "route", "replace", "default", "via", via, "dev", device, "metric", str(metric))

    def _shape(self, role: str, device: str, mbps: float) -> None:
        rate_bytes_s = mbps * 1e6 / 8
        burst = max(_LEAST_BURST_BYTES, round(rate_bytes_s * _BURST_S))
        limit = max(_LEAST_QUEUE_BYTES, round(rate_bytes_s * _QUEUE_S))
        shape = ["rate", f"{round(1000 * mbps)}kbit", "burst", str(burst), "limit", str(limit)]
        self.run(role, "tc", "qdisc", "replace", "dev", device, "root", "tbf", *shape)

    def _start_waypoint(self) -> None:
        control = self.folder / "waypoint.sock"
        command = [find_program("hyroads-client"), "--waypoint", *self._options]
        command = ["ip", "netns", "exec", self.namespace("waypoint"), *command]
        command += ["--listen", str(WAYPOINT_PORT), "--control", str(control)]
        self._program("waypoint", command, control)
        self._address("waypoint", "hrw0", "100.72.0.1/16", "fd72::1/64")
        self.nft("waypoint", _MASQUERADE)

    def start_client(self) -> None:
        """Starts ``hyroads-client`` (again), opens its session at the waypoint, and gives hr0 its addresses."""
        control = self.folder / "client.sock"
        options = ["--control", str(control), "--state", str(self.folder / "client.state"), *self._options]
        command = ["ip", "netns", "exec", self.namespace("client"), find_program("hyroads-client"), *options]
        self._program("hyroads-client", command, control)
        self._address("client", "hr0", *(f"{address}/{32 if '.' in address else 128}" for address in self.addresses))
        self.run("client", "sysctl", "-qw", "net.ipv4.conf.hr0.ignore_routes_with_linkdown=1")
        for family in ("-4", "-6"):
            self.ip("client", family, "route", "replace", "default", "dev", "hr0", "metric", "1")
        if self.has_waypoint:
            self.key = secrets.token_hex(16)
            address4, address6 = self.addresses
            session = {"session": SESSION, "client": "laptop", "key": self.key}
            self.request("session", role="waypoint", **session, address4=address4, address6=address6)

    # What is asked of it

    @property
    def names(self) -> list[str]:
        """The client's interfaces."""
        return [f"if{number}" for number in range(len(self.uplinks))]

    @property
    def addresses(self) -> tuple[str, str]:
        """The client's addresses: IPv4, IPv6."""
        return (INNER4, INNER6) if self.has_waypoint else (ALONE4, ALONE6)

    def namespace(self, role: str) -> str:
        """Namespace of a role."""
        return namespace_name(self.name, role)

    def address(self, role: str, version: int) -> str:
        """Address of server or waypoint."""
        return _ADDRESSES[role][version]

    def ip(self, role: str, *arguments: str) -> str:
        """``ip`` in a namespace."""
        return run("ip", "-n", self.namespace(role), *arguments)

    def run(self, role: str, *command: str, timeout_s: float = 30.0) -> str:
        """Output of a command in a namespace."""
        return run("ip", "netns", "exec", self.namespace(role), *command, timeout_s=timeout_s)

    def nft(self, role: str, rules: str) -> None:
        """Adds rules of nftables in a namespace."""
        command = ["ip", "netns", "exec", self.namespace(role), "nft", "-f", "-"]
        done = subprocess.run(command, input=rules, capture_output=True, text=True, check=False, timeout=10)
        if done.returncode:
            raise EmulationError(f"nft: {done.stderr.strip()}")

    def request(self, kind: str, role: str = "client", **keys: Any) -> dict[str, Any]:
        """The answer of a program to a request; StackError if it refuses."""
        with self.control(role) as client:
            return client.request(kind, **keys)

    def control(self, role: str = "client") -> StackClient:
        """A new connection to a program's control socket."""
        return StackClient(self.folder / f"{role}.sock")

    def configure(
        self,
        rules: Sequence[Mapping[str, Any]] | None = None,
        interfaces: Sequence[Mapping[str, Any]] | None = None,
        *,
        via: str | None = None,
    ) -> None:
        """Gives the client a whole configuration: without ``rules`` everything goes ``via`` direct or the waypoint."""
        usual = "waypoint" if self.has_waypoint else "direct"
        rules = rules or [{"name": "rest", "interfaces": self.names, "via": via or usual}]
        address4, address6 = self.addresses
        far = {"address": WAYPOINT4, "port": WAYPOINT_PORT, "session": SESSION, "key": self.key}
        self.request(
            "configure",
            address4=address4,
            address6=address6,
            interfaces=list(interfaces or [{"name": name, "rate_mbps": None} for name in self.names]),
            waypoint=far if self.has_waypoint else None,
            rules=list(rules),
        )

    def wait_alive(self, names: Sequence[str] | None = None, timeout_s: float = START_TIMEOUT_S) -> None:
        """Waits until the waypoint answers over interfaces (default: all)."""
        wanted = set(self.names if names is None else names)

        def alive() -> bool:
            links = self.request("status")["interfaces"]
            return wanted <= {link["name"] for link in links if link["alive"]}

        wait_until("the waypoint", alive, timeout_s)

    def flow(self, **keys: Any) -> dict[str, Any]:
        """The newest flow with these values in its status; StackError if there is none within a second."""
        until_s = time.monotonic() + 1.0
        while not (flows := [flow for flow in self.request("status")["flows"] if keys.items() <= flow.items()]):
            if time.monotonic() > until_s:
                raise StackError(f"no flow with {keys}")
            time.sleep(0.01)
        return min(flows, key=lambda flow: float(flow["age_s"]))

    def migrate(self, flow: int, interface: str) -> None:
        """Moves a flow."""
        self.request("migrate", flow=flow, interface=interface)

    # What happens to it

    def set_carrier(self, number: int, *, up: bool) -> None:
        """Takes the carrier of an interface away or gives it back; what has left it arrives, nothing comes to it."""
        if self.uplinks[number].on_medium:
            self.set_medium(f"r{number}-if{number}", up=up)
            self.ip("client", "link", "set", f"if{number}", "carrier", "on" if up else "off")
        else:
            self.ip(self._far(number), "link", "set", f"r{number}", "up" if up else "down")

    def set_medium(self, link: str, **changes: Any) -> None:
        """Changes a link of the medium, such as ``if0-r0``: capacity_mbps, delay_ms, loss, up."""
        if self._medium is None:
            raise EmulationError("no interface has a delay or loses packets: there is no medium")
        with MediumClient(self._medium) as client:
            client.set_link(link, **changes)

    def set_rate(self, number: int, mbps: float) -> None:
        """Changes the rate of an interface that has one."""
        for role, device in (("client", f"if{number}"), (self._far(number), f"r{number}")):
            self._shape(role, device, mbps)

    def drop(self, number: int, percent: int) -> None:
        """Lets the router drop so many percent of an interface's packets, both ways, unknown to it; 0: none."""
        self.nft("router", f"table inet drop{number} {{}}; delete table inet drop{number};")
        if percent:
            part = "drop" if percent >= 100 else f"numgen random mod 100 < {percent} drop"
            self.nft(
                "router",
                f"""table inet drop{number} {{
                chain to {{ type filter hook prerouting priority -500; iifname "r{number}" {part}; }};
                chain from {{ type filter hook postrouting priority 500; oifname "r{number}" {part}; }}; }}""",
            )

    def plug(self, uplink: Uplink) -> str:
        """Plugs one more interface in, a veth pair; returns its name."""
        self.uplinks.append(uplink)
        self._connect(len(self.uplinks) - 1)
        return self.names[-1]

    def unplug(self) -> None:
        """Pulls out the interface that was plugged in last."""
        self.ip("client", "link", "del", self.names[-1])
        self.uplinks.pop()

    def settle(self, seconds: float = 0.3) -> None:
        """Lets hellos go to and fro."""
        time.sleep(seconds)
