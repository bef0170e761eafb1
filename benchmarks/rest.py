"""What a request costs: the API's frame alone, and flows on an emulated network with real switches and agents.

    python benchmarks/rest.py frame                                           (no root: the WSGI application alone)
    python benchmarks/rest.py document [--repeats 20]                         (no root: of the office)
    python benchmarks/rest.py live [NETWORK] [--flows 200] [--name bench-rest]   (root)

declare   POST /flows until agents and switches have confirmed
remove    DELETE /flows/{id} until they have let go
slots     how long slots take and how many are missed while nothing is asked, /live each second, /live and /topology
          without a pause
metrics   processor time of the controller that one GET /metrics takes (NETWORK may be office)
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from hyroads.rest.access import Limit
from hyroads.rest.api import create_app
from hyroads.rest.client import Client
from hyroads.rest.contract import Token

TOKEN = "benchmark-token-0123456789"
FLOW = {"id": "f", "from": "a", "to": "b"}
REQUESTS = 3000
QUIET_S = 8.0
SCRAPES = 100
WARM = 3


class Flows:
    """A service that costs nothing."""

    def flow_ids(self) -> Sequence[str]:
        return ("f",)

    def flows(self, flows: Sequence[str]) -> list[dict[str, Any]]:
        return [FLOW for _ in flows]

    def flow(self, flow: str) -> dict[str, Any]:
        return FLOW

    def declare_flow(self, document: Mapping[str, Any], *, wait: bool) -> tuple[dict[str, Any], bool]:
        return FLOW, True


def summary(what: str, seconds: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(1e3 * one for one in seconds)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return {
        "what": what,
        "count": len(ordered),
        "p50_ms": statistics.median(ordered),
        "p99_ms": p99,
        "max_ms": ordered[-1],
    }


def frame() -> list[dict[str, Any]]:
    """Time in the application for requests whose service answers at once."""
    tokens = [Token(f"t{number}", f"{number}-{TOKEN}", "admin") for number in range(8)]
    app = create_app(Flows(), tokens, limit=Limit(1e9, 1e9))  # type: ignore[arg-type]
    body = json.dumps({**FLOW, "match": {"udp_dst": 5000}}).encode()
    requests = {
        "GET a flow": ("GET", "/api/v1/flows/f", b"", {}),
        "GET a list": ("GET", "/api/v1/flows", b"", {}),
        "POST a flow": ("POST", "/api/v1/flows", body, {}),
        "POST a flow with a key": ("POST", "/api/v1/flows", body, {"HTTP_IDEMPOTENCY_KEY": "{}"}),
        "refused: no token": ("GET", "/api/v1/flows/f", b"", {"HTTP_AUTHORIZATION": "Bearer x"}),
    }
    found = []
    for name, (method, path, text, more) in requests.items():
        seconds = []
        for number in range(REQUESTS):
            keyed = {key: value.format(number) for key, value in more.items()}
            environment = environment_of(method, path, text, keyed)
            began_s = time.perf_counter()
            answer = app(environment, lambda *_: None)
            b"".join(answer)
            answer.close()
            seconds.append(time.perf_counter() - began_s)
        found.append(summary(name, seconds))
    return found


def environment_of(method: str, path: str, body: bytes, more: Mapping[str, str]) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": "", "SERVER_NAME": "localhost",
        "SERVER_PORT": "8080", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "localhost", "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body)), "HTTP_AUTHORIZATION": f"Bearer 7-{TOKEN}",
        "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(body), "wsgi.errors": io.StringIO(),
        "wsgi.multithread": False, "wsgi.multiprocess": False, "wsgi.run_once": False, **more,
    }  # fmt: skip


def document(repeats: int) -> list[dict[str, Any]]:
    """CPU of the live document and of the metrics of the office (552 links, ten flows), from request to text, where all
    that is measured is new at each request; and their sizes.
    """
    from office_loop import OfficeLoop

    with tempfile.TemporaryDirectory() as folder:
        office = OfficeLoop(Path(folder))
    addresses = {"GET /live": "/api/v1/live", "GET /metrics": "/metrics", "GET /topology": "/api/v1/topology"}
    seconds: dict[str, list[float]] = {name: [] for name in addresses}
    sizes = dict.fromkeys(addresses, 0)
    for turn in range(repeats + WARM):
        office.second()
        for name, address in addresses.items():
            began_s = time.process_time()
            answer = office.app(environment_of("GET", address, b"", {}), lambda *_: None)
            text = b"".join(answer)
            took_s = time.process_time() - began_s
            answer.close()
            sizes[name] = max(sizes[name], len(text))
            if turn >= WARM:
                seconds[name].append(took_s)
    return [{**summary(f"{name}, CPU", seconds[name]), "bytes": sizes[name]} for name in addresses]


def live(network: str, name: str, flows: int) -> list[dict[str, Any]]:
    """Requests to the controller of an emulated network."""
    from live import on_network, shipped

    from hyroads.mininet.demos import office
    from hyroads.mininet.demos.verdict import DemoOptions
    from hyroads.mininet.emulation import Emulation

    found = office.network(DemoOptions()) if network == "office" else shipped(network)
    results: list[dict[str, Any]] = []

    def body(emulation: Emulation) -> int:
        emulation.wait_ready()
        with Client() as client:
            results.extend(declared(client, found.nodes, flows))
            results.extend(slots(client))
            results.append(metrics(client))
        print(json.dumps(results))
        return 0

    on_network(found, name, body, settings={"api_limits": {"requests_per_s": 1e6, "burst": 1e6}})
    return results


def declared(client: Client, nodes: Mapping[str, Any], flows: int) -> list[dict[str, Any]]:
    """Flows between all pairs of nodes with an agent, one after the other."""
    ends = [node["id"] for node in client.listed("/nodes", "nodes") if node["agent"] is not None]
    pairs = [(a, b) for a in ends for b in ends if a != b]
    timed: dict[str, list[float]] = {"declare": [], "remove": [], "GET a flow": [], "declare, wait=false": []}

    def take(what: str, do: Callable[[], object]) -> None:
        began_s = time.perf_counter()
        do()
        timed[what].append(time.perf_counter() - began_s)

    for number in range(flows):
        flow, (a, b) = f"bench{number}", pairs[number % len(pairs)]
        match = {"eth_type": 0x800, "ip_proto": 17, "udp_dst": 20_000 + number}
        take("declare", lambda: client.declare_flow(flow, a, b, match=match))  # noqa: B023 - called at once
        take("GET a flow", lambda: client.flow(flow))  # noqa: B023
        take("remove", lambda: client.remove_flow(flow))  # noqa: B023
        if number % 4 == 0:
            take("declare, wait=false", lambda: client.declare_flow(flow, a, b, match=match, wait=False))  # noqa: B023
            client.remove_flow(flow)
    return [summary(what, seconds) for what, seconds in timed.items()]


def slots(client: Client) -> list[dict[str, Any]]:
    """Slots while nothing is asked, and while answers are."""
    asked: dict[str, tuple[Callable[[], object], float]] = {
        "nothing asked": (lambda: None, 0.5),
        "/live asked each second": (client.live, 1.0),
        "/live asked without a pause": (client.live, 0.0),
        "/topology asked without a pause": (client.topology, 0.0),
    }
    found = []
    for what, (ask, pause_s) in asked.items():
        before = client.health()["slots"]
        until_s, answers = time.monotonic() + QUIET_S, []
        while time.monotonic() < until_s:
            began_s = time.perf_counter()
            ask()
            answers.append(time.perf_counter() - began_s)
            time.sleep(pause_s)
        after = client.health()["slots"]
        remaining = {key: after[key] for key in ("p50_ms", "p99_ms", "max_ms")}
        found.append({"what": f"slots, {what}", "count": after["count"] - before["count"], **remaining,
                      "missed": after["missed"] - before["missed"]})  # fmt: skip
        if what != "nothing asked":
            found.append(summary(f"GET, {what}", answers))
    return found


def metrics(client: Client) -> dict[str, Any]:
    """Processor time of the controller for one scrape: that of scrapes, less what it takes anyway in such a time."""

    def used_s(scrapes: int) -> tuple[float, float]:
        """Processor time, and how long that was."""
        began_s, before = time.monotonic(), client.metrics()["process_cpu_seconds_total"]
        for _ in range(scrapes):
            client.metrics()
        time.sleep(max(0.0, QUIET_S - (time.monotonic() - began_s)))
        return client.metrics()["process_cpu_seconds_total"] - before, time.monotonic() - began_s

    (quiet_cpu_s, quiet_s), (cpu_s, span_s) = used_s(0), used_s(SCRAPES)
    cpu_ms = 1e3 * (cpu_s - quiet_cpu_s / quiet_s * span_s) / SCRAPES
    lines = len(client.metrics())
    return {"what": "GET /metrics", "count": SCRAPES, "lines": lines, "cpu_ms": cpu_ms}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("frame", "document", "live"))
    parser.add_argument("network", nargs="?", default="triangle")
    parser.add_argument("--flows", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--name", default="bench-rest")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.what == "live":
        # Runs in a process of its own, which prints what it finds.
        live(args.network, args.name, args.flows)
        return 0
    results = document(args.repeats) if args.what == "document" else frame()
    if args.json:
        print(json.dumps(results))
        return 0
    for one in results:
        size = f"  {one['bytes']} bytes" if "bytes" in one else ""
        times = f"{one['p50_ms']:8.3f} ms median  {one['p99_ms']:8.3f} p99  {one['max_ms']:8.3f} max"
        print(f"{one['what']:<36} {times}{size}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
