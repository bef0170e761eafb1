"""Foreign plugins in their real processes: what they do wrong is counted and harms nobody else."""

from __future__ import annotations

import os
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from plugin_rig import HASTY, PATIENT, Rig, eventually

from hyroads.controller.framework import ryu_shim as shim
from hyroads.plugins.host import Limits
from hyroads.plugins.kinds import Bounds
from hyroads.rest.contract import ConflictError, NotFoundError


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    if rig.service is not None:
        rig.service.stop()


APP = "class A(App):\n    name = '{name}'\n    every_s = 0.1\n    events = ('link',)\n"


def app(name: str, body: str) -> str:
    return APP.format(name=name) + textwrap.indent(textwrap.dedent(body), "    ") + "\nAPP = A()\n"


GOOD = app(
    "good",
    """
    def start(self, network):
        self.ticks = 0
    def tick(self, network):
        self.ticks += 1
        if self.ticks == 1:
            link = network.view().links["l"]
            flow = {"id": f"{link.technology}-{link.capacity_mbps}", "from": "a", "to": network.settings["to"]}
            network.declare_flow(flow)
    def on_event(self, network, event):
        network.declare_flow({"id": event.document["link"], "from": "a", "to": event.kind})
    """,
)


def test_an_app_sees_events_and_asks_for_flows_in_its_role(rig):
    """A request that takes longer than the deadline is the controller's time, not the plugin's."""
    service = rig.run([rig.found("good", GOOD, settings={"to": "b"}, bounds=HASTY)])
    eventually(lambda: rig.flows.declared)
    assert rig.flows.declared == [{"id": "wifi-12.5", "from": "a", "to": "b"}]
    rig.events.publish("switch.up", {"node": "a"})
    rig.events.publish("link.down", {"link": "l"})
    eventually(lambda: len(rig.flows.declared) > 1)
    assert rig.flows.declared[1] == {"id": "l", "from": "a", "to": "link.down"}
    told = service.document("good")
    assert told["state"] == "running" and told["faults"]["total"] == 0 and told["process"]["calls"] >= 3
    assert told["process"]["memory_mb"] < 100 and told["kind"] == "app" and told["role"] == "application"


def test_a_viewer_may_not_ask_for_flows(rig):
    service = rig.run([rig.found("good", GOOD, settings={"to": "b"}, role="viewer")])
    eventually(lambda: rig.faults("good"))
    kind, what = rig.faults("good")[0]
    assert kind == "raised" and "403" in what and "plugin good" in what and rig.flows.declared == []
    assert service.document("good")["state"] == "running"


WRONGS = {
    "raises": ("def tick(self, network): raise ValueError('so it is')", "raised", "tick: ValueError: so it is"),
    "exits": ("def tick(self, network): sys.exit(3)", "raised", "tick: SystemExit: 3"),
    "vanishes": ("def tick(self, network): os._exit(3)", "exited", "ended with status 3"),
    "kills": ("def tick(self, network): os.kill(os.getpid(), 9)", "exited", "killed by SIGKILL"),
    "forks": ("def tick(self, network): os.fork()", "raised", "tick: PermissionError"),
    "eats": ("def tick(self, network): self.all = bytearray(1 << 30)", "raised", "tick: MemoryError"),
    "loops": ("def tick(self, network):\n    while True: pass", "hung", "no answer within 1 s"),
    "sleeps": ("def tick(self, network): time.sleep(100)", "hung", "no answer within 1 s"),
    "garbles": ("def tick(self, network): os.write(int(sys.argv[1]), b'{}\\n')", "wrong answer", "wrote what is no"),
    "lists": ("def tick(self, network): os.write(int(sys.argv[1]), b'[1]\\n')", "wrong answer", "wrote what is no"),
    "exceeds": (
        "def tick(self, network): os.write(int(sys.argv[1]), b'{\"ask\": 1e999, \"do\": \"view\", \"with\": {}}\\n')",
        "wrong answer", "wrote what is no",
    ),
    "halves": (
        "def tick(self, network): os.write(int(sys.argv[1]), b'{\"ask\": 1, \"do\": \"\\\\ud800\", \"with\": {}}\\n')",
        "wrong answer", "wrote what is no",
    ),
    "floods": (
        "def tick(self, network): os.write(int(sys.argv[1]), b'x' * 500000)", "wrong answer", "wrote what is no",
    ),
    "asks": ("def tick(self, network): network.request('GET', '/events')", "raised", "tick: RequestError: 400"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", sorted(WRONGS))
def test_what_a_plugin_does_wrong_is_counted_and_disables_it(rig, wrong):
    body, kind, what = WRONGS[wrong]
    bounds = HASTY if kind == "hung" else PATIENT
    service = rig.run([rig.found(wrong, app(wrong, body), bounds=bounds), rig.found("good2", app("good2", "pass"))])
    eventually(lambda: service.document(wrong)["state"] == "disabled")
    faults = rig.faults(wrong)
    assert {fault[0] for fault in faults} == {kind}
    # On a busy machine it may be the call before the one that hangs that has no answer in time.
    assert all(text.startswith(what) or (kind == "hung" and text.endswith(what)) for _, text in faults)
    assert len(faults) == (1 if kind == "hung" else 3)
    told = service.document(wrong)
    assert told["process"] is None
    # Since its last fault, however long ago that is by now.
    assert told["enabled_in_s"] + told["faults"]["last"]["age_s"] == pytest.approx(60, abs=1)
    assert told["faults"]["total"] == len(faults) and told["faults"]["last"]["kind"] == faults[0][0]
    eventually(lambda: service.document("good2")["state"] == "running")
    assert rig.faults("good2") == []


def test_nothing_of_a_killed_plugin_is_left(rig):
    code = app("loops", "def on_event(self, network, event):\n    while True: pass")
    service = rig.run([rig.found("loops", code, bounds=HASTY)])
    pid = eventually(
        lambda: service.document("loops")["state"] == "running" and service.document("loops")["process"]["pid"]
    )
    rig.events.publish("link.down", {"link": "l"})
    eventually(lambda: rig.faults("loops"))
    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_a_disabled_plugin_starts_again_by_itself_and_rests_longer_each_time(rig):
    limits = Limits(first_rest_s=0.5, rest_factor=100.0)
    service = rig.start(limits, vanishes=app("vanishes", "def start(self, network): os._exit(1)"))
    eventually(lambda: service.document("vanishes")["faults"]["times_disabled"] == 2)
    told = service.document("vanishes")
    assert told["faults"]["total"] == 6 and 40 < told["enabled_in_s"] <= 50


def test_by_hand(rig):
    service = rig.start(
        Limits(first_rest_s=1000), turns=app("turns", "def start(self, network): network.request('GET', '/flows')")
    )
    eventually(lambda: service.document("turns")["state"] == "running")
    assert service.disable("turns")["state"] == "off"
    shim.sleep(0.2)
    assert service.document("turns")["process"] is None and rig.faults("turns") == []
    assert service.enable("turns")["state"] == "running"
    with pytest.raises(NotFoundError):
        service.enable("nothing")
    with pytest.raises(ConflictError):
        service.disable("hard")
    names = [one["name"] for one in service.documents()]
    assert names == ["turns", "bicast", "hard", "hoolock", "vertical", "vertical-bicast", "load", "placement", "signal"]


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("APP = 1", "APP lacks"),
        ("nothing = 1", "has no APP"),
        ("import nowhere_at_all", "ModuleNotFoundError"),
        ("1 +", "SyntaxError"),
        (app("other", "pass"), "calls itself 'other'"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_says_why(rig, code, what):
    rig.start(bad=code)
    assert what in eventually(lambda: rig.faults("bad"))[0][1]


def test_what_it_prints_goes_to_the_log_some_lines_a_second(rig, caplog):
    caplog.set_level("INFO")
    code = app("talks", "def start(self, network):\n    for i in range(3000): print('line', i, flush=True)")
    service = rig.start(talks=code)
    eventually(lambda: service.document("talks")["state"] == "running")
    lines = eventually(lambda: [record for record in caplog.records if record.name == "hyroads.plugin.talks"])
    assert lines[0].getMessage() == "line 0" and len(lines) < 200


def test_a_plugin_that_asks_without_end_is_slowed_down(rig):
    code = app("asks", "def tick(self, network):\n    while True: network.request('GET', '/flows')")
    service = rig.start(asks=code)
    eventually(lambda: service.document("asks")["state"] == "running")
    asked = []
    answer = rig.service.requests.ask
    rig.service.requests.ask = lambda *given: (asked.append(1), answer(*given))[1]
    shim.sleep(4.0)
    assert 100 < len(asked) < 400


def test_what_an_app_wants_must_make_sense(rig):
    """Its process may say anything, whatever ours would have said in it."""
    rig.start(odd=app("odd", "pass") + "sys.modules['__main__']._wishes = lambda plugin: {'events': [1]}\n")
    assert "every_s" in eventually(lambda: rig.faults("odd"))[0][1]


def test_a_defect_of_ours_is_not_blamed_on_the_plugin(rig):
    told = []
    found = rig.found("sees", app("sees", "def tick(self, network): network.view()"))
    service = rig.run([found])
    service.defect = lambda where, error: told.append((where, str(error)))
    service.view = lambda: 1 / 0
    kind, what = eventually(lambda: rig.faults("sees"))[0]
    assert kind == "raised" and "500" in what and told[0] == ("a request of plugin sees", "division by zero")


def test_environment_holds_no_secrets(rig, monkeypatch):
    monkeypatch.setenv("HYROADS_SECRET", "x")
    rig.start(looks=app("looks", "def start(self, network): assert not [n for n in os.environ if 'HYROADS' in n]"))
    eventually(lambda: rig.service.document("looks")["state"] == "running")
    shim.sleep(0.3)
    assert rig.faults("looks") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_plugin_can_be_somebody_else(rig):
    with tempfile.TemporaryDirectory() as name:
        rig.folder = Path(name)
        rig.folder.chmod(0o755)
        body = "def start(self, network):\n    print(os.getuid(), os.getgroups())\n    assert os.getuid() != 0"
        looks = app("looks", body + "\n    assert network.request('GET', '/flows')['flows'] == []")
        found = [rig.found("looks", looks, bounds=Bounds(user="nobody")), rig.found("other", app("other", "pass"))]
        nobody = [replace(found[1], bounds=Bounds(user="no-such-user"))]
        service = rig.run([found[0], *nobody])
        eventually(lambda: service.document("looks")["state"] == "running")
        eventually(lambda: service.document("looks")["process"]["calls"] >= 2)
        assert rig.faults("looks") == []
        assert "no-such-user" in eventually(lambda: rig.faults("other"))[0][1]
