"""A client whose kernel speaks MPTCP, with ``hyroads client run`` as path manager, and what its interfaces receive."""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hyroads.controller.client.json_lines import ask

from .client_stack import ClientStack, Uplink
from .isolation import enter_network_namespace
from .programs import HYROADS, EmulationError, Program, Watch, wait_until
from .run_directory import NETNS_ROOT

PATH_MANAGER = Path("/proc/sys/net/mptcp/pm_type")
NO_MPTCP = "this kernel has no MPTCP with a path manager in user space"
_READY_WITHIN_S = 15.0


class MptcpStack(ClientStack):
    """The namespaces of :class:`ClientStack` without ``hyroads-client`` and waypoint: the daemon ``hyroads client
    run`` manages the kernel's own connections by ``policy``, the text of a policy file. ``server_mbps`` is what the
    server's link carries.
    """

    def __init__(
        self, name: str, folder: Path, uplinks: Sequence[Uplink], policy: str, server_mbps: float | None = None
    ) -> None:
        super().__init__(name, folder, uplinks, waypoint=False)
        self._policy, self._server_mbps = policy, server_mbps

    def _build(self) -> None:
        super()._build()
        if self._server_mbps is not None:
            for role, device in (("router", "server"), ("server", "up0")):
                self._shape(role, device, self._server_mbps)

    def start_client(self) -> None:
        """Starts the daemon, and waits until it manages connections."""
        policy, run_folder, log = self.folder / "client.yaml", self.folder / "run", self.folder / "client.log"
        policy.write_text(self._policy, encoding="utf-8")
        words = ["client", "run", "--config", str(policy), "--run-directory", str(run_folder)]
        words += ["--state-directory", str(self.folder / "state")]
        command = ["ip", "netns", "exec", self.namespace("client"), *HYROADS, *words]
        program = Program("hyroads client run", command, log)
        program.start()
        self._stack.callback(program.stop)
        wait_until("hyroads client run", lambda: " ready" in log.read_text() or not program.alive, _READY_WITHIN_S)
        if not program.alive:
            raise EmulationError(program.failure())

    def status(self) -> dict[str, Any]:
        """What the daemon says (docs/reference/client.md)."""
        return dict(ask(self.folder / "run" / "client.sock", {"type": "status"}, "hyroads client run"))

    def subflows(self) -> dict[str, bool]:
        """Of the only connection: interface -> whether its subflow is a backup."""
        return {each["interface"]: each["backup"] for one in self.status()["mptcp"] for each in one["subflows"]}


class ReceivedBytes(Watch):
    """Looks each 10 ms at what interfaces in a network namespace have received, while this is entered."""

    EVERY_S = 0.01

    def __init__(self, namespace: str, interfaces: Sequence[str]) -> None:
        super().__init__("received bytes")
        self._namespace, self._interfaces = namespace, interfaces
        self._times_s: list[float] = []
        self._bytes: dict[str, list[int]] = {name: [] for name in interfaces}

    def _watch(self) -> None:
        # This thread alone goes there, and ends there.
        enter_network_namespace(NETNS_ROOT / self._namespace)
        counters = Path(f"/proc/self/task/{threading.get_native_id()}/net/dev")
        while not self._stop.wait(self.EVERY_S):
            found = _received(counters.read_text(encoding="ascii"))
            for name in self._interfaces:
                # The time last: whoever reads meanwhile finds a number for each time.
                self._bytes[name].append(found.get(name, 0))
            self._times_s.append(time.monotonic())

    def between(self, interface: str, from_s: float, to_s: float) -> int:
        """Bytes that an interface received between two moments, within 10 ms."""
        first, last = (max(0, bisect.bisect_right(self._times_s, at_s) - 1) for at_s in (from_s, to_s))
        return self._bytes[interface][last] - self._bytes[interface][first]

    def first_after(self, interface: str, at_s: float, least_bytes: int) -> float:
        """When an interface had received so many bytes since a moment; infinite if it has not."""
        first = max(0, bisect.bisect_right(self._times_s, at_s) - 1)
        counted = self._bytes[interface]
        wanted = counted[first] + least_bytes
        return next((self._times_s[k] for k in range(first, len(self._times_s)) if counted[k] >= wanted), float("inf"))


def _received(text: str) -> Mapping[str, int]:
    """Interface -> received bytes, of the text of /proc/net/dev."""
    rows = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name.strip(): int(counters.split()[0]) for name, counters in rows}
