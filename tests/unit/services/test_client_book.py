"""What was asked for clients, kept over a restart; forgetting a client over HTTP."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from instant_saver import instant_saver

from hyroads.controller.app.wiring import ready
from hyroads.controller.core.addressing import Numbers
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.netfile import load_text, parse, to_document
from hyroads.controller.core.network import WIRED, Place
from hyroads.controller.core.services.clients import seen
from hyroads.controller.model.state import TopologyContext, client_placed, initial
from hyroads.controller.runtime.address_book import AddressBook
from hyroads.controller.runtime.persistence import Saved, Store, to_save
from hyroads.controller.services.clients.declared import interfaces_of, saved_places
from hyroads.controller.services.clients.directory import MAX_PREFERENCES, ClientDirectory
from hyroads.controller.services.clients.locations import ClientService
from hyroads.controller.services.clients.multihomed import MultihomedClients
from hyroads.controller.services.mptcp_saved import SavedConnections
from hyroads.controller.services.steering.stations import Steering
from hyroads.controller.settings.clients import AccessSettings
from hyroads.rest import clients
from hyroads.rest.api import create_app
from hyroads.rest.contract import TooBusyError

NETWORK = """
nodes:
  a: {role: gateway}
  b: {role: ap}
  p: {role: client}
links:
  - {id: ab, from: a, to: b, technology: wifi, capacity_mbps: 50, both: true}
  - {id: ap, from: a, to: p, technology: wifi, capacity_mbps: 50, both: true}
  - {id: bp, from: b, to: p, technology: wifi, capacity_mbps: 20, both: true}
interference: {rule: technology}
"""
MAC = "02:aa:00:00:00:01"


class Controller:
    """A event_loop that saves at the next look."""

    def __init__(self, context: TopologyContext) -> None:
        self.state, self.switches = initial(context), {}
        self.context, self.writes = context, 0
        self.addresses = AddressBook(context.addresses)
        self.saver = instant_saver(self._write)[0]

    def _write(self) -> None:
        self.writes += 1

    @property
    def progress(self) -> Controller:
        return self

    def wait(self, timeout_s: float) -> None:
        self.saver.once()

    def place_client(self, client: str, place: Place) -> None:
        self.state = client_placed(self.state, self.context, client, place)

    def fault(self, where: str, what: str) -> None:
        raise AssertionError((where, what))

    def exception(self, where: str, error: BaseException) -> None:
        raise AssertionError(where) from error


class EmptyLayer:
    def want(self, host: str, rules: object) -> None:
        assert not rules

    def flush(self) -> None:
        pass

    def is_confirmed(self, host: str) -> bool:
        return True


class Lab:
    def __init__(self, controller: Controller | None = None) -> None:
        self.context = TopologyContext.of(load_text(NETWORK, "lab"))
        self.controller = controller or Controller(self.context)
        self.now_s = 10.0
        self.managers: dict[str, str] = {}
        clock = self.clock
        self.service = ClientService(
            self.context, AccessSettings(), self.controller, lambda *_: None, clock, switch_grace_s=15.0
        )
        steering = Steering(self.service, dict, lambda *_: None, clock)
        self.book = ClientDirectory(
            self.service,
            steering,
            self.controller,
            interfaces_of(self.context, self.context.addresses),
            MultihomedClients(["laptop"], lambda *_: None, clock, clock),
            managers=self.managers,
            check_manager=self.check,
            clock=clock,
        )

    def clock(self) -> float:
        return self.now_s

    def comes(self) -> None:
        """A host shows up at the access port of a."""
        self.service.state = seen(self.service.state, MAC, Place("a", WIRED), self.now_s).state

    def connect(self, *nodes: str) -> None:
        """Switches that have no rules of hosts are connected and read."""
        for node in nodes:
            self.service._ready[node] = SimpleNamespace(ports={}, hosts=EmptyLayer())  # type: ignore[assignment]

    def check(self, manager: str, client: str) -> None:
        if manager not in ("hard", "bicast"):
            raise ConfigError("request", "manager", "expected one of bicast, hard")


def test_switches_are_looked_at_when_they_changed() -> None:
    lab = Lab()
    looked_at: list[str] = []

    class Switch:
        """A switch of which it is written down that it was looked at."""

        def __init__(self, node: str) -> None:
            self.node, self.ports = node, {"x": 1}
            self.hosts = SimpleNamespace(
                sources=list, claims=list, changed=None, all_known=lambda _: None, flush=lambda: None
            )
            self.access = SimpleNamespace(want=lambda *_: None, flush=lambda: None)

        @property
        def is_read(self) -> bool:
            looked_at.append(self.node)
            return True

    service, switches = lab.service, lab.controller.switches
    service.changed_nodes = changed = set()
    switches.update({node: Switch(node) for node in ("a", "b")})
    service._look_at_switches()
    assert not looked_at and not service._ready
    changed.update(("a", "gone"))
    service._look_at_switches()
    service._look_at_switches()
    assert set(looked_at) == {"a"} and service._ready == {"a": switches["a"]} and not changed
    # Its ports are others, then it is another session, then it is gone.
    switches["a"].ports = {"x": 1, "y": 2}
    changed.add("a")
    service._look_at_switches()
    assert service._ports["a"] == {"x": 1, "y": 2}
    switches["a"] = Switch("a")
    changed.add("a")
    service._look_at_switches()
    assert service._ready == {"a": switches["a"]}
    del switches["a"]
    changed.add("a")
    service._look_at_switches()
    assert not service._ready and "b" not in looked_at


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_wishes_are_on_disk_when_they_are_answered_and_come_back(lab: Lab) -> None:
    assert lab.book.prefer("p", {"manager": "bicast", "steering": False})["manager"] == "bicast"
    assert not lab.controller.saver.pending and lab.controller.writes == 1
    lab.book.prefer("p", {"steering": False})
    assert lab.controller.writes == 1  # nothing new
    after = Lab()
    assert after.book.restore(lab.book.to_save()) == []
    assert after.managers == {"p": "bicast"} and not after.book.may_steer("p")
    assert after.book.document("p")["manager"] == "bicast" and after.book.to_save() == lab.book.to_save()
    after.book.prefer("p", {"manager": None, "steering": True})
    assert after.book.to_save() == [] and after.managers == {}


def test_a_manager_that_is_not_there_yet_is_kept(lab: Lab) -> None:
    assert lab.book.restore([{"client": "p", "manager": "a plugin's", "steering": True}]) == []
    assert lab.managers == {"p": "a plugin's"}
    with pytest.raises(ConfigError):
        lab.book.prefer("p", {"manager": "none such"})
    assert lab.managers == {"p": "a plugin's"}


@pytest.mark.parametrize(
    "wrong", [3, {}, {"client": "p"}, {"client": "", "manager": None, "steering": True},
              {"client": "p", "manager": 3, "steering": True}, {"client": "p" * 65, "manager": "x", "steering": True},
              {"client": "p", "manager": None, "steering": "no"}],
)  # fmt: skip
def test_what_is_damaged_is_left_out(lab: Lab, wrong: Any) -> None:
    sound = {"client": MAC, "manager": None, "steering": False}
    problems = lab.book.restore([wrong, sound])
    assert [problem.place for problem in problems] == ["services.preferences[0]"]
    assert lab.book.to_save() == [sound] and lab.book.restore("nonsense") == []


def test_preferences_are_bounded(lab: Lab) -> None:
    many = [{"client": f"c{i}", "manager": "hard", "steering": True} for i in range(MAX_PREFERENCES + 3)]
    assert len(lab.book.restore(many)) == 3
    with pytest.raises(TooBusyError):
        lab.book.prefer("p", {"manager": "hard"})
    assert lab.book.prefer("p", {"manager": None})["manager"] is None


def test_forgetting_a_client_is_an_operation_where_nobody_waits(lab: Lab) -> None:
    app = create_app(None, resources=[clients.blueprint(lab.book)])

    def ask(method: str, path: str, body: Any = None) -> Any:
        return app.test_client().open(f"/api/v1{path}", method=method, json=body, base_url="http://localhost")

    lab.comes()
    assert ask("PATCH", f"/clients/{MAC}", {"manager": "hard"}).status_code == 200
    answer = ask("DELETE", f"/clients/{MAC}?wait=false")
    assert answer.status_code == 202 and answer.json["what"] == f"forget client {MAC}"
    assert answer.headers["Location"].endswith(answer.json["id"])
    # Switches that are away may still have rules for the client.
    assert answer.json["pending"] == ["switch a", "switch b", "state file"]
    lab.controller.wait(0.1)
    operation = ask("GET", f"/operations/{answer.json['id']}").json
    assert operation["state"] == "pending" and operation["pending"] == ["switch a", "switch b"]
    lab.connect("a", "b")
    assert ask("GET", f"/operations/{answer.json['id']}").json["state"] == "confirmed"
    assert lab.book.to_save() == [] and ask("DELETE", f"/clients/{MAC}").status_code == 404
    assert ask("DELETE", "/clients/p").status_code == 409
    lab.comes()
    assert ask("DELETE", f"/clients/{MAC}").status_code == 204


def test_a_plain_client_is_where_it_was_after_a_restart(lab: Lab, tmp_path: Path) -> None:
    lab.service.hand_over("p", Place("b", "wifi"))
    assert lab.controller.state.places == {"p": Place("b", "wifi")}
    store = Store(str(tmp_path / "state.json"))
    places = saved_places(lab.controller.state.places)
    gone = {"client": "p", "node": "z", "technology": "wifi"}
    services = {"places": [gone, *places]}
    store.save(to_save(lab.context.network, [], Numbers(), {}, services))
    saved, problems = store.load(lab.context.network)
    assert not problems
    kept, problems = ready(saved, lab.context, SavedConnections(32))
    assert kept.places == {"p": Place("b", "wifi")} and [p.place for p in problems] == ["services.places[0]"]
    controller = Controller(lab.context)
    controller.state = initial(lab.context, places=kept.places)
    after = Lab(controller)
    assert after.book.document("p")["attachments"][0]["node"] == "b"
    # Back at the place of the file there is nothing to keep.
    after.service.hand_over("p", Place("a", "wifi"))
    assert saved_places(controller.state.places) == []
    assert ready(Saved(), lab.context, SavedConnections(32))[0].places == {}


def test_a_client_is_bound_to_a_place_and_stays_so_over_a_restart(lab: Lab) -> None:
    lab.comes()
    lab.connect("a", "b")
    here, there = {"node": "a", "technology": WIRED}, {"node": "b", "technology": WIRED}
    assert lab.book.prefer(MAC, {"bound_to": there})["bound_to"] == there
    assert lab.book.document(MAC)["attachments"][0]["node"] is None, "it is not where it was"
    assert not seen(lab.service.state, MAC, Place("a", WIRED), lab.now_s).allowed
    after = Lab()
    assert after.book.restore(lab.book.to_save()) == []
    assert after.service.state.bound == {MAC: Place("b", WIRED)}
    after.comes()
    assert MAC not in after.service.state.interfaces
    assert after.book.become([]) == [] and not after.service.state.bound
    assert lab.book.prefer(MAC, {"bound_to": None})["bound_to"] is None
    lab.comes()
    assert lab.book.prefer(MAC, {"bound_to": here})["attachments"][0]["node"] == "a"


@pytest.mark.parametrize(
    ("client", "to"), [(MAC, ("x", WIRED)), (MAC, ("a", "plc")), ("p", ("a", WIRED)), ("laptop", ("a", WIRED))]
)
def test_a_client_is_bound_to_places_where_it_can_be(lab: Lab, client: str, to: tuple[str, str]) -> None:
    lab.comes()
    with pytest.raises(ConfigError, match="bound_to"):
        lab.book.prefer(client, {"bound_to": {"node": to[0], "technology": to[1]}})
    assert not lab.service.state.bound and lab.book.to_save() == []


def test_the_network_file_binds_hosts() -> None:
    text = NETWORK + f"hosts:\n  '{MAC}': {{at: b}}\n  '02:aa:00:00:00:02': {{at: a, technology: wifi}}\n"
    network = load_text(text, "lab")
    assert network.hosts == {MAC: Place("b", WIRED), "02:aa:00:00:00:02": Place("a", "wifi")}
    assert parse(to_document(network), "lab").hosts == network.hosts
    context = TopologyContext.of(network)
    service = ClientService(
        context, AccessSettings(), Controller(context), lambda *_: None, lambda: 0.0, switch_grace_s=15.0
    )
    assert not seen(service.state, MAC, Place("a", WIRED), 0.0).allowed
    service.bind_to(MAC, Place("a", WIRED))
    service.bind_to(MAC, None)
    assert service.state.bound[MAC] == Place("b", WIRED)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("nonsense: {at: a}", "MAC address"),
        ("'01:00:00:00:00:01': {at: a}", "MAC address"),
        ("'02:aa:00:00:00:01': {}", "at"),
        ("'02:aa:00:00:00:01': {at: x}", "node"),
        ("'02:aa:00:00:00:01': {at: p}", "switch"),
        ("'02:aa:00:00:00:01': {at: a, technology: plc}", "technology"),
    ],
)
def test_wrong_bindings_are_named(entry: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        load_text(NETWORK + f"hosts:\n  {entry}\n", "lab")
    assert "hosts" in str(error.value)
