"""The controller's own parts start from whatever a state file says, plan, and can save again."""

from __future__ import annotations

import copy
import functools
import json
import random
import re
import traceback
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from examples import examples, seeds
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.api.service import ControllerService
from hyroads.controller.app.wiring import Services, ready
from hyroads.controller.control.rate_override import RateOverrides
from hyroads.controller.core.netfile import load_text
from hyroads.controller.files.state import text_of
from hyroads.controller.framework.ryu_shim import Signal
from hyroads.controller.model.events import EventLog
from hyroads.controller.model.plan import Plan
from hyroads.controller.model.state import TopologyContext, agent_up, initial, switch_up
from hyroads.controller.runtime.event_loop import EventLoop
from hyroads.controller.runtime.garbage import Garbage
from hyroads.controller.runtime.persistence import FORMAT, Encoder, decode, to_save
from hyroads.controller.runtime.telemetry import Telemetry
from hyroads.controller.services.mptcp_saved import SavedConnections
from hyroads.controller.services.plugins import discovery
from hyroads.controller.settings.controller import load
from hyroads.rest.api import create_app

NETWORKS = Path(__file__).resolve().parents[3] / "mininet" / "networks"
ROAMING = NETWORKS / "roaming.yaml"
NETWORK = """
nodes:
  g: {role: gateway}
  a: {role: ap}
  b: {role: ap}
  c: {role: client, agent: true}
  p: {role: client}
links:
  - {id: ga, from: g, to: a, technology: plc, capacity_mbps: 50, both: true}
  - {id: gb, from: g, to: b, technology: plc, capacity_mbps: 50, both: true}
  - {id: ac-wifi1, from: a, to: c, technology: wifi1, capacity_mbps: 20, both: true}
  - {id: bc-wifi2, from: b, to: c, technology: wifi2, capacity_mbps: 20, both: true}
  - {id: ap, from: a, to: p, technology: wifi1, capacity_mbps: 50, both: true}
  - {id: bp, from: b, to: p, technology: wifi1, capacity_mbps: 20, both: true}
interference: {rule: technology}
flows:
  - {id: of-file, from: g, to: p}
  - {id: second, from: p, to: g}
"""
CONTEXT = TopologyContext.of(load_text(NETWORK, "lab"))


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    """Not every controller of ours looks at all objects of the process and at all packages when it begins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Garbage, "begin", lambda self, now_s: None)
        patch.setattr(discovery, "entry_points", functools.cache(entry_points))
        yield


class Controller:
    """Everything of the application but its sockets and green threads."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.settings = load({"HYROADS_NETWORK": str(ROAMING), "HYROADS_CONFIG": ""})
        saved, self.problems = decode(document, "state.json", CONTEXT.network)
        kept, more = ready(saved, CONTEXT, SavedConnections(32))
        self.now_s = 100.0
        self.saved: dict[str, Any] | None = None
        telemetry = Telemetry(CONTEXT, self.settings, self.clock)
        self.event_loop = EventLoop(
            CONTEXT,
            self.settings,
            initial(CONTEXT, kept.flows, kept.constrained, kept.places),
            kept.numbers,
            clock=self.clock,
            events=EventLog(self.clock, Signal()),
            save=self._save,
            override=RateOverrides({}),
        )
        self.services = Services(self.event_loop, telemetry, dict, kept, "settings")
        self.problems = [*self.problems, *more, *self.services.left_out]

    def clock(self) -> float:
        return self.now_s

    def _save(self, state: Any, numbers: Any) -> None:
        found = to_save(CONTEXT.network, state.flows.values(), numbers, state.constrained, self.services.to_save(state))
        self.saved = json.loads(text_of(FORMAT, Encoder().encode(found)))

    def run(self) -> dict[str, Any]:
        """Plans, gives the services their turns, and saves; the document."""
        event_loop = self.event_loop
        addressing, state = CONTEXT.addressing, event_loop.state
        for node in addressing.dpid:
            names = [name for (at, _), name in addressing.interface_name.items() if at == node]
            own = (addressing.access_port, addressing.agent_access_port, addressing.agent_network_port)
            names += [ports[node] for ports in own if node in ports]
            state = switch_up(state, node, names)
        for node in state.agents:
            state = agent_up(state, CONTEXT, node, fresh=False, now_s=self.now_s)
        event_loop._become(state)
        for _ in range(3):
            self.now_s += 30.0
            event_loop._tick()
            event_loop._cycle()
            self.services.membership.once()
        event_loop.saver.once()
        assert event_loop.saver.failure is None and self.saved is not None
        return self.saved

    @property
    def defects(self) -> list[str]:
        return [f"{fault.where}: {fault.what}" for fault in self.event_loop.faults]


ARCHITECTURE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "architecture.md"


def modules_to(monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]) -> list[str]:
    """The modules that a request passes until a plan is made, without what receives and checks all requests."""
    controller, stacks = Controller({}), []

    def made(self: Plan, *given: Any, **named: Any) -> None:
        stacks.append([str(frame.f_globals["__name__"]) for frame, _ in traceback.walk_stack(None)])
        make(self, *given, **named)

    make = Plan.__init__
    monkeypatch.setattr(Plan, "__init__", made)
    service = ControllerService(controller.event_loop, "lab")
    web = create_app(service, resources=controller.services.resources()).test_client()
    assert web.post(f"/api/v1/{path}?wait=false", json=body).status_code == 202
    ours = re.compile(r"hyroads\.(?:controller\.)?((?:rest|api|services|runtime|control)\..*)")
    names = [f"{found[1].replace('.', '/')}.py" for name in reversed(stacks[0]) if (found := ours.fullmatch(name))]
    return list(dict.fromkeys(names))


@pytest.mark.parametrize(
    ("path", "body", "which"),
    [
        ("flows", {"id": "new", "from": "g", "to": "c"}, "A flow"),
        ("handovers", {"client": "c", "to": {"node": "b", "technology": "wifi2"}}, "A handover"),
    ],
)
def test_requests_take_the_way_that_is_documented(
    monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any], which: str
) -> None:
    table = ARCHITECTURE.read_text().split(f"\n{which}")[1].split("\n\n")[1]
    documented = re.findall(r"^\| `([^`]*)`", table, re.MULTILINE)
    passed = modules_to(monkeypatch, path, body)
    assert documented[: len(passed)] == passed and len(documented) <= {"flows": 10, "handovers": 8}[path]


HOST = "02:aa:00:00:00:01"
SOUND: dict[str, Any] = {
    "flows": [
        {"id": "up", "from": "c", "to": "g", "weight": 2.0, "match": {"eth_type": 2048, "ip_proto": 17, "udp_dst": 9}},
        {"id": "down", "from": "g", "to": "c", "paths": [["ga", "ac-wifi1"], ["gb", "bc-wifi2"]]},
    ],
    "removed": ["of-file"],
    "numbers": {
        **{"second": 79, "up": 77, "down": 78, "mptcp-0000002a-0-up": 80, "mptcp-0000002a-0-down": 81},
        **{"mptcp-0000002a-2-up": 82, "mptcp-0000002a-2-down": 83},
    },
    "paths": {"up": [[1, "ac-wifi1~", "ga~"]], "down": []},
    "places": [
        {"client": "c", "flow": None, "node": "a", "technology": "wifi1"},
        {"client": "c", "flow": "up", "node": "b", "technology": "wifi2"},
    ],
    "services": {
        "sessions": [
            {
                "id": "video",
                "group": "239.1.2.3",
                "participants": ["g", "a", "b", HOST],
                "sources": ["g"],
                "membership": True,
                "trees": {"g": {"label": 700_000, "transmissions": [["ga", "gb"]], "receivers": ["a", "b"]}},
                "hosts": [{"name": HOST, "node": "a", "mac": HOST, "ip": "10.0.0.9", "technology": "plc"}],
            },
            {"id": "audio", "group": "239.1.2.4", "participants": ["a", "b"], "sources": ["a", "b"]},
        ],
        "members": [["video", HOST, "a", "a-acc", True]],
        "reservations": [
            {"id": "r", "flow": "up", "session": None, "rate_mbps": 1.5},
            {"id": "s", "flow": None, "session": "video", "rate_mbps": 0.5},
        ],
        "ncasts": [
            {
                "flow": "down",
                "paths": [["ga", "ac-wifi1"], ["gb", "bc-wifi2"]],
                "before": [["ga", "ac-wifi1"]],
                "copying_after_s": 0.5,
                "chosen": {"shared_links": 0, "contending_pairs": 1, "expected_loss": 0.0},
                "waits": [["ga", "ac-wifi1"]],
            }
        ],
        "connections": [
            {
                "id": "0000002a",
                "version": 1,
                "token": 42,
                "client_token": 7,
                "client": "c",
                "peer": "g",
                "begun": 3,
                "subflows": [
                    {
                        "number": number,
                        "key": f"0a00000{number}0a000009{1000 + number:04x}0050",
                        "by_peer": False,
                        "address_id": number,
                        "backup": False,
                        "at": ["c", "c-acc", "c"],
                        "peer_at": ["g", "g-acc", "g"],
                    }
                    for number in (0, 2)
                ],
            }
        ],
        "preferences": [{"client": "c", "manager": "hard", "steering": False}],
        "places": [{"client": "p", "node": "b", "technology": "wifi1"}],
    },
}
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 1e308, 2**70, float("1e999"), "", "nowhere", "\ud800", "x" * 5000,
    [], [[]], [None], [[[]]], [{}], {}, {"": None}, {"a": []}, {"id": {}}, [1, "a", []],
]  # fmt: skip


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a document with every key of it."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *_places(value[key]))]


def _damaged(seed: int) -> dict[str, Any]:
    """Some values replaced by others, doubled, removed, or put where they do not belong."""
    chance = random.Random(seed)
    document = copy.deepcopy(SOUND)
    for _ in range(chance.randint(1, 4)):
        where, key = chance.choice(_places(document))
        what = chance.randrange(4)
        try:
            if what == 0:
                del where[key]
            elif what == 1 and isinstance(where, list):
                where.append(copy.deepcopy(where[key]))
            elif what == 2:
                other, other_key = chance.choice(_places(document))
                where[key] = copy.deepcopy(other[other_key])
            else:
                where[key] = copy.deepcopy(chance.choice(ODD))
        except (KeyError, IndexError):
            continue
    # Sections of a wrong kind do not come so far.
    kinds = {section: type(value) for section, value in SOUND.items()}
    return {section: value for section, value in document.items() if isinstance(value, kinds.get(section, object))}


def test_what_is_sound_comes_back_and_is_saved_again() -> None:
    controller = Controller(SOUND)
    assert controller.problems == []
    saved = controller.run()
    assert controller.defects == []
    assert saved["flows"] == [{"utility": "log", "weight": 1.0, "policy": "throughput", **f} for f in SOUND["flows"]]
    assert saved["removed"] == ["of-file"] and saved["numbers"] == dict(sorted(SOUND["numbers"].items()))
    services = saved["services"]
    for name in ("reservations", "preferences", "places", "members", "ncasts", "connections"):
        assert services[name] == SOUND["services"][name]
    assert [session["id"] for session in services["sessions"]] == ["video", "audio"]
    assert services["sessions"][0]["trees"] == SOUND["services"]["sessions"][0]["trees"]


@pytest.mark.parametrize("seed", seeds(100))
def test_a_controller_starts_from_any_damage(seed: int) -> None:
    document = _damaged(seed)
    controller = Controller(document)
    saved = controller.run()
    assert not [defect for defect in controller.defects if "Error" in defect], (controller.defects, document)
    # What it has made of it is sound.
    again = Controller(saved)
    assert not again.problems, again.problems


@examples(30, quick=2)
@given(
    st.dictionaries(
        st.sampled_from(list(SOUND["services"])),
        st.recursive(
            st.sampled_from(ODD[:7]) | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
        ),
    )
)
def test_services_take_anything_for_what_they_have_saved(services: dict[str, Any]) -> None:
    controller = Controller({**SOUND, "services": services})
    controller.run()
    assert not [defect for defect in controller.defects if "Error" in defect]
