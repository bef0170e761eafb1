"""Servers that ``admission.py`` attacks and that have no command of their own: each runs in a process of its own.

    python benchmarks/admission_servers.py NAME FOLDER

prints one line of JSON with its ports, and then serves until it is terminated.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

TOKEN = "a-token-of-friends-0123456789"
PEER_EVENT = "friend.came"


def ready(**ports: Any) -> None:
    print(json.dumps(ports), flush=True)


def slicer(folder: Path) -> None:
    from controller_process import free_ports
    from slicer_lab import slicer_lab

    slices = [{"name": "production", "controllers": [f"tcp:127.0.0.1:{free_ports(1)[0]}"]}]
    with slicer_lab(folder, slices, api_tokens={"ops": {"token": TOKEN}}, most_switches=16) as lab:
        ready(openflow=lab.openflow, rest=lab.rest)
        threading.Event().wait()


class _NoDataPlane:
    async def request(self, document: dict[str, Any]) -> dict[str, Any]:
        return {"type": "ok"}


def waypoint(folder: Path) -> None:
    from waypoint_certificates import make_certificate

    from hyroads.controller.client.kernel_sessions import KernelSessions
    from hyroads.controller.client.waypoint import Sessions
    from hyroads.controller.client.waypoint_clients import Numbers
    from hyroads.controller.core.checking import TlsFiles
    from hyroads.controller.files.tls import server_side

    make_certificate(folder, "waypoint", "127.0.0.1")
    files = TlsFiles(str(folder / "waypoint.key"), str(folder / "waypoint.pem"))

    async def run() -> None:
        kernel = KernelSessions(folder, 6656)
        sessions = Sessions({"laptop": TOKEN}, server_side(files, "waypoint"), Numbers(folder / "state"), 6656, kernel)
        sessions.program = _NoDataPlane()  # type: ignore[assignment]
        listener = sessions.listen("127.0.0.1", 0)
        ready(port=listener.getsockname()[1])
        await asyncio.gather(sessions.accept_for_ever(listener), listener.sweep_for_ever())

    asyncio.run(run())


def proxy(folder: Path) -> None:
    from range_server import Server

    from hyroads.controller.download.engine import Engine
    from hyroads.controller.download.proxy import LIMITS, Proxy
    from hyroads.controller.download.proxy_policy import Policy
    from hyroads.controller.framework.admitted import AdmittedListener

    origin, engine = Server("127.0.0.1", 0, folder).start(), Engine(["lo"])
    listener = AdmittedListener("127.0.0.1", 0, LIMITS, lambda peer, why: None)
    engine.start()
    ready(port=listener.getsockname()[1], origin=origin.port)
    Proxy(engine, Policy(allow_local=True, connect_ports=None), lambda record, seconds: None).serve(listener)


def downloads(folder: Path) -> None:
    from hyroads.controller.download.engine import Engine
    from hyroads.controller.download.metrics import DownloadMetrics, serve_metrics

    ready(port=serve_metrics(0, DownloadMetrics("fetch", Engine(["lo"]))))
    threading.Event().wait()


def snmpvisor(folder: Path) -> None:
    from hyroads.controller.core.checking import Endpoint
    from hyroads.slices.snmpvisor import metrics

    async def run() -> None:
        server = await metrics.listen(Endpoint("127.0.0.1", 0), lambda: b"# nothing\n")
        ready(port=server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def flowvisor(folder: Path) -> None:
    from hyroads.slices.flowvisor.events import Events

    events = Events(lambda event: None)
    ready(port=int(events.address.rpartition(":")[2]), path=f"/{events._secret}")
    events.serve()


def peer(folder: Path) -> None:
    """Says over UDP to a friend's port, the id of its event, that the event has come."""
    from hyroads.controller.ha.election import Beat, Identity, Role
    from hyroads.controller.ha.peer_links import Security, listen
    from hyroads.controller.ha.peers import Peers

    answering = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener, beat = listen("127.0.0.1", 0), Beat(Identity("a", "a1"), Role.FOLLOWER, 3, 7, True, "x", 3, 0.5)
    peers = Peers(
        "a", "/hyroads/n/", Security(token=TOKEN), 0.05, beat=lambda: beat, heard=lambda _: None, reset=lambda _: None,
        event=lambda _, event: answering.sendto(b"come", ("127.0.0.1", event.id)), events=list,
    )  # fmt: skip
    peers.serve(listener)
    ready(port=listener.getsockname()[1])
    while True:
        time.sleep(60.0)


SERVERS: dict[str, Callable[[Path], None]] = {
    each.__name__: each for each in (slicer, waypoint, proxy, downloads, snmpvisor, flowvisor, peer)
}

if __name__ == "__main__":
    SERVERS[sys.argv[1]](Path(sys.argv[2]))
