"""Answers name every switch and agent that may still forward and has not confirmed, however long it is away."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from silent_loop import TRIANGLE, Rig

from hyroads.controller.api.service import ControllerService
from hyroads.controller.runtime.garbage import Garbage
from hyroads.controller.settings.controller import load
from hyroads.rest.api import create_app

NODES = ("a", "b")
LONG_S = 3600.0
FLOW = {"id": "new", "from": "a", "to": "b"}


@pytest.fixture(autouse=True)
def garbage_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Garbage, "begin", lambda self, now_s: None)


def rig_without(folder: Path, switches: frozenset[str], agents: frozenset[str]) -> Rig:
    """A controller that runs for an hour; these switches and agents have never connected."""
    file = folder / "hyroads.yaml"
    file.write_text(f"network: {TRIANGLE}\n")

    class Partial(Rig):
        def agent(self, node: str) -> object:  # type: ignore[override]
            return None if node in agents else super().agent(node)

        def switch(self, node: str, key: int) -> object:  # type: ignore[override]
            return None if node in switches else super().switch(node, key)

    rig = Partial(load({"HYROADS_CONFIG": str(file)}))
    for seconds in (LONG_S, 1.0):
        rig.after(seconds)
        rig.event_loop._cycle()
    return rig


def ask(rig: Rig, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    service = ControllerService(rig.event_loop, "triangle")
    answer = create_app(service).test_client().open(f"/api/v1{path}", method=method, json=body)
    return answer.status_code, answer.get_json(silent=True) or {}


SUBSETS = [frozenset(), frozenset("a"), frozenset("b"), frozenset("ab")]


@pytest.mark.parametrize(("switches", "agents"), list(product(SUBSETS, SUBSETS))[1:])
def test_flow_and_its_end_wait_for_all_that_never_connected(
    tmp_path: Path, switches: frozenset[str], agents: frozenset[str]
) -> None:
    rig = rig_without(tmp_path, switches, agents)
    away = {f"switch {node}" for node in switches} | {f"agent {node}" for node in agents}
    for method, path, body in (("POST", "/flows?wait=false", FLOW), ("DELETE", "/flows/new?wait=false", None)):
        status, _ = ask(rig, method, path, body)
        rig.event_loop._cycle()
        pending = set(rig.event_loop.pending("new", rig.event_loop.views())) - {"state file"}
        health = ControllerService(rig.event_loop, "triangle").health()
        assert status == 202
        assert away <= pending <= set(health["pending"]) and not health["ok"]
        if method == "POST":
            assert ask(rig, "GET", "/flows/new")[1]["pending"]
            if switches == frozenset("ab"):
                assert ask(rig, "GET", "/flows/new")[1]["state"] in {"activating", "unreachable"}


@given(st.sets(st.sampled_from(NODES)), st.sets(st.sampled_from(NODES)))
@settings(max_examples=16)
def test_link_is_up_only_with_switch_and_agent_at_both_ends(
    tmp_path_factory: pytest.TempPathFactory, switches: set[str], agents: set[str]
) -> None:
    rig = rig_without(tmp_path_factory.mktemp("links"), frozenset(switches), frozenset(agents))
    down = rig.event_loop.links.down
    for link in ask(rig, "GET", "/links")[1]["links"]:
        whole = not {link["from"], link["to"]} & (switches | agents)
        assert link["up"] is whole and (link["id"] in down) is not whole, link
