"""The examples of plugins/examples on emulated networks with real packets."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from network_names import network_name

from hyroads.controller.core.netfile import parse
from hyroads.mininet.emulation import Emulation, EmulationOptions
from hyroads.mininet.runner import RunOptions, run_network

EXAMPLES = Path(__file__).resolve().parents[2] / "plugins" / "examples"
WITHIN_S = 20.0
HOME = {
    "nodes": {"a": {"role": "gateway"}, "tv": {"role": "client"}, "b": {"role": "ap"}},
    "links": [
        {"id": "wifi", "from": "a", "to": "tv", "technology": "wifi", "capacity_mbps": 20, "both": True},
        {"id": "plc", "from": "a", "to": "tv", "technology": "plc", "capacity_mbps": 12, "both": True},
        {"id": "eth", "from": "a", "to": "b", "technology": "eth", "capacity_mbps": 50, "both": True},
    ],
    "interference": {"rule": "technology"},
    "flows": [{"id": "video", "from": "a", "to": "tv"}],
}

Body = Callable[[Emulation], dict[str, Any]]


def until(what: Callable[[], Any], within_s: float = WITHIN_S) -> Any:
    over_s = time.monotonic() + within_s
    while not (value := what()) and time.monotonic() < over_s:
        time.sleep(0.05)
    return value


def run(folder: Path, name: str, body: Body, settings: dict[str, Any], **options: Any) -> dict[str, Any]:
    """What ``body`` finds out on an emulated network; it runs in a process of its own."""
    result = folder / "result.json"

    def work(emulation: Emulation) -> int:
        found = body(emulation)
        log = (emulation.directory / "controller.log").read_text()
        result.write_text(json.dumps({**found, "log": log}))
        return 0

    network = parse(HOME, "home")
    emulation = EmulationOptions(settings=settings, **options)
    said: list[str] = []
    status = run_network(network, name, work, RunOptions(publish=0, emulation=emulation), said.append)
    assert status == 0, said
    return json.loads(result.read_text())


def drops(emulation: Emulation) -> dict[str, int]:
    measured = emulation.rest.get("/measurements")["flows"][0]
    return {name: measured[name] for name in ("dropped", "too_big", "lost", "late", "duplicate", "timed_out")}


def start(emulation: Emulation, node: str, module: str, *arguments: str) -> subprocess.Popen[str]:
    command = [*emulation.inside(node), sys.executable, "-m", f"hyroads.plugins.examples.{module}", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def receive(emulation: Emulation, node: str, port: int, seconds: int) -> subprocess.Popen[str]:
    """A receiver of the video that is ready: what is sent before would count as lost."""
    receiver = start(emulation, node, "video", "receive", str(port), "--seconds", str(seconds))
    sockets = Path(f"/proc/{emulation.node(node).pid}/net/udp")
    assert until(lambda: f":{port:04X} " in sockets.read_text()), receiver.poll()
    return receiver


@pytest.mark.slow
def test_the_video_moves_before_its_link_is_too_slow(tmp_path):
    """The WiFi falls to less than the plugin wants, and to more than the video sends: nothing may be lost."""
    need = {"client": "tv", "flow": "video", "need_mbps": 8}
    plugin = {"name": "move-video", "path": str(EXAMPLES / "move_video.py"), "settings": need, "user": "nobody"}

    def body(emulation: Emulation) -> dict[str, Any]:
        def moves() -> list[Any]:
            known = emulation.rest.get("/handovers")["handovers"]
            return [one["to"]["technology"] for one in known if one["phase"] != "failed" and one["moved_after_s"]]

        first = until(moves)
        time.sleep(1.0)
        receiver = receive(emulation, "tv", 5004, 14)
        sender = start(emulation, "a", "video", "send", emulation.addressing.host_ip["tv"], "5004", "--seconds", "12")
        time.sleep(3.0)
        # It fades: what is on the air when a link loses most of its capacity at once is lost whoever decides.
        for mbps in (16.0, 12.5, 10.0, 8.2, 6.6):
            for link in ("wifi", "wifi~"):
                emulation.shared.set_link(link, capacity_mbps=mbps)
            time.sleep(0.4)
        began_s = time.monotonic()
        second = until(lambda: len(moves()) > 1 and moves())
        moved_s = time.monotonic() - began_s
        counted = [json.loads(one.communicate(timeout=30)[0]) for one in (sender, receiver)]
        plugin = emulation.rest.get("/plugins/move-video")
        return {
            "first": first,
            "second": second,
            "moved_s": moved_s,
            "counted": counted,
            "plugin": plugin,
            "drops": drops(emulation),
        }

    # A large frame waits for longer than the usual 60 ms on a slow link.
    found = run(tmp_path, network_name("move"), body, {"plugins": [plugin], "queue_ms": 200}, measured=True)
    assert found["first"] == ["wifi"] and found["second"] == ["wifi", "plc"], found["log"]
    sent, received = found["counted"]
    assert sent["sent"] > 2000 and received["highest"] == sent["sent"] - 1
    assert (received["lost"], received["doubled"], received["disordered"]) == (0, 0, 0), (received, found["drops"])
    assert found["plugin"]["faults"]["total"] == 0 and 1.0 < found["moved_s"] < 10.0


SEND = """
import sys
from pathlib import Path
from hyroads.mininet.isolation import enter_network_namespace
from hyroads.plugins.examples import video
send = video.send
def send_from_the_device(*arguments):
    # The controller is reached from here, the television from the device.
    enter_network_namespace(Path(sys.argv[1]))
    return send(*arguments)
video.send = send_from_the_device
sys.exit(video.main(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_a_video_by_two_paths_loses_next_to_nothing(tmp_path):
    """Each link loses 3 %: of packets that go by two of them 0.09 % should be missing."""

    def body(emulation: Emulation) -> dict[str, Any]:
        for link in ("wifi", "plc"):
            emulation.shared.set_link(link, loss=0.03)
        until(lambda: emulation.rest.flow("video")["state"] == "multipath")
        found = []
        # Copied three times: once in a while a stream loses more (docs/benchmarks.md, ncast), so the mean is judged.
        for more in ([], *[["--ncast", "video"]] * 3):
            receiver = receive(emulation, "tv", 5004, 10)
            where = [f"/proc/{emulation.node('a').pid}/ns/net", "send", emulation.addressing.host_ip["tv"], "5004"]
            command = [sys.executable, "-c", SEND, *where, "--seconds", "8", *more]
            sent = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            found.append([sent.stdout, sent.stderr, receiver.communicate(timeout=30)[0], drops(emulation)])
        return {"found": found, "ncasts": emulation.rest.get("/ncasts")["ncasts"]}

    found = run(tmp_path, network_name("ncast"), body, {"sfnet": {}, "queue_ms": 200})
    plain, *copies = (json.loads(received) for _sent, _error, received, _drops in found["found"])
    assert plain["highest"] > 2000 and plain["lost"] > 0.015 * plain["highest"], found
    assert len(copies) == 3 and all(copied["highest"] > 2000 for copied in copies), found
    assert sum(copied["lost"] for copied in copies) / 3 < 0.2 * plain["lost"], found
    assert all(copied["doubled"] == copied["disordered"] == 0 for copied in copies) and found["ncasts"] == [], found


TALK = """
import sys
from pathlib import Path
from hyroads.mininet.isolation import enter_network_namespace
from hyroads.plugins.examples import chat
class Talk(chat.Talk):
    # The controller is reached from here, the others of the room from the device.
    def __init__(self, *arguments):
        enter_network_namespace(Path(sys.argv[1]))
        super().__init__(*arguments)
chat.Talk = Talk
sys.exit(chat.main(sys.argv[2:]))
"""


class Chatter:
    def __init__(self, emulation: Emulation, node: str) -> None:
        address = emulation.addressing.host_ip[node]
        where = f"/proc/{emulation.node(node).pid}/ns/net"
        command = [sys.executable, "-c", TALK, where, "kitchen", "--name", node, "--address", address]
        self.out = emulation.directory / f"chat-{node}.txt"
        with self.out.open("w") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out, text=True)

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def heard(self) -> list[str]:
        return self.out.read_text().splitlines()

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


@pytest.mark.slow
def test_a_chat_needs_no_server_and_no_controller_once_it_goes(tmp_path):
    def body(emulation: Emulation) -> dict[str, Any]:
        def session() -> Any:
            known = emulation.rest.get("/sessions")["sessions"]
            return known[0] if known else {}

        chatters = {node: Chatter(emulation, node) for node in ("a", "tv", "b")}
        until(lambda: len(session().get("participants", ())) == 3 and session()["state"] == "active")
        time.sleep(0.5)
        for node, chatter in chatters.items():
            chatter.say(f"hello from {node}")
        until(lambda: all(len(chatter.heard()) == 2 for chatter in chatters.values()), 5.0)
        chatters["b"].leave()
        left = [participant["ip"] for participant in session()["participants"]]
        emulation.controller.kill()
        chatters["a"].say("is anybody there?")
        until(lambda: len(chatters["tv"].heard()) == 3, 5.0)
        time.sleep(0.5)
        heard = {node: chatter.heard() for node, chatter in chatters.items()}
        for chatter in chatters.values():
            chatter.process.kill()
        return {"heard": heard, "left": left, "b": emulation.addressing.host_ip["b"]}

    found = run(tmp_path, network_name("chat"), body, {"sfnet": {}})
    heard = {node: sorted(lines) for node, lines in found["heard"].items()}
    assert heard["a"] == ["b: hello from b", "tv: hello from tv"], found["heard"]
    assert heard["tv"] == ["a: hello from a", "a: is anybody there?", "b: hello from b"]
    assert heard["b"] == ["a: hello from a", "tv: hello from tv"]
    assert len(found["left"]) == 2 and found["b"] not in found["left"]


MANAGER = """
from hyroads.plugins.mobility.make_before_break import MakeBeforeBreak
MANAGER = MakeBeforeBreak("mine", copies=True)
"""


@pytest.mark.slow
def test_a_managers_plugin_and_a_policy_move_a_client(tmp_path):
    (tmp_path / "mine.py").write_text(MANAGER)
    plugin = {"name": "mine", "kind": "mobility", "path": str(tmp_path / "mine.py"), "user": "nobody"}

    def body(emulation: Emulation) -> dict[str, Any]:
        def moves() -> list[Any]:
            known = emulation.rest.get("/handovers")["handovers"]
            return [[one["to"]["technology"], one["manager"], one["phase"], one["reason"]] for one in known]

        until(lambda: emulation.rest.get("/plugins/mine")["state"] == "running")
        to = {"node": "a", "technology": "wifi"}
        by_hand = emulation.rest.request("POST", "/handovers", {"client": "tv", "to": to, "manager": "mine"}).document
        until(lambda: moves()[-1][2] == "done")
        calls = emulation.rest.get("/plugins/mine")
        # Who has just come stays for ten seconds, whatever the links do.
        for link in ("wifi", "wifi~"):
            emulation.shared.set_link(link, capacity_mbps=4.0)
        began_s = time.monotonic()
        until(lambda: len(moves()) > 1 and moves()[-1][2] == "done", 25.0)
        moved_s = time.monotonic() - began_s
        events = emulation.rest.get("/health")["last_errors"]
        return {"by_hand": by_hand, "moves": moves(), "moved_s": moved_s, "plugin": calls, "errors": events}

    settings = {"plugins": [plugin], "policies": ["signal"]}
    found = run(tmp_path, network_name("policy"), body, settings, measured=True)
    assert found["moves"] == [["wifi", "mine", "done", None], ["plc", "hoolock", "done", None]], found["log"]
    assert 5.0 < found["moved_s"] < 20.0
    assert found["plugin"]["faults"]["total"] == 0 and found["plugin"]["process"]["call_ms"]["p50"] < 50
