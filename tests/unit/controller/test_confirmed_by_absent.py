"""Flows and links of a controller to which some switches and agents have never connected, for however long it runs."""

from __future__ import annotations

import pytest
from answering_loop import NODES, AnsweringLoop
from hypothesis import given, settings
from hypothesis import strategies as st

LONG_S = 3600.0
DEVICES = [f"{kind} {node}" for node in NODES for kind in ("switch", "agent")]
FLOW = {"id": "new", "from": "a", "to": "c", "match": {"eth_type": 0x0800, "ip_proto": 17}}


def without(paths: pytest.TempPathFactory, never: set[str]) -> AnsweringLoop:
    loop = AnsweringLoop(paths.mktemp("loop"), never)
    loop.after(LONG_S)
    return loop


@given(st.sets(st.sampled_from(DEVICES), min_size=1), st.booleans())
@settings(max_examples=5)
def test_flow_and_its_end_wait_for_all_that_never_connected(
    tmp_path_factory: pytest.TempPathFactory, never: set[str], waits: bool
) -> None:
    loop = without(tmp_path_factory, never)
    query = "" if waits else "?wait=false"
    for method, path, body in (("POST", "/flows", FLOW), ("DELETE", "/flows/new", None)):
        status, operation = loop.ask(method, f"{path}{query}", body)
        assert status == 202
        loop.after(LONG_S)
        operation = loop.ask("GET", f"/operations/{operation['id']}")[1]
        health = loop.ask("GET", "/health")[1]
        assert operation["state"] == "pending"
        assert {*operation["pending"]} <= {*health["pending"]} and not health["ok"]
        assert method == "POST" or never <= {*operation["pending"]}, "any may have it from an earlier controller"
        if method == "POST" and never >= {"switch a", "switch b", "switch c", "switch d"}:
            assert loop.ask("GET", "/flows/new")[1]["state"] in {"activating", "unreachable"}


@given(st.sets(st.sampled_from(DEVICES)))
@settings(max_examples=5)
def test_link_is_up_only_with_switch_and_agent_at_both_ends(
    tmp_path_factory: pytest.TempPathFactory, never: set[str]
) -> None:
    loop = without(tmp_path_factory, never)
    lacking = {device.split()[1] for device in never}
    down = loop.loop.links.down
    for link in loop.ask("GET", "/links")[1]["links"]:
        whole = not {link["from"], link["to"]} & lacking
        assert link["up"] is whole and (link["id"] in down) is not whole, link
