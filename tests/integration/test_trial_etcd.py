"""The private etcd of emulated networks: real members on loopback, which keep what they were told over a restart."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controller_process import free_ports
from not_made import needs_etcd

pytest.importorskip("mininet")

from hyroads.mininet.etcd import Etcd
from hyroads.mininet.programs import EmulationError


@pytest.fixture(params=[1, 3])
def etcd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Etcd]:
    needs_etcd()
    ports = free_ports(2 * request.param)
    found = Etcd(tmp_path / "etcd", list(zip(ports[::2], ports[1::2], strict=True)), bound_to_parent=True)
    try:
        found.start()
        found.wait_ready()
        yield found
    finally:
        found.stop()


def ask(url: str, what: str, **document: str) -> Any:
    text = {name: base64.b64encode(value.encode()).decode() for name, value in document.items()}
    request = urllib.request.Request(f"{url}/v3/kv/{what}", json.dumps(text).encode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def test_what_is_stored_outlives_all_members(etcd: Etcd) -> None:
    ask(etcd.urls[0], "put", key="flow", value="f1")
    etcd.stop()
    assert not any(program.alive for program in etcd.programs)
    etcd.start()
    etcd.wait_ready()
    found = [ask(url, "range", key="flow")["kvs"][0]["value"] for url in etcd.urls]
    assert found == [base64.b64encode(b"f1").decode()] * len(etcd.urls)


def test_one_that_can_not_start_says_why(etcd: Etcd, tmp_path: Path) -> None:
    port = int(etcd.urls[0].rpartition(":")[2])
    other = Etcd(tmp_path / "other", [(port, free_ports(1)[0])], bound_to_parent=True)
    try:
        other.start()
        with pytest.raises(EmulationError, match=r"etcd0 ended.*address already in use"):
            # Whoever answers at its port is another one.
            while True:
                other.wait_ready()
    finally:
        other.stop()


def test_no_other_user_may_read_it(etcd: Etcd, tmp_path: Path) -> None:
    assert (tmp_path / "etcd").stat().st_mode & 0o077 == 0
