"""Controllers of two versions run side by side: what one writes the other reads, until the upgrade is finished."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from controller_process import eventually, free_ports
from ha_lab import FLOW, Instance, Lab
from not_made import needs_etcd

pytest.importorskip("mininet")
pytest.importorskip("etcd3gw")

from hyroads.mininet.etcd import Etcd

# A version whose keys are of the form before; it neither knows the routes in them.
OLDER = """
import hyroads.controller.ha.store as store
import hyroads.controller.control.restored_routes as routes
store.SCHEMA -= 1
routes.RouteObjects.of = lambda self, document: {}
routes.paths_in = lambda services, network: {}
from hyroads.controller.framework.launcher import run_controller
raise SystemExit(run_controller())
"""


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Lab]:
    needs_etcd()
    etcd = Etcd(tmp_path / "etcd", [tuple(free_ports(2))], bound_to_parent=True)  # type: ignore[list-item]
    etcd.start()
    etcd.wait_ready()
    older, newer = (Instance(tmp_path / name, name, etcd, {}) for name in "ab")
    older.command[-1] = OLDER
    try:
        older.__enter__()
        eventually(lambda: older.leads)
        newer.__enter__()
        found = Lab(etcd, [older, newer])
        found.warm()
        yield found
    finally:
        for one in (older, newer):
            if hasattr(one, "process"):
                one.__exit__()
        etcd.stop()


def declare(leader: Instance, name: str) -> None:
    assert leader.answer("POST", "/flows?wait=false", {**FLOW, "id": name})[0] == 202
    eventually(lambda: "etcd" not in leader.answer("GET", f"/flows/{name}")[2]["pending"])


def test_an_upgrade_goes_forth_and_back_and_is_finished_once_all_are_new(both: Lab) -> None:
    older, newer = both.instances.values()
    schemas = {one["name"]: one["schema"] for one in newer.ha["members"]}
    assert schemas == {"a": schemas["b"] - 1, "b": schemas["b"]}
    declare(older, "by-the-old")
    number = older.answer("GET", "/flows/by-the-old")[2]["number"]
    eventually(lambda: "by-the-old" in newer.flows())
    # Forth: the new one leads, and the old one follows it.
    assert older.answer("POST", "/ha/handover", {})[0] == 200
    eventually(lambda: newer.leads)
    assert newer.answer("GET", "/flows/by-the-old")[2]["number"] == number
    declare(newer, "by-the-new")
    newer.answer("DELETE", "/flows/by-the-old?wait=false")
    eventually(lambda: {"by-the-new"} == older.flows() - {"f1"})
    status, _, problem = newer.answer("POST", "/ha/finish-upgrade")
    assert status == 409 and "older version: a" in problem["detail"]
    # And back.
    both.warm()
    assert newer.answer("POST", "/ha/handover", {})[0] == 200
    eventually(lambda: older.leads)
    declare(older, "back-again")
    eventually(lambda: {"by-the-new", "back-again"} == newer.flows() - {"f1"})
    # The last one is upgraded.
    older.__exit__()
    older.command[-1] = newer.command[-1]
    eventually(lambda: newer.leads)
    older.__enter__()
    both.warm()
    eventually(lambda: {one["schema"] for one in newer.ha["members"]} == {schemas["b"]})
    assert newer.answer("POST", "/ha/finish-upgrade")[0] == 200
    assert {"by-the-new", "back-again"} == older.flows() - {"f1"} == newer.flows() - {"f1"}
