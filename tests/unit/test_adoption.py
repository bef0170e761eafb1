"""Adoption at the controller: which boxes wait, are adopted, have left; what strangers may say; join codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.cli.main import main
from hyroads.controller.core.adoption import (
    CODE_LASTS_S,
    FORGET_LEFT_S,
    FORGET_PENDING_S,
    MOST_LEFT,
    MOST_OF_ADDRESS,
    Adoption,
    AdoptionError,
    Boxes,
    Codes,
    Refusal,
    State,
    check_clock,
    proof,
)
from hyroads.controller.core.adoption_saved import restored_boxes, saved_boxes
from hyroads.controller.core.box_application import Application, Interface, application_of, box_id, chosen_ports
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.secret_places import files_in

TRIANGLE = Path(__file__).resolve().parents[2] / "mininet" / "networks" / "triangle.yaml"
MOST = 12
INTERFACES = (
    Interface("eth0", "ethernet", 1500, "b8:27:eb:41:c0:a1", uplink=True, up=True),
    Interface("eth1", "ethernet", 1500, "b8:27:eb:41:c0:a2"),
    Interface("eth2", "ethernet", 1500, "b8:27:eb:41:c0:a3"),
    Interface("wlan0", "wifi", 2304, "b8:27:eb:41:c0:a4"),
)
WANTED = {"plc": "eth1", "wifi": "upstairs-wifi", "host": "upstairs-host"}


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def application(name: str = "box", key: str = "k", claim: str = "c") -> Application:
    tokens = {"agent": digest(f"agent {key}"), "radio": digest(f"radio {key}")}
    pem = "-----BEGIN CERTIFICATE REQUEST-----\nMIH=\n-----END CERTIFICATE REQUEST-----\n"
    return Application(name, digest(key), digest(claim), tokens, pem, "Debian GNU/Linux 12 (bookworm)", INTERFACES)


def adoption(node: str = "upstairs", now_s: float = 0.0) -> Adoption:
    return Adoption(node, {"plc": "eth1"}, "ops", now_s, "PEM")


def refusal(what: Callable[[], object]) -> Refusal:
    with pytest.raises(AdoptionError) as raised:
        what()
    assert "\n" not in str(raised.value)
    return raised.value.refusal


def test_a_box_is_pending_then_adopted_then_connected_then_has_left() -> None:
    boxes = Boxes().applied(application(), "192.0.2.7", 0.0)
    assert boxes.get("box").state is State.PENDING and boxes.tokens == {}
    boxes = boxes.adopted("box", adoption())
    assert boxes.get("box").node == "upstairs" and not boxes.get("box").connected
    assert boxes.tokens == {("agent", "upstairs"): digest("agent k"), ("radio", "upstairs"): digest("radio k")}
    boxes = boxes.confirmed("box")
    assert boxes.get("box").connected
    boxes = boxes.left("box", "c", "", 9.0)
    assert boxes.get("box").state is State.LEFT and boxes.tokens == {} and boxes.of_node("upstairs") is None
    assert boxes.left("box", "c", "", 10.0) is boxes


def test_a_box_that_joins_again_is_the_same_box_and_keeps_its_adoption() -> None:
    boxes = Boxes().applied(application(), "192.0.2.7", 0.0).applied(application(), "192.0.2.8", 5.0)
    assert len(boxes.by_id) == 1 and boxes.get("box").seen_s == 5.0 and boxes.get("box").first_s == 0.0
    adopted = boxes.adopted("box", adoption()).applied(application(), "192.0.2.7", 6.0)
    assert adopted.get("box").node == "upstairs"


def test_no_box_takes_the_name_of_another_or_has_two() -> None:
    boxes = Boxes().applied(application(), "192.0.2.7", 0.0)
    assert refusal(lambda: boxes.applied(application(key="other"), "192.0.2.8", 1.0)) is Refusal.TAKEN
    assert refusal(lambda: boxes.applied(application(claim="other"), "192.0.2.8", 1.0)) is Refusal.TAKEN
    assert refusal(lambda: boxes.applied(application("second name"), "192.0.2.7", 1.0)) is Refusal.TAKEN
    # The name is free again after the box has left.
    gone = boxes.left("box", "c", "no space", 2.0)
    assert gone.applied(application(key="other"), "192.0.2.8", 3.0).get("box").state is State.PENDING


def test_only_the_box_itself_polls_and_leaves() -> None:
    boxes = Boxes().applied(application(), "192.0.2.7", 0.0)
    for name, claim in (("box", "wrong"), ("box", ""), ("none", "c"), ("box", digest("c"))):
        assert refusal(lambda name=name, claim=claim: boxes.seen(name, claim, 1.0)) is Refusal.UNKNOWN
        assert refusal(lambda name=name, claim=claim: boxes.left(name, claim, "", 1.0)) is Refusal.UNKNOWN


def test_a_node_is_one_box_and_a_box_is_one_node() -> None:
    boxes = Boxes().applied(application(), "1", 0.0).applied(application("two", "k2"), "1", 0.0)
    boxes = boxes.adopted("box", adoption())
    assert refusal(lambda: boxes.adopted("two", adoption())) is Refusal.TAKEN
    assert refusal(lambda: boxes.adopted("box", adoption("attic"))) is Refusal.TAKEN
    assert refusal(lambda: boxes.adopted("none", adoption("attic"))) is Refusal.UNKNOWN
    assert boxes.forgotten("box").adopted("two", adoption()).get("two").node == "upstairs"


def test_pending_boxes_are_bounded_in_all_and_by_address() -> None:
    boxes = Boxes(most_pending=MOST)
    for number in range(MOST_OF_ADDRESS):
        boxes = boxes.applied(application(f"b{number}", f"k{number}"), "192.0.2.7", 0.0)
    assert refusal(lambda: boxes.applied(application(), "192.0.2.7", 0.0)) is Refusal.FULL
    for number in range(MOST_OF_ADDRESS, MOST):
        boxes = boxes.applied(application(f"b{number}", f"k{number}"), f"192.0.2.{number}", 0.0)
    assert refusal(lambda: boxes.applied(application(), "198.51.100.1", 0.0)) is Refusal.FULL
    # A join code makes room: codes are bounded by themselves.
    assert "box" in boxes.applied(application(), "192.0.2.7", 0.0, verified=True).by_id
    # The same box again needs no room, and room comes back when boxes are silent.
    boxes.applied(application("b0", "k0"), "192.0.2.7", 1.0)
    later = boxes.at(FORGET_PENDING_S + 1)
    assert not later.by_id and later.applied(application(), "192.0.2.7", 0.0)


def test_silent_boxes_are_forgotten_but_adopted_ones_never() -> None:
    boxes = Boxes().applied(application(), "1", 0.0).adopted("box", adoption())
    assert boxes.at(1e9) is boxes and boxes.at(-1e9) is boxes
    gone = boxes.left("box", "c", "why", 5.0)
    assert gone.at(5.0 + FORGET_LEFT_S).get("box").problem == "why" and not gone.at(6.0 + FORGET_LEFT_S).by_id


def test_boxes_that_have_left_are_bounded() -> None:
    boxes = Boxes()
    for number in range(MOST_LEFT + 5):
        name = f"b{number}"
        boxes = boxes.applied(application(name, name), "1", float(number)).left(name, "c", "", float(number))
    assert len(boxes.by_id) == MOST_LEFT and "b4" not in boxes.by_id and "b5" in boxes.by_id


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["apply", "seen", "adopt", "confirm", "leave", "forget", "wait"]),
        st.integers(0, 5),  # id
        st.integers(0, 5),  # key
        st.integers(0, 2),  # node, claim, address
        st.floats(0, 2 * FORGET_PENDING_S),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_boxes_and_operators_do_the_rules_hold(steps: list[tuple[str, int, int, int, float]]) -> None:
    boxes, now_s = Boxes(most_pending=3), 1000.0
    for verb, number, key, other, wait_s in steps:
        name, claim = f"b{number}", f"c{key}"
        before = boxes
        try:
            match verb:
                case "apply":
                    boxes = boxes.applied(application(name, f"k{key}", claim), f"10.0.0.{other}", now_s)
                case "seen":
                    boxes = boxes.seen(name, claim, now_s)
                case "adopt":
                    boxes = boxes.adopted(name, adoption(f"n{other}", now_s))
                case "confirm":
                    boxes = boxes.confirmed(name)
                case "leave":
                    boxes = boxes.left(name, claim, "", now_s)
                case "forget":
                    boxes = boxes.forgotten(name)
                case "wait":
                    now_s += wait_s
                    boxes = boxes.at(now_s)
        except AdoptionError:
            assert boxes is before
        nodes = [box.node for box in boxes if box.node is not None]
        assert len(set(nodes)) == len(nodes)
        present = [box for box in boxes if box.state is not State.LEFT]
        assert len({box.application.key for box in present}) == len(present)
        assert sum(box.state is State.PENDING for box in boxes) <= 3
        assert {node for _, node in boxes.tokens} == set(nodes)
        assert all(box.state is State.ADOPTED for box in boxes if box.connected)
        # A box changes its key or owner only through leaving or being forgotten.
        if verb not in ("forget", "wait"):
            for box in before:
                if box.state is State.ADOPTED and boxes.by_id[box.id].state is State.ADOPTED:
                    assert boxes.by_id[box.id].application == box.application
        restored, left_out = restored_boxes(json.loads(json.dumps(saved_boxes(boxes))), 3)
        assert restored == boxes and left_out == []


def good() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(application().document()))
    return found


def test_what_a_box_says_is_read_as_it_was_written() -> None:
    assert application_of(good(), "request") == application()
    assert box_id("B8:27:eb:41:c0:a1") == "b827eb-41c0a1"


WRONG: Mapping[str, object] = {
    "id": "../../etc",
    "key": "k",
    "claim": "0" * 63,
    "tokens": {"agent": "0" * 64},
    "request": "x" * 5000,
    "system": "\x1b[2J",
    "interfaces": [{"name": "eth0 up", "kind": "ethernet", "mtu": 1500, "address": "b8:27:eb:41:c0:a1"}],
}


@pytest.mark.parametrize("place", WRONG)
def test_hostile_applications_are_refused_by_place(place: str) -> None:
    for value in (WRONG[place], None, 7, [], {}, "\0", "", ["x"] * 40):
        if place == "interfaces" and value == []:
            continue
        with pytest.raises(ConfigError) as raised:
            application_of({**good(), place: value}, "request")
        assert raised.value.place.startswith(place), (place, value, str(raised.value))
    without = {key: value for key, value in good().items() if key != place}
    with pytest.raises(ConfigError, match="is missing"):
        application_of(without, "request")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(list(good())) | st.text(), inner),
    )
)
def test_any_document_is_read_or_refused(document: object) -> None:
    for one in (document, {**good(), "interfaces": document}, {**good(), "tokens": document}):
        try:
            application_of(one, "request")
        except ConfigError as error:
            assert error.document == "request"


def test_the_same_hash_twice_is_refused() -> None:
    one = digest("one")
    with pytest.raises(ConfigError, match="differ"):
        application_of({**good(), "tokens": {"agent": one, "radio": one}}, "request")


def test_interfaces_are_matched_by_name_then_by_kind() -> None:
    assert chosen_ports({}, WANTED, INTERFACES) == {"plc": "eth1", "wifi": "wlan0", "host": "eth2"}
    assert chosen_ports({"plc": "eth2", "host": "eth1"}, WANTED, INTERFACES)["plc"] == "eth2"
    # Two could be the access port: then there is none.
    more = (*INTERFACES, Interface("eth3", "ethernet", 1500, "b8:27:eb:41:c0:a5"))
    assert "host" not in chosen_ports({}, WANTED, more)


@pytest.mark.parametrize(
    ("given", "wanted", "place", "said"),
    [
        ({}, {"plc": "p", "wifi": "w", "host": "h"}, "plc", "which interface"),
        ({"moca": "eth1"}, WANTED, "moca", "plc, wifi, host"),
        ({"plc": "eth9"}, WANTED, "plc", "eth0, eth1"),
        ({"plc": "eth0"}, WANTED, "plc", "reaches the controller"),
        ({"plc": "wlan0", "wifi": "wlan0"}, WANTED, "plc", "no other port"),
    ],
)
def test_ports_that_do_not_fit_are_one_error(
    given: dict[str, str], wanted: dict[str, str], place: str, said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        chosen_ports(given, wanted, INTERFACES)
    assert raised.value.place == place and said in raised.value.problem


def test_a_clock_of_1970_is_one_clear_line() -> None:
    now_s = 1_790_000_000.0
    check_clock(now_s - 3600, now_s)
    for clock_s in (0.0, 100.0, -1e300, 1e300, now_s + 90_000):
        assert refusal(lambda clock_s=clock_s: check_clock(clock_s, now_s)) is Refusal.WRONG
    with pytest.raises(AdoptionError, match=r"box says 1970-01-01, that of the controller 2026-09-21: set it"):
        check_clock(0.0, now_s)


def test_a_join_code_is_good_for_one_box_and_an_hour() -> None:
    codes = Codes().with_code("ABCD-EFGH", 0.0)
    shown = proof("abcd efgh", "box", "pin", "key")
    after, answer = codes.used(shown, "pin", "key", 1.0)
    assert answer == proof("ABCDEFGH", "controller", "pin", "key") != shown
    assert after.used(shown, "pin", "key", 2.0)[1] == answer
    other = proof("ABCDEFGH", "box", "pin", "other")
    assert refusal(lambda: after.used(other, "pin", "other", 2.0)) is Refusal.WRONG
    assert refusal(lambda: codes.used(shown, "another pin", "key", 1.0)) is Refusal.WRONG
    assert refusal(lambda: codes.used(shown, "pin", "key", CODE_LASTS_S + 1)) is Refusal.WRONG
    for number in range(40):
        codes = codes.with_code(f"CODE{number}", 1.0)
    assert len(codes.live) == 16 and "CODE39" in codes.live


def test_the_settings_of_boxes_are_checked_as_for_a_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        assert main(["identity", "authority", "--folder", str(folder)]) == 0
        assert main(["identity", "server", "c", "--folder", str(folder)]) == 0
    tls = {"key": "mine/c.key", "certificate": "mine/c.pem"}
    settings = {"network": str(TRIANGLE), "rest_tls": tls, "tls": tls, "boxes": {"authority": "mine"}}
    path = tmp_path / "hyroads.json"

    def said(**more: object) -> str:
        path.write_text(json.dumps({**settings, **more}))
        path.chmod(0o600)
        capsys.readouterr()
        return "" if main(["controller", "--check", "--config", str(path)]) == 0 else capsys.readouterr().err

    assert said() == ""
    assert "boxes.authority: expected the authority that made the certificate of tls" in said(
        boxes={"authority": "other"}
    )
    assert "make an authority with" in said(boxes={"authority": "none"})
    assert "boxes: needs rest_tls" in said(rest_tls=None)
    for wrong in ({"authority": "mine", "bridge": "a b"}, {"authority": "mine", "controllers": ["a:1"]},
                  {"authority": "mine", "controllers": []}, {"authority": "mine", "most_pending": 0}, {},
                  {"authority": "mine", "announce": "192.0.2.1"}, {"authority": "mine", "announce": ["127.0.0.1"]},
                  {"authority": "mine", "announce": ["fd00::1"]}):  # fmt: skip
        assert "boxes." in said(boxes=wrong)
    named = {"authority": "mine", "announce": ["192.0.2.1"]}
    assert "boxes.announce: needs listen.rest beyond loopback" in said(boxes=named)
    beyond = {"listen": {"rest": {"host": "192.0.2.1"}}, "api_tokens": {"ops": {"token": "t" * 32}}}
    assert said(boxes=named, **beyond) == ""
    (mine / "ca.key").chmod(0o644)
    assert "0600" in said()
    assert [each.name for each in files_in({"boxes": {"authority": "mine"}})] == ["mine/ca.key"]


def test_the_examples_of_the_how_to_are_valid(tmp_path: Path) -> None:
    page = (TRIANGLE.parents[2] / "docs" / "how-to" / "access-point-debian.md").read_text()
    settings, network = re.findall(r"```yaml[^\n]*\n(.*?)```", page, re.DOTALL)
    folder = str(tmp_path / "authority")
    assert main(["identity", "authority", "--folder", folder]) == 0
    assert main(["identity", "server", "192.0.2.1", "--folder", folder]) == 0
    (tmp_path / "network.yaml").write_text(network)
    path = tmp_path / "hyroads.yaml"
    path.write_text(f"network: network.yaml\ncapacities: measured\n{settings}")
    path.chmod(0o600)
    assert main(["controller", "--check", "--config", str(path)]) == 0


def test_boxes_that_were_saved_wrongly_are_left_out_by_themselves() -> None:
    documents = saved_boxes(Boxes().applied(application(), "1", 0.0).applied(application("two", "k2"), "1", 0.0))
    for broken in ({**documents[0], "state": "x"}, {**documents[0], "state": "adopted"}, {}, None, 7):
        restored, left_out = restored_boxes([broken, documents[1]], 5)
        assert list(restored.by_id) == ["two"] and len(left_out) == 1
    assert restored_boxes("no list", 5) == (Boxes({}, 5), [])
    assert replace(Boxes(), most_pending=5) == Boxes({}, 5)
