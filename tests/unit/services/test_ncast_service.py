"""n-cast switched on and off over REST's service, against agents that do what they are told."""

from __future__ import annotations

import pytest
from handover_rig import Rig
from instant_saver import full_disk

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.network import Place
from hyroads.controller.model.handover import Constrained
from hyroads.controller.services.mobility.ncasts import ncast_document, ncasts_from
from hyroads.rest.contract import ConflictError, NotFoundError, NotSavedError

A = Place("a", "wifi1")
LINKS = {"ac-wifi1", "bc-wifi2", "bc-plc", "xc-lte"}


def copies(rig: Rig, flow: str) -> bool:
    plan = rig.plan.flows[flow]
    return rig.agents[plan.ingress].sending(plan.number)[1]


def test_on_and_off_again():
    rig = Rig()
    document = rig.ncasts.switch_on({"flow": "down", "copies": 3})
    assert len(document["paths"]) == 3 and document["shared_links"] == 0
    rig.step()
    assert rig.ncasts.document("down")["phase"] == "copying" and rig.ncasts.document("down")["copying_after_s"] == 0.0
    assert copies(rig, "down") and not copies(rig, "up")
    used = rig.carry("down")
    assert used == {path[-1] for path in document["paths"]}
    rates = {path.rate_mbps for path in rig.plan.flows["down"].paths if path.rate_mbps}
    assert len(rates) == 1 and max(rig.live.loop.airtime().values()) <= 0.95 + 1e-6
    # Until markers have come by all paths of before, receivers wait for these; then no longer.
    assert "hold" in rig.receiver("down")
    rig.arrive("down", *LINKS)
    assert "hold" not in rig.receiver("down") and copies(rig, "down")
    rig.ncasts.switch_off("down")
    rig.step()
    assert rig.ncasts.document("down")["phase"] == "draining" and len(rig.carry("down")) == 1
    rig.arrive("down", *LINKS)
    assert rig.ncasts.names() == [] and rig.state.constrained == {}
    assert not copies(rig, "down") and rig.carry("down") == LINKS
    assert rig.receiver("down").keys() & {"hold", "watch", "late"} == set()
    assert [kind for kind, _ in rig.events] == ["ncast.on", "ncast.off"]


def test_copies_that_can_not_be_saved_end_again():
    rig = Rig()
    rig.saver.save = full_disk
    with pytest.raises(NotSavedError, match="No space left"):
        rig.ncasts.switch_on({"flow": "down", "copies": 3}, wait_s=2.0)
    for _ in range(3):
        rig.step()
        rig.arrive("down", *LINKS)
    assert rig.ncasts.names() == [] and not copies(rig, "down") and rig.state.constrained == {}
    with pytest.raises(NotSavedError):
        rig.ncasts.pending("down")
    with pytest.raises(NotSavedError, match="nothing was changed"):
        rig.ncasts.switch_on({"flow": "down", "copies": 3})
    rig.saver.save = lambda: None
    rig.ncasts.switch_on({"flow": "down", "copies": 3}, wait_s=2.0)
    assert copies(rig, "down") and rig.ncasts.pending("down") == []


def test_a_new_controller_goes_on_with_it_and_tells_agents_nothing():
    old = Rig()
    old.ncasts.switch_on({"flow": "down", "copies": 3})
    old.step()
    old.arrive("down", *LINKS)
    assert old.saver.pending
    before = {**old.ncasts.document("down"), "pending": []}
    runs = {node: (dict(agent.ingress), dict(agent.egress)) for node, agent in old.agents.items()}
    new = Rig(after=old)
    assert {kind for _, kind in new.told} <= {"rates"}
    assert {node: (dict(agent.ingress), dict(agent.egress)) for node, agent in new.agents.items()} == runs
    assert new.ncasts.document("down") == before and copies(new, "down") and new.carry("down") == old.carry("down")
    assert [kind for kind, _ in new.events] == []
    # It ends as any other does.
    new.ncasts.switch_off("down")
    new.step()
    assert new.ncasts.document("down")["phase"] == "draining" and len(new.carry("down")) == 1
    new.arrive("down", *LINKS)
    assert new.ncasts.names() == [] and new.state.constrained == {} and new.carry("down") == LINKS
    assert new.ncasts.to_save() == []


def test_a_new_controller_waits_for_what_the_old_one_still_waited_for():
    old = Rig()
    old.ncasts.switch_on({"flow": "down", "copies": 3})
    old.step()
    runs = {node: (dict(agent.ingress), dict(agent.egress)) for node, agent in old.agents.items()}
    hold = old.receiver("down")["hold"]
    assert hold["paths"] and hold["ms"] == 2000
    new = Rig(after=old)
    assert {kind for _, kind in new.told} <= {"rates"} and new.receiver("down")["hold"] == hold
    assert {node: (dict(agent.ingress), dict(agent.egress)) for node, agent in new.agents.items()} == runs
    # Where copies begin the sender told the old controller alone, and says it again in its reports.
    plan = new.plan.flows["down"]
    new.arrive("down", *LINKS)
    assert new.receiver("down")["hold"] == hold
    report = {"ingress": [{"number": plan.number, "from": new.sent[plan.number] - 10}], "egress": []}
    assert new.markers.reported(plan.ingress, report)
    new.step()
    assert "hold" not in new.receiver("down") and copies(new, "down")
    assert [kept["waits"] for kept in new.ncasts.to_save()] == [[]]


def test_who_follows_takes_no_step_and_keeps_nothing_of_what_it_forgets():
    rig = Rig()
    rig.ncasts.switch_on({"flow": "down", "copies": 3})
    rig.step()
    hold = rig.receiver("down")["hold"]
    rig.leads = False
    rig.arrive("down", *LINKS)
    assert rig.receiver("down")["hold"] == hold
    rig.ncasts.forget()
    plan = rig.plan.flows["down"]
    rig.leads = True
    rig.arrive("down", *LINKS)
    assert all(rig.markers.of(plan.egress, plan.number, path.id).passed is None for path in plan.paths)


def test_what_is_being_switched_on_or_off_does_not_come_back():
    rig = Rig()
    rig.agents["g"].deaf = True
    rig.ncasts.switch_on({"flow": "down", "copies": 2})
    assert rig.ncasts.document("down")["phase"] == "preparing" and rig.ncasts.to_save() == []
    rig = Rig()
    rig.ncasts.switch_on({"flow": "down", "copies": 2})
    rig.step()
    assert [kept["flow"] for kept in rig.ncasts.to_save()] == ["down"]
    rig.ncasts.switch_off("down")
    assert rig.ncasts.to_save() == []


SOUND = {
    "flow": "down",
    "paths": [["ga", "ac-wifi1"], ["gb", "bc-plc"]],
    "before": [["ga", "ac-wifi1"]],
    "copying_after_s": 0.01,
    "chosen": {},
    "waits": [["ga", "ac-wifi1"]],
}


@pytest.mark.parametrize(
    "spoilt",
    [
        {"flow": "nobody"},
        {"flow": 3},
        {"paths": [["ga", "ac-wifi1"]]},
        {"paths": [["ga", "ac-wifi1"], ["ga", "ac-wifi1"]]},
        {"paths": [["ga", "ac-wifi1"], ["ac-wifi1", "gb"]]},
        {"paths": [["ga", "ac-wifi1"], ["ga"]]},
        {"paths": [["ga", "ac-wifi1"], ["ga", "gone"]]},
        {"paths": [["ga", "ac-wifi1"], ["ga", 7]]},
        {"before": []},
        {"copying_after_s": None},
        {"chosen": 1},
        {"waits": None},
        {"waits": [["gb", "bc-plc"]]},
        {"waits": [["ga"]]},
    ],
)
def test_what_no_longer_fits_is_left_out(spoilt):
    rig = Rig()
    flows = {name: flow.spec for name, flow in rig.state.flows.items()}
    [kept], problems = ncasts_from([SOUND], rig.context.network, flows)
    assert not problems and kept.key == ("c", "down") and ncast_document(kept) == SOUND
    found, problems = ncasts_from([{**SOUND, **spoilt}, SOUND], rig.context.network, flows)
    assert found == [kept] and [problem.place for problem in problems] == ["services.ncasts[0]"]


def test_one_of_an_earlier_version_waits_for_nothing():
    rig = Rig()
    flows = {name: flow.spec for name, flow in rig.state.flows.items()}
    old = {name: value for name, value in SOUND.items() if name != "waits"}
    [kept], problems = ncasts_from([old], rig.context.network, flows)
    assert not problems and kept.waits == () and kept.constrained.hold_s == 0.0


def test_off_before_it_is_on_and_without_markers():
    rig = Rig()
    rig.agents["g"].deaf = True
    rig.ncasts.switch_on({"flow": "down", "copies": 2})
    rig.ncasts.switch_off("down")
    rig.after(5.1)
    assert rig.ncasts.names() == [] and rig.state.constrained == {}


def test_it_ends_although_markers_do_not_come():
    rig = Rig()
    rig.ncasts.switch_on({"flow": "down", "copies": 2})
    rig.step()
    rig.ncasts.switch_off("down")
    rig.after(2.1)
    assert rig.ncasts.names() == [] and rig.carry("down") == LINKS


def test_given_paths_and_a_path_that_dies():
    rig = Rig()
    paths = [["ga", "ac-wifi1"], ["gb", "bc-plc"]]
    rig.ncasts.switch_on({"flow": "down", "paths": paths, "copies": 2})
    rig.step()
    rig.arrive("down", *LINKS)
    assert rig.carry("down") == {"ac-wifi1", "bc-plc"}
    rig.link("ac-wifi1", False)
    assert rig.carry("down") == {"bc-plc"}
    rig.link("ac-wifi1", True)
    assert rig.carry("down") == {"ac-wifi1", "bc-plc"}


def test_handovers_leave_the_flow_alone():
    rig = Rig(before={("c", None): Constrained((A,), (A,))})
    rig.ncasts.switch_on({"flow": "down", "copies": 2})
    rig.step()
    rig.arrive("down", *LINKS)
    both = rig.carry("down")
    answer = rig.service.request({"client": "c", "to": {"node": "b", "technology": "plc"}, "manager": "hard"})
    rig.step()
    assert answer["flows"] == ["up"] and rig.carry("up") == {"bc-plc"} and rig.carry("down") == both
    rig.ncasts.switch_off("down")
    rig.after(2.1)
    assert rig.carry("down") == {"bc-plc"}  # its client's place counts again


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"flow": "f", "copies": 2}, "flow"),
        ({"flow": "down", "paths": [["ga", "ac-wifi1"], ["gb"]]}, "paths[1]"),
        ({"flow": "down", "paths": [["ga", "x"], ["gb", "bc-plc"]]}, "paths[0]"),
        ({"flow": "down", "paths": [["gb", "bc-plc"], ["gb", "bc-plc"]]}, "paths"),
    ],
)
def test_bad_requests(body, place):
    rig = Rig()
    with pytest.raises(ConfigError) as error:
        rig.ncasts.switch_on(body)
    assert error.value.place == place and rig.state.constrained == {}


def test_twice_or_never():
    rig = Rig()
    rig.ncasts.switch_on({"flow": "down", "copies": 2})
    with pytest.raises(ConflictError):
        rig.ncasts.switch_on({"flow": "down", "copies": 2})
    with pytest.raises(NotFoundError):
        rig.ncasts.switch_off("up")
