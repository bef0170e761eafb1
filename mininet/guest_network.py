"""A guest and the outside at the gateway of an emulated network: ``hyroads emulate --guest``.

The guest and a host on the Internet are network namespaces ``hr-NAME-guest`` and ``hr-NAME-outside`` at two interfaces
of the gateway's node. What is between them is the product's own: ``hyroads guest-network`` on the gateway.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hyroads.controller.core.network import Network, Role

from .programs import HYROADS, EmulationError, Program, run, wait_until
from .run_directory import namespace_name

if TYPE_CHECKING:
    from .emulation import Emulation

GUEST, OUTSIDE = "guest", "outside"
# Addresses for tests of networks (RFC 2544): dnsmasq takes those for documentation for private ones, and hides them.
INTERFACE, UPLINK, DEVICE = "guest0", "wan0", "eth0"
OUTSIDE_GATEWAY, OUTSIDE_HOST, PREFIX = "198.18.0.1", "198.18.0.2", 24
NAME = "outside.example"
"""The name of the host outside, which it tells itself."""
READY_S = 20.0
# The gateway asks first whether an address is free, which takes three seconds.
_LEASE_S = 20.0
_ON_LEASE = """\
#!/bin/sh
# What udhcpc is told becomes the guest's address, route and name server.
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
ip addr replace "$ip/$mask" dev "$interface"
ip route replace default via "$router" dev "$interface"
printf '%s %s %s\\n' "$ip" "$router" "$dns" > "{lease}.new"
mv "{lease}.new" "{lease}"
"""


@dataclass(frozen=True)
class Lease:
    """What the guest was given."""

    address: str
    router: str
    dns: str


def gateway_of(network: Network) -> str:
    """The node where guests are: the first gateway. EmulationError if there is none, or a node has a name of ours."""
    for name in (GUEST, OUTSIDE):
        if name in network.nodes:
            raise EmulationError(f"--guest: not with a node {name}: its namespace would have the same name")
    found = next((name for name, node in network.nodes.items() if node.role is Role.GATEWAY), None)
    if found is None:
        raise EmulationError("--guest: the network has no node with the role gateway")
    return found


def namespaces(name: str) -> list[str]:
    """The namespaces of the guest and of the outside of a network."""
    return [namespace_name(name, GUEST), namespace_name(name, OUTSIDE)]


class GuestNetwork:
    """One guest, the gateway's part and the outside, once :meth:`start` has returned."""

    def __init__(self, emulation: Emulation) -> None:
        self.gateway = gateway_of(emulation.network)
        self.guest, self.outside = namespaces(emulation.name)
        self._emulation = emulation
        self._folder = emulation.directory / "guest"
        self.programs: list[Program] = []

    def start(self) -> Lease:
        """Connects the three, starts what serves the guest, and waits until the guest has an address."""
        self._folder.mkdir()
        for namespace, device in ((self.guest, INTERFACE), (self.outside, UPLINK)):
            run("ip", "netns", "add", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
            ends = ("netns", str(self._emulation.node(self.gateway).pid))
            run("ip", "link", "add", device, *ends, "type", "veth", "peer", "name", DEVICE, "netns", namespace)
            run("ip", "-n", namespace, "link", "set", DEVICE, "up")
        inside = self._emulation.inside(self.gateway)
        run(*inside, "ip", "addr", "add", f"{OUTSIDE_GATEWAY}/{PREFIX}", "dev", UPLINK)
        run(*inside, "ip", "link", "set", UPLINK, "up")
        run("ip", "-n", self.outside, "addr", "add", f"{OUTSIDE_HOST}/{PREFIX}", "dev", DEVICE)
        self._start_outside()
        self._start_gateway()
        return self._ask_for_address()

    def _program(self, name: str, command: list[str]) -> Program:
        program = Program(name, command, self._folder / f"{name}.log")
        self.programs.append(program)
        program.start()
        return program

    def _start_outside(self) -> None:
        options = [
            f"--host-record={NAME},{OUTSIDE_HOST}",
            "--local=/example/",
            "--no-resolv",
            "--no-hosts",
            "--bind-interfaces",
        ]
        options += [f"--listen-address={OUTSIDE_HOST}", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file="]
        command = ["ip", "netns", "exec", self.outside, "dnsmasq", *options, "--log-facility=-"]
        self._program("outside-dns", command)

    def _start_gateway(self) -> None:
        document = {
            "interface": INTERFACE,
            "uplink": UPLINK,
            "dns": [OUTSIDE_HOST],
            "state_directory": str(self._folder),
        }
        path = self._folder / "guest-network.json"
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")
        command = [*self._emulation.inside(self.gateway), *HYROADS, "guest-network", "--config", str(path)]
        program = self._program("guest-network", command)

        def ready() -> bool:
            if not program.alive:
                raise EmulationError(program.failure())
            return "ready" in program.log.read_text(encoding="utf-8", errors="replace")

        wait_until("guest network", ready, READY_S)

    def _ask_for_address(self) -> Lease:
        """A real DHCP client in the guest, which goes on renewing its lease."""
        lease, script = self._folder / "lease", self._folder / "on-lease"
        script.write_text(_ON_LEASE.format(lease=lease), encoding="utf-8")
        script.chmod(0o700)
        options = ["-i", DEVICE, "-f", "-s", str(script), "-t", "10", "-T", "1"]
        client = self._program("guest-dhcp", ["ip", "netns", "exec", self.guest, "udhcpc", *options])
        wait_until("lease of the guest", lambda: lease.exists() or not client.alive, _LEASE_S)
        if not lease.exists():
            raise EmulationError(client.failure())
        return read_lease(lease)


def read_lease(path: Path) -> Lease:
    """What the guest's DHCP client wrote down."""
    return Lease(*path.read_text(encoding="ascii").split()[:3])
