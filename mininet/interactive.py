"""A running emulated network in the hands of its user: Mininet's prompt with a few commands more, or until Ctrl-C."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

from mininet.cli import CLI
from mininet.log import error, output

from hyroads.controller.core.errors import HyroadsError

from .emulation import REST_PORT, Emulation
from .guest_network import OUTSIDE_HOST
from .programs import EmulationError

WATCH_INTERVAL_S = 0.2


def keep_running(emulation: Emulation, *, cli: bool, script: str | None) -> int:
    """Keeps the network running until the user ends it; raises EmulationError when the network breaks."""
    if script is not None and not Path(script).is_file():
        raise EmulationError(f"--script {script}: no such file")
    if not cli and script is None:
        _introduce(emulation)
        while True:
            _watch_once(emulation)
            time.sleep(WATCH_INTERVAL_S)
    stop = threading.Event()
    watcher = threading.Thread(target=watch, args=(emulation, stop), daemon=True)
    watcher.start()
    HybridPrompt(emulation, script=script)
    stop.set()
    watcher.join()
    return 0


def watch(emulation: Emulation, stop: threading.Event) -> None:
    """Starts parts again that ended, until ``stop`` is set; returns when the network breaks."""
    while not stop.wait(WATCH_INTERVAL_S):
        try:
            _watch_once(emulation)
        except HyroadsError as error:
            # The prompt stays, so that the user can look at what is left.
            _tell(str(error))
            return


def _watch_once(emulation: Emulation) -> None:
    emulation.check()
    emulation.restart_dead(_tell)


def _tell(message: str) -> None:
    print(f"hyroads: {message}", file=sys.stderr, flush=True)


def _introduce(emulation: Emulation) -> None:
    first, *_, last = emulation.network.nodes
    address = emulation.addressing.host_ip[last]
    print(f"Network {emulation.name} runs; Ctrl-C ends it. Its nodes are network namespaces of this machine:")
    print(f"  ip netns exec {emulation.namespace(first)} ping {address}")
    if emulation.guest_network is not None:
        guest = emulation.guest_network.guest
        print("A guest is at the gateway: it reaches the host outside, and nothing of the network:")
        print(f"  ip netns exec {guest} ping {OUTSIDE_HOST}")
        print(f"  ip netns exec {guest} ping {address}")
    for node in emulation.waypoints:
        print(f"Clients reach the waypoint of {node} with the policies in {emulation.waypoints[node].log.parent}.")
    if emulation.etcd is not None:
        print(f"Controllers: hyroads ha status --url {','.join(emulation.rest_urls)}")
    print(
        f"Inside, the controller answers REST on 127.0.0.1:{REST_PORT}; logs are in {emulation.directory}.", flush=True
    )


class HybridPrompt(CLI):  # type: ignore[misc]  # Mininet has no types
    """Mininet's CLI; ``a ping c``, ``pingall``, ``link a plc down``, ``dpctl dump-flows`` and the rest work as ever."""

    def __init__(self, emulation: Emulation, **options: Any) -> None:
        self.emulation = emulation
        super().__init__(emulation.net, **options)

    def do_cut(self, line: str) -> None:
        """Cut links of the medium. Usage: cut LINK..."""
        self._set_links(line, up=False)

    def do_restore(self, line: str) -> None:
        """Restore links of the medium. Usage: restore LINK..."""
        self._set_links(line, up=True)

    def do_capacity(self, line: str) -> None:
        """Change a link's capacity in Mb/s of L2 payload. Usage: capacity LINK MBPS"""
        words = line.split()
        try:
            link, mbps = words[0], float(words[1])
        except (IndexError, ValueError):
            error("usage: capacity LINK MBPS\n")
            return
        self._try(link, capacity_mbps=mbps)

    def do_media(self, _line: str) -> None:
        """Show the links of the medium; ``sending`` and ``busy`` (the whole domain) are shares of time."""
        with self.emulation.shared.client() as client:
            statistics = client.stats()
        output(f"{'link':<16}{'':5}{'Mb/s':>8}{'frames':>10}{'dropped':>9}{'collided':>10}{'sending':>9}{'busy':>7}\n")
        for link in statistics.links.values():
            state = "up" if link.up else "down"
            output(
                f"{link.id:<16}{state:<5}{link.capacity_mbps:>8g}{link.frames:>10}{link.dropped:>9}"
                f"{link.collisions:>10}{link.airtime:>9.1%}{link.busy:>7.1%}\n"
            )
        output(f"worst lateness of the medium: {statistics.lateness_max_ms:.2f} ms\n")

    def do_flows(self, _line: str) -> None:
        """Show the controller's flows and their multipaths."""
        try:
            flows = self.emulation.rest.get("/flows")["flows"]
        except HyroadsError as problem:
            error(f"{problem}\n")
            return
        for flow in flows:
            output(f"{flow['id']}: {flow['from']} -> {flow['to']}, {flow['state']}\n")
            for path in flow["multipath"]:
                rate = f"{path['rate_mbps']:.2f} Mb/s" if path["rate_mbps"] is not None else "not shaped"
                output(f"  {' + '.join(path['links'])}: {rate}\n")

    def _set_links(self, line: str, *, up: bool) -> None:
        for link in line.split():
            self._try(link, up=up)

    def _try(self, link: str, **changes: Any) -> None:
        try:
            self.emulation.shared.set_link(link, **changes)
        except HyroadsError as problem:
            error(f"{problem}\n")
