"""Quotas of tokens at the real controller: many at once, over a restart, and what is told."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from controller_process import NETWORK, ControllerProcess, eventually, free_ports
from ha_lab import Instance
from not_made import needs_etcd

from hyroads.mininet.etcd import Etcd

APP, ADMIN = "app-" + "a" * 32, "admin-" + "b" * 32
TOKENS = {
    "app": {"token": APP, "role": "application", "quotas": {"flows": 5, "sessions": 1, "reservations": 0}},
    "admin": {"token": ADMIN},
}


def declare(controller: ControllerProcess, number: int, token: str = APP) -> tuple[int, Any]:
    body = {
        "id": f"q{number}",
        "from": "a",
        "to": "c",
        "match": {"eth_type": 0x0800, "ip_proto": 17, "udp_dst": 5000 + number},
    }
    return controller.rest("POST", "/flows?wait=false", body, token=token)


def used(controller: ControllerProcess) -> dict[str, tuple[int | None, int]]:
    status, document = controller.rest("GET", "/quotas/app", token=ADMIN)
    assert status == 200
    return {one["quota"]: (one["limit"], one["used"]) for one in document["quotas"]}


def test_quotas_hold_for_many_at_once_and_over_a_restart(tmp_path: Path) -> None:
    settings = {"api_tokens": TOKENS, "state_file": "state.json"}
    with ControllerProcess(tmp_path, settings) as controller:
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda number: declare(controller, number), range(40)))
        assert Counter(status for status, _ in answers) == {202: 5, 403: 35}, answers[0]
        problem = next(document for status, document in answers if status == 403)
        assert problem["quota"] == "flows" and "token app: quota flows: all 5 are in use" in problem["detail"]
        assert used(controller)["flows"] == (5, 5)
        assert declare(controller, 100, ADMIN)[0] == 202
        session = {"id": "s1", "group": "239.1.1.1", "participants": ["a", "b"]}
        assert controller.rest("POST", "/sessions?wait=false", session, token=APP)[0] in {200, 201, 202}
        other = {**session, "id": "s2", "group": "239.1.1.2"}
        status, told = controller.rest("POST", "/sessions?wait=false", other, token=APP)
        assert (status, told["quota"]) == (403, "sessions")
        status, told = controller.rest("POST", "/reservations", {"id": "r", "flow": "f1", "rate_mbps": 1}, token=APP)
        assert (status, told["quota"]) == (403, "reservations")
    with ControllerProcess(tmp_path, settings) as controller:
        found = used(controller)
        assert {kind: found[kind] for kind in ("flows", "sessions", "reservations", "ncasts")} == {
            "flows": (5, 5), "sessions": (1, 1), "reservations": (0, 0), "ncasts": (None, 0),
        }  # fmt: skip
        # Owners are saved, and what the network file declares belongs to the operator.
        owners = {one["id"]: one["owner"] for one in controller.rest("GET", "/flows", token=APP)[1]["flows"]}
        assert Counter(owners.values())["app"] == 5 and owners["q100"] == "admin"
        file = next(name for name, owner in owners.items() if owner == "operator")
        for name in ("q100", file):
            assert controller.rest("DELETE", f"/flows/{name}", token=APP)[0] == 403
        assert declare(controller, 200)[0] == 403
        flows = controller.rest("GET", "/flows", token=APP)[1]["flows"]
        mine = next(one["id"] for one in flows if one["id"].startswith("q") and one["id"] != "q100")
        # Somebody else takes it away.
        assert controller.rest("DELETE", f"/flows/{mine}?wait=false", token=ADMIN)[0] in {202, 204}
        assert used(controller)["flows"] == (5, 4)
        assert declare(controller, 200)[0] == 202 and declare(controller, 201)[0] == 403
        assert controller.rest("GET", "/health", token=ADMIN)[1]["counters"]["exceptions"] == 0


def test_quotas_hold_over_a_takeover(tmp_path: Path) -> None:
    pytest.importorskip("etcd3gw")
    needs_etcd()
    etcd = Etcd(tmp_path / "etcd", [tuple(free_ports(2))], bound_to_parent=True)  # type: ignore[list-item]
    etcd.start()
    etcd.wait_ready()
    settings = {"network": str(NETWORK), "api_tokens": TOKENS}
    pair = [Instance(tmp_path / name, name, etcd, settings) for name in "ab"]
    try:
        for each in pair:
            each.__enter__()
        leader = eventually(lambda: leading(pair))
        (other,) = (each for each in pair if each is not leader)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda number: declare(leader, number), range(24)))
        assert Counter(status for status, _ in answers) == {202: 5, 403: 19}
        assert eventually(lambda: used(other)["flows"] == (5, 5))
        leader.process.kill()
        leader.process.wait()
        assert eventually(lambda: leading([other]))
        assert used(other)["flows"] == (5, 5)
        assert eventually(lambda: declare(other, 100)[0] not in {0, 503}) and declare(other, 100)[0] == 403
        mine = next(number for number, (status, _) in enumerate(answers) if status == 202)
        assert other.rest("DELETE", f"/flows/q{mine}?wait=false", token=ADMIN)[0] in {202, 204}
        assert declare(other, 100)[0] == 202 and declare(other, 101)[0] == 403
    finally:
        for each in pair:
            if hasattr(each, "process"):
                each.__exit__()
        etcd.stop()


def leading(instances: list[Instance]) -> Instance | None:
    """The one that leads, if any of these does."""
    for each in instances:
        status, document = each.rest("GET", "/ha", token=ADMIN)
        if status == 200 and document["role"] == "leader":
            return each
    return None
