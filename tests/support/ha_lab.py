"""Several real controllers on a real etcd, all on loopback, with no switches and no agents."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from controller_process import ControllerProcess, eventually, free_ports

from hyroads.mininet.etcd import Etcd

FLOW = {"id": "f", "from": "a", "to": "c"}


class Instance(ControllerProcess):
    """One controller of several."""

    def __init__(self, folder: Path, name: str, etcd: Etcd, settings: Mapping[str, Any]) -> None:
        self.name = name
        (peer,) = free_ports(1)
        folder.mkdir(exist_ok=True)
        super().__init__(folder, settings)
        document = json.loads(self.settings.read_text())
        document["ha"] = {
            "etcd": etcd.urls,
            "name": name,
            "advertise": {"rest": f"http://127.0.0.1:{self.port}", "peer": f"127.0.0.1:{peer}"},
            "peer_token": "a-token-of-instances",
        }
        self.settings.write_text(json.dumps(document))

    @property
    def ha(self) -> dict[str, Any]:
        """What it says of all; nothing while it does not answer."""
        status, document = self.rest("GET", "/ha")
        return document if status == 200 else {}

    def said(self) -> dict[str, Any]:
        """What it says of itself, and its last words: for whoever has waited in vain."""
        health = self.rest("GET", "/health")[1] or {}
        names = ("ha", "settling", "uptime_s", "pending", "last_errors")
        lines = self.log.read_text().splitlines()[-30:]
        return {"name": self.name, "ended": self.process.poll(), **{name: health.get(name) for name in names},
                "members": self.ha, "log": lines}  # fmt: skip

    @property
    def leads(self) -> bool:
        return self.ha.get("role") == "leader"

    def events(self, after: int | None = None) -> list[tuple[int, str, Any]]:
        """(id, kind, document) of all that are kept, or of those after one."""
        url = f"http://127.0.0.1:{self.port}/api/v1/events?follow=false"
        request = urllib.request.Request(url, headers={} if after is None else {"Last-Event-ID": str(after)})
        with urllib.request.urlopen(request, timeout=20) as answer:
            blocks = answer.read().decode().split("\n\n")
        lines = [dict(line.split(": ", 1) for line in block.split("\n") if ": " in line) for block in blocks]
        return [(int(one["id"]), one["event"], json.loads(one["data"])) for one in lines if "event" in one]

    def flows(self) -> set[str]:
        status, page = self.rest("GET", "/flows")
        return {flow["id"] for flow in page["flows"]} if status == 200 else set()

    def answer(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Mapping[str, str], Any]:
        """Status, headers and document; redirects are not followed."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}/api/v1{path}"
        given = {"Content-Type": "application/json", **{key.replace("_", "-"): each for key, each in headers.items()}}
        request = urllib.request.Request(url, data, given, method=method)
        opener = urllib.request.build_opener(_NoRedirects)
        try:
            with opener.open(request, timeout=20) as answer:
                return answer.status, answer.headers, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, error.headers, json.loads(error.read() or b"null")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Lab:
    """``kill`` and ``start`` take the name of an instance."""

    def __init__(self, etcd: Etcd, instances: list[Instance]) -> None:
        self.etcd = etcd
        self.instances = {instance.name: instance for instance in instances}

    def leader(self, *, but: str | None = None, within_s: float = 10.0) -> Instance:
        """Whoever leads, once somebody does (another one than ``but``)."""

        def found() -> Instance | None:
            alive = (one for name, one in self.instances.items() if name != but and one.process.poll() is None)
            return next((one for one in alive if one.leads), None)

        return eventually(found, within_s)  # type: ignore[no-any-return]

    def others(self, leader: Instance) -> list[Instance]:
        return [one for one in self.instances.values() if one is not leader]

    def warm(self) -> None:
        """Until all know each other, and all but one are ready to lead."""

        def is_so() -> bool:
            healths = [one.rest("GET", "/health")[1] for one in self.instances.values()]
            known = [len(one.ha.get("members", ())) for one in self.instances.values()]
            return all(each and each["ha"]["warm"] for each in healths) and set(known) == {len(self.instances)}

        try:
            eventually(is_so)
        except AssertionError as error:
            raise AssertionError(f"{error}: {[one.said() for one in self.instances.values()]}") from error


@contextmanager
def lab(folder: Path, count: int = 3, members: int = 1, **settings: Any) -> Iterator[Lab]:
    ports = free_ports(2 * members)
    etcd = Etcd(folder / "etcd", list(zip(ports[::2], ports[1::2], strict=True)), bound_to_parent=True)
    with ExitStack() as stack:
        stack.callback(etcd.stop)
        etcd.start()
        etcd.wait_ready()
        instances = [Instance(folder / name, name, etcd, settings) for name in "abc"[:count]]
        for instance in instances:
            stack.enter_context(suppress(ProcessLookupError))
            stack.enter_context(instance)
        found = Lab(etcd, instances)
        found.leader()
        found.warm()
        yield found
