"""A reload is taken as a whole or not at all, wherever it fails: on a real event loop, without switches and agents."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.errors import ConfigError, PlanningError
from hyroads.controller.framework import ryu_shim as shim
from hyroads.controller.model.events import EventLog
from hyroads.controller.model.state import DeclaredFlow, Origin, TopologyContext, initial
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.runtime.files import read_files
from hyroads.controller.runtime.reload import FlowEdits, Reloader, ReloadRefusedError, Steps
from hyroads.controller.settings.changes import Files
from hyroads.controller.settings.controller import Settings
from hyroads.rest.contract import NotSavedError

NETWORK: dict[str, Any] = {
    "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "ap"}},
    "links": [
        {"id": "ab", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 20, "both": True},
        {"id": "ac", "from": "a", "to": "c", "technology": "wifi", "capacity_mbps": 30, "both": True},
    ],
    "interference": {"rule": "technology"},
    "flows": [{"id": "f1", "from": "a", "to": "b"}],
}
CHANGED = {
    **NETWORK,
    "links": [NETWORK["links"][0], {**NETWORK["links"][1], "capacity_mbps": 25}],
    "flows": [*NETWORK["flows"], {"id": "f2", "from": "a", "to": "c"}],
}


class Unconfirmed(Reloader):
    """Does not wait for devices: none is connected."""

    def _confirm(self, edits: FlowEdits) -> None:
        pass


class Rig:
    """An event loop whose files are in a folder; the disk of its state file can be broken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk_error: OSError | None = None
        self.write()
        files = self.read()
        context = TopologyContext.of(files.network)
        flows = [DeclaredFlow(flow, Origin.FILE) for flow in files.network.flows]
        self.loop = EventLoop(
            context,
            files.settings,
            initial(context, flows),
            Numbers(),
            clock=time.monotonic,
            events=EventLog(time.time, shim.Signal()),
            save=self._save,
        )
        self.loop.change(lambda state: replace(state, version=1))
        self.followed: list[tuple[float | None, float | None]] = []
        self.fails: Callable[[], None] = lambda: None

    def write(self, network: Any = NETWORK, **settings: Any) -> None:
        (self.folder / "net.json").write_text(json.dumps(network))
        document = {"network": "net.json", "state_file": "state.json", **settings}
        (self.folder / "hyroads.json").write_text(json.dumps(document))
        (self.folder / "hyroads.json").chmod(0o600)

    def read(self) -> Files:
        return read_files({"HYROADS_CONFIG": str(self.folder / "hyroads.json")})

    def _save(self, _state: object, _numbers: object) -> None:
        if self.disk_error is not None:
            raise self.disk_error

    def _follow(self, steps: Steps, old: Settings, new: Settings) -> None:
        def step(now: Settings) -> Callable[[], None]:
            return lambda: self.followed.append((old.margin, now.margin))

        steps.do(step(new), step(old))
        self.fails()

    def reload(self) -> Any:
        saver = shim.spawn(self.loop.saver.run)
        waker = shim.spawn(self._begin)
        try:
            return Unconfirmed(self.loop, self.read, follow=self._follow).reload()
        finally:
            for thread in (saver, waker):
                thread.kill()

    def _begin(self) -> None:
        """What the loop does at the end of each turn."""
        while True:
            self.loop.saver.begin()
            shim.sleep(0.005)

    def told(self) -> Any:
        """All that a reload may change."""
        loop = self.loop
        flows = {flow: each.spec for flow, each in loop.state.flows.items()}
        routes = {} if loop.plan is None else {name: plan.mode for name, plan in loop.plan.flows.items()}
        basis = (loop.state.capacity_mbps, loop.state.interference)
        return flows, basis, loop.settings, loop.declared.links, loop.live.loop.options, routes


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_everything_is_taken_in_one_plan(rig: Rig) -> None:
    plans = rig.loop.counters["plans"]
    rig.write(CHANGED, margin=0.2)
    changed = rig.reload()["changed"]
    assert changed == [
        "settings: margin",
        "network: flows.f2",
        "network: links.ac.capacity_mbps",
        "network: links.ac~.capacity_mbps",
    ]
    assert rig.loop.counters["plans"] == plans + 1
    flows, basis, settings, links, options, _ = rig.told()
    assert set(flows) == {"f1", "f2"} and basis[0] == (20, 20, 25, 25)
    assert settings.margin == options.margin == 0.2 and [link.capacity_mbps for link in links] == [20, 20, 25, 25]
    rig.loop.live.loop.turn(time.monotonic())
    assert rig.loop.live.loop.capacities() == {"ab": 20, "ab~": 20, "ac": 25, "ac~": 25}
    assert rig.reload()["changed"] == [], "again: nothing differs"


def test_a_reload_and_back_is_as_before(rig: Rig) -> None:
    before = rig.told()
    rig.write(CHANGED, margin=0.2)
    rig.reload()
    rig.write()
    rig.reload()
    after = rig.told()
    # Capacities are now said by the state instead of by the network that the controller started with.
    assert (after[0], *after[2:]) == (before[0], *before[2:]) and after[1][0] == (20, 20, 30, 30)


@pytest.mark.parametrize("wrong", ["file", "restart", "follower", "plan", "defect"])
def test_what_fails_leaves_everything_as_it_was(rig: Rig, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rig.told()
    rig.write(CHANGED, margin=0.2)
    expected: type[Exception] = ReloadRefusedError

    def fail(*_: object) -> None:
        raise {"defect": ZeroDivisionError("x"), "follower": ConfigError("settings", "x", "expected y")}[wrong]

    if wrong == "file":
        rig.write({**CHANGED, "flows": [{"id": "f1", "from": "a", "to": "nowhere"}]})
    elif wrong == "restart":
        rig.write(CHANGED, margin=0.2, slot_ms=50)
    elif wrong == "plan":
        replan = rig.loop.live.replan

        def cannot(state: Any, *others: Any) -> Any:
            if "f2" in state.flows:
                raise PlanningError("too much")
            return replan(state, *others)

        monkeypatch.setattr(rig.loop.live, "replan", cannot)
    else:
        rig.fails = fail
        expected = ZeroDivisionError if wrong == "defect" else ReloadRefusedError
    with pytest.raises(expected) as refused:
        rig.reload()
    assert rig.told() == before
    if wrong in ("follower", "plan", "defect"):
        assert rig.followed == [(None, 0.2), (None, None)], "the steps were made and undone"
    if wrong != "defect":
        assert "nothing was taken" in str(refused.value)
        assert [fault.where for fault in rig.loop.faults] == ["reload"], "one line says why"


def test_what_the_disk_does_not_take_is_taken_back(rig: Rig) -> None:
    before = rig.told()
    rig.write(CHANGED, margin=0.2)
    rig.disk_error = OSError(28, "No space left on device")
    with pytest.raises(NotSavedError):
        rig.reload()
    assert rig.told() == before
    rig.disk_error = None
    assert len(rig.reload()["changed"]) == 4
