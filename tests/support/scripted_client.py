"""A multi-homed client without a data path: it speaks the real protocol by the daemon's own reporter."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
from typing import Any

from hyroads.controller.client.reporting import Callbacks, Controller, Reporter
from hyroads.controller.core.errors import HyroadsError


class ScriptedClient:
    """Has a policy and flows, and does what it is asked unless ``refusal`` says why not. Runs as a context."""

    def __init__(self, client: str, port: int, token: str) -> None:
        self.policy: dict[str, Any] = {
            "interfaces": {"wlan0": {}, "wwan0": {"metered": True}},
            "mode": "full-speed",
            "waypoint": {"address": "192.0.2.1", "token_file": "/etc/hyroads/w"},
        }
        self.mode: str | None = None
        self.connection_mode = "full-speed"
        self.interface_of = {12: "wlan0", 13: "wwan0"}
        self.refusal: str | None = None
        self.delay_s = 0.0
        self.warnings: list[str] = []
        callbacks = Callbacks(self.status, lambda: self.policy, self.use, self.migrate, self.choose)
        self.reporter = Reporter(Controller("127.0.0.1", port, client, token), callbacks, self.warnings.append)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ScriptedClient:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def lose(self) -> None:
        """The connection ends; it dials again."""
        writer = self.reporter._writer
        assert writer is not None
        self._loop.call_soon_threadsafe(writer.transport.abort)

    def event(self, **event: Any) -> None:
        self._loop.call_soon_threadsafe(self.reporter.event, event)

    def status(self) -> dict[str, Any]:
        interface = {"up": True, "at": "192.0.2.254", "sent_mbps": 4.5, "received_mbps": 1.0, "queue_packets": 2}
        return {
            "mode": self.mode or self.policy.get("mode", "full-speed"),
            "interfaces": {name: {**interface, "metered": bool((each or {}).get("metered"))}
                           for name, each in self.policy["interfaces"].items()},
            "flows": [{"id": flow, "name": "rest", "interface": name, "rate_mbps": 1.0, "level_mbps": 1.0,
                       "migrations": 0} for flow, name in self.interface_of.items()],
            "clusters": [{"flows": [12, 13], "interfaces": ["wlan0", "wwan0"], "level_mbps": 1.0}],
            "mptcp": [{"token": "a1b2c3d4", "name": "rest", "mode": self.connection_mode, "subflows": 2}],
        }  # fmt: skip

    async def use(self, policy: dict[str, Any]) -> None:
        await self._may()
        if unknown := policy.keys() - {"interfaces", "mode", "waypoint", "flows"}:
            raise HyroadsError(f"{min(unknown)}: unknown key")
        self.policy, self.mode = copy.deepcopy(policy), None

    async def migrate(self, flow: int, interface: str) -> None:
        await self._may()
        if interface not in self.policy["interfaces"]:
            raise HyroadsError(f"unknown interface {interface}")
        self.interface_of[flow] = interface

    async def choose(self, mode: str, flow: str | None, connection: str | None) -> None:
        await self._may()
        assert flow is None or flow == "rest"
        if connection is None:
            self.mode = mode
        elif connection == "a1b2c3d4":
            self.connection_mode = mode
        else:
            raise HyroadsError(f"unknown MPTCP connection {connection}")

    async def _may(self) -> None:
        await asyncio.sleep(self.delay_s)
        if self.refusal is not None:
            raise HyroadsError(self.refusal)

    def _run(self) -> None:
        async def main() -> None:
            self._task = asyncio.current_task()
            await self.reporter.keep()

        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(main())
        self._loop.close()
