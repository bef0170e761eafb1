"""Mobility managers of others, in their real processes, run whole handovers; what they do wrong fails one handover."""

from __future__ import annotations

import time

import pytest
from plugin_rig import HASTY, Rig, eventually

from hyroads.controller.core.network import Place
from hyroads.controller.core.services.mobility import Arrived, Associated, Confirmed, Left, Passed, Phase, Request
from hyroads.controller.framework import ryu_shim as shim
from hyroads.plugins.kinds import Kind

A, B = Place("a", "wifi"), Place("b", "plc")
REQUEST = Request("h1", "c", A, B, frozenset({"f"}))
MINE = """
from dataclasses import replace
from hyroads.plugins.mobility.make_before_break import MakeBeforeBreak
MANAGER = MakeBeforeBreak("mine")
"""


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    if rig.service is not None:
        rig.service.stop()


def managers(rig, **code):
    found = [rig.found(name, text, kind=Kind.MOBILITY, bounds=HASTY) for name, text in code.items()]
    service = rig.run(found)
    eventually(lambda: set(service.managers()) >= set(code))
    return service.managers()


def run(manager, handover, until, within_s=10.0):
    """What the service of handovers does: confirm what is wanted, tell of the client and of markers."""
    over_s = time.monotonic() + within_s
    while not until(handover):
        assert time.monotonic() < over_s, handover
        now_s = time.monotonic()
        events = [Associated(B), Confirmed(manager.wanted(handover)), Passed("f", A), Arrived("f", B)]
        if manager.wanted(handover).leave is not None:
            events.append(Left(A))
        for event in events:
            handover = manager.on(handover, event, now_s)
        handover = manager.tick(handover, now_s)
        shim.sleep(0.002)
    return handover


def test_a_whole_handover(rig):
    manager = managers(rig, mine=MINE)["mine"]
    woken = []
    rig.service.on_managers = lambda: woken.append(1)
    handover = manager.start(REQUEST, time.monotonic())
    assert handover.phase is Phase.ASSOCIATING and manager.wanted(handover).carry == (A,)
    handover = run(manager, handover, lambda h: h.is_over)
    assert handover.phase is Phase.DONE and manager.wanted(handover).carry == (B,) and woken
    calls = rig.service.document("mine")["process"]["calls"]
    # Events that changed nothing are not told again and again.
    assert calls < 40 and rig.faults("mine") == []


def test_time_goes_by_in_the_plugin_too(rig):
    manager = managers(rig, mine=MINE)["mine"]
    handover = manager.start(REQUEST, time.monotonic() - 100.0)
    due_s = eventually(lambda: manager.due_s(handover))
    assert due_s < time.monotonic()
    handover = run(manager, handover, lambda h: True)
    handover = eventually(lambda: (h := manager.tick(handover, time.monotonic())).is_over and h)
    assert handover.phase is Phase.FAILED and "did not join" in handover.reason


BAD = {
    "raises": "def on(self, handover, event, now_s): raise ValueError('no')",
    "hangs": "def on(self, handover, event, now_s):\n        while True: pass",
    "vanishes": "def on(self, handover, event, now_s): os._exit(1)",
    "lies": "def wanted(self, handover): return DesiredState((Place('x', 'y'),), ())",
    "mutters": "def on(self, handover, event, now_s): return 'fine'",
}


@pytest.mark.parametrize("bad", sorted(BAD))
def test_what_it_does_wrong_ends_its_handover_at_the_old_place(rig, bad):
    code = f"{MINE}\nclass Bad(MakeBeforeBreak):\n    {BAD[bad]}\nMANAGER = Bad('{bad}')\n"
    manager = managers(rig, **{bad: code})[bad]
    began_s = time.monotonic()
    handover = run(manager, manager.start(REQUEST, began_s), lambda h: h.is_over)
    assert handover.phase is Phase.FAILED and bad in handover.reason
    assert manager.wanted(handover).carry == (A,)
    eventually(lambda: rig.faults(bad))
    if bad in ("hangs", "vanishes"):
        eventually(lambda: bad not in rig.service.managers())
