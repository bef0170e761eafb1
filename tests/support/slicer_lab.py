"""The slicer's process as a thread of the test: its listeners on loopback, scripted switches behind it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controller_process import eventually, free_ports
from scripted_switch import ScriptedSwitch

from hyroads.rest.client import Client
from hyroads.slices.server.run import Server
from hyroads.slices.server.settings import load


class SlicerLab:
    """A slicer that runs."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.rest, self.openflow = free_ports(2)
        listen = {"openflow": {"port": self.openflow}, "control": "control", "rest": {"port": self.rest}}
        self.config = folder / "slicer.json"
        self.config.write_text(json.dumps({"state_file": "state", "listen": listen, **settings}))
        self.config.chmod(0o600)
        self.socket = f"unix:{folder / 'control'}"
        self.scheme = "https" if "rest_tls" in settings else "http"
        self.switches: dict[int, ScriptedSwitch] = {}
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.rest}"

    async def _serve(self) -> None:
        self.loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self.server = Server(str(self.config), load(str(self.config)))
        await self.server.serve(self._ended, self._ready.set)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(30)

    def stop(self) -> None:
        for switch in self.switches.values():
            switch.socket.close()
        self.loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def client(self, token: str | None = None, **options: Any) -> Client:
        return Client(self.url, token, **options)

    def operator(self) -> Client:
        return Client(self.socket)

    def switch(self, dpid: int, **options: Any) -> ScriptedSwitch:
        """One more switch, prepared."""
        found = ScriptedSwitch(socket.create_connection(("127.0.0.1", self.openflow), 30), dpid, **options)
        self.switches[dpid] = found
        found.start()
        with self.operator() as client:
            eventually(
                lambda: f"{dpid:#x}" in {s["dpid"] for s in client.get("/switches")["switches"] if s["confirmed"]}
            )
        return found


@contextmanager
def slicer_lab(folder: Path, slices: list[dict[str, Any]], **settings: Any) -> Iterator[SlicerLab]:
    lab = SlicerLab(folder, {"slices": slices, **settings})
    lab.start()
    try:
        yield lab
    finally:
        lab.stop()
