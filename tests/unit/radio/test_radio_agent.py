"""The agent's pure half: objects in order, the pass_persist protocol, its file and snmpd's."""

import io
import json
import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point.agent import PATIENCE_S, LiveObjects, OwnReadings
from hyroads.controller.access_point.config import parse
from hyroads.controller.access_point.mib import BASE, INTERFACE_ENTRY, NODE_NAME, SNAPSHOT_AGE, Tree, Value, objects
from hyroads.controller.access_point.model import Interface, Neighbour, RadioError, Reading, Snapshot
from hyroads.controller.access_point.snmpd import MAX_LINE_BYTES, parse_oid, serve, snmpd_conf
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.files.private import write_atomically

macs = st.binary(min_size=6, max_size=6).map(lambda b: b.hex(":"))
neighbours = st.builds(
    Neighbour, mac=macs, node=st.text(max_size=80), tx_capacity_kbps=st.integers(-5, 2**40),
    tx_loss=st.floats(-1, 2), signal_dbm=st.none() | st.integers(-300, 300), last_heard_ms=st.integers(0, 2**40),
)  # fmt: skip
interfaces = st.builds(
    Interface, index=st.integers(1, 2**31 - 1), name=st.text(max_size=20), technology=st.text(max_size=5),
    medium=st.text(max_size=5), busy_us=st.integers(0, 2**70), active_us=st.integers(0, 2**70),
    busy_share=st.floats(-1, 2), neighbours=st.lists(neighbours, max_size=4, unique_by=lambda n: n.mac).map(tuple),
)  # fmt: skip
snapshots = st.builds(
    Snapshot, node=st.text(max_size=80), boot=st.binary(min_size=8, max_size=8), clock_us=st.integers(0, 2**60),
    interfaces=st.lists(interfaces, max_size=3, unique_by=lambda i: i.index).map(tuple),
)  # fmt: skip


class Frozen:
    def __init__(self, snapshot):
        self.tree = Tree(snapshot)

    def get(self, oid):
        return self.tree.at(oid, self.tree.clock_us)

    def following(self, oid):
        return self.tree.following(oid)


def converse(objects, requests):
    answers = io.BytesIO()
    serve(io.BytesIO(requests), answers, objects)
    return answers.getvalue().split(b"\n")[:-1]


@given(snapshots)
def test_a_walk_finds_every_object_once_and_in_order(snapshot):
    served, oid, walked = Frozen(snapshot), BASE, []
    while True:
        answer = converse(served, b"getnext\n." + ".".join(map(str, oid)).encode() + b"\n")
        if answer == [b"NONE"]:
            break
        oid = parse_oid(answer[0])
        walked.append(oid)
        assert converse(served, b"get\n" + answer[0] + b"\n") == answer
    assert walked == sorted(walked)
    assert set(walked) == {oid for oid, _ in objects(snapshot)} | {SNAPSHOT_AGE}


@given(snapshots)
def test_values_are_in_the_ranges_of_the_module(snapshot):
    limits = {"gauge": (0, 2**32 - 1), "counter64": (0, 2**64 - 1), "integer": (-200, 127)}
    for oid, value in objects(snapshot):
        if value.kind == "octet":
            assert len(value.value) <= 64
        else:
            low, high = limits[value.kind]
            assert low <= value.value <= high
        if oid[len(BASE) : len(BASE) + 4] in {(1, 2, 1, 4), (1, 3, 1, 5)}:
            assert value.value <= 10_000


@given(neighbours)
def test_the_record_says_the_same_as_the_columns(neighbour):
    interface = Interface(1, "x", "", "", 0, 0, 0.0, (neighbour,))
    rows = {
        oid[len(BASE) + 3]: value
        for oid, value in objects(Snapshot("", b"", 0, (interface,)))
        if oid[len(BASE) + 1] == 3
    }
    packed = rows[9].value
    assert len(packed) == 16
    numbers = [int.from_bytes(packed[i : i + 4], "big") for i in (0, 4, 8)]
    numbers += [int.from_bytes(packed[12:14], "big"), int.from_bytes(packed[14:], "big", signed=True)]
    assert numbers == [rows[column].value for column in (3, 4, 7, 5, 6)]


def small():
    neighbour = Neighbour("02:00:01:01:00:02", "b", 12_345, 0, 0.25, None, 7, "x")
    return Snapshot(
        "a", b"12345678", 1_000, (Interface(3, "a-wifi", "wifi", "wifi", 5, 10, 0.5, (neighbour,), "sniffer"),)
    )


def test_protocol_by_hand():
    served = Frozen(small())
    name = ".".join(map(str, NODE_NAME)).encode()
    assert converse(served, b"PING\n") == [b"PONG"]
    assert converse(served, b"get\n." + name + b"\n") == [b"." + name, b"octet", b"61"]
    assert converse(served, b"getnext\n.1.3\n") == [b"." + name, b"octet", b"61"]
    assert converse(served, b"getnext\n.2\n") == [b"NONE"]
    assert converse(served, b"set\n." + name + b"\nstring x\nPING\n") == [b"not-writable", b"PONG"]
    capacity = b".".join([*(str(i).encode() for i in BASE), b"1.3.1.3.3.2.0.1.1.0.2"])
    assert converse(served, b"get\n." + capacity + b"\n")[1:] == [b"gauge", b"12345"]


@pytest.mark.parametrize(
    "line", [b"", b".", b"x", b"-1", b".1..3", b"1.3.99999999999", b"\xff\xfe", b"1 3", b".1" * 200]
)
def test_malformed_oids_get_none_and_the_next_request_is_answered(line):
    assert converse(Frozen(small()), b"get\n" + line + b"\nPING\n") == [b"NONE", b"PONG"]


def test_an_endless_line_is_skipped():
    request = b"get\n" + b".1" * (4 * MAX_LINE_BYTES) + b"\nPING\n"
    assert converse(Frozen(small()), request) == [b"NONE", b"PONG"]


@given(st.binary(max_size=300))
def test_any_input_is_survived_and_every_answer_is_whole(requests):
    for line in converse(Frozen(small()), requests):
        assert line


def config(**changes):
    document = {
        "node": "a",
        "community": "sesame-open",
        "users": [{"name": "hyroads", "auth_password": "authpass123", "priv_password": "privpass123"}],
        "interfaces": [{"name": "wlan0", "technology": "wifi", "backend": "linux-wifi"}],
        **changes,
    }
    return parse(json.dumps(document), "agent.json")


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"listen": ["localhost:161"]}, "listen.0"),
        ({"listen": []}, "listen"),
        ({"community": "two words"}, "community"),
        ({"community": "new\nline"}, "community"),
        ({"community": 'quo"te'}, "community"),
        ({"users": [{"name": "u", "auth_password": "short", "priv_password": "longenough"}]}, "users.0.auth_password"),
        ({"users": [{"name": "u x", "auth_password": "longenough", "priv_password": "longenough"}]}, "users.0.name"),
        ({"interfaces": [{"name": "wlan0", "backend": "magic"}]}, "interfaces.0.backend"),
        ({"interfaces": [{"name": "a-wifi", "backend": "emulated"}]}, "medium_socket"),
        ({"neighbours": {"02:00": "b"}}, "neighbours.02:00"),
        ({"errors": {"noise": -1}}, "errors.noise"),
        ({"errors": {"low_rate_bias": 2}}, "errors.low_rate_bias"),
        ({"surprise": 1}, "surprise"),
        ({"node": None}, "node"),
    ],
)
def test_a_bad_file_is_named_with_the_place_and_without_the_secret(changes, place):
    with pytest.raises(ConfigError) as caught:
        config(**changes)
    assert str(caught.value).startswith(f"agent.json: {place}: expected ")
    assert "short" not in str(caught.value) and "two words" not in str(caught.value)


@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_a_clear_error(text):
    with pytest.raises(ConfigError):
        parse(text, "agent.json")


def test_secrets_do_not_show():
    assert "sesame" not in repr(config()) and "authpass" not in repr(config())


def test_snmpd_listens_on_loopback_only_and_shows_only_what_is_polled():
    lines = snmpd_conf(config(), ["/usr/bin/python3", "-m", "x"], "agent.json").splitlines()
    assert "agentAddress udp:127.0.0.1:161" in lines
    assert "rocommunity sesame-open default -V hyroads" in lines
    assert "rouser -s usm hyroads authpriv -V hyroads" in lines
    assert not any(line.startswith(("rwuser", "rwcommunity", "exec", "extend")) for line in lines)
    assert lines[-1].startswith("pass_persist .1.3.6.1.4.1.8072.9999.9999.18514 /usr/bin/python3")


def test_snmpd_conf_refuses_what_it_could_not_say():
    with pytest.raises(ConfigError):
        snmpd_conf(config(community=None, users=[]), ["x"], "agent.json")
    with pytest.raises(ConfigError):
        snmpd_conf(config(), ["/path with blank/python"], "agent.json")


def test_the_file_is_private_from_the_start(tmp_path):
    path = tmp_path / "snmpd.conf"
    path.write_text("old")
    path.chmod(0o644)
    write_atomically(path, "new")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "new"


class Slow:
    """A radio that is read when it may be, and fails when it is told to."""

    def __init__(self):
        self.may = threading.Event()
        self.fails = False

    def read(self, now_s):
        assert self.may.wait(5)
        if self.fails:
            raise RadioError("gone")
        return Reading(10, 100, ())


def test_a_slow_radio_holds_up_one_request_only_and_one_that_fails_is_not_served(monkeypatch, capsys):
    patience, all_read = [], OwnReadings.all_read
    monkeypatch.setattr(OwnReadings, "all_read", lambda self, s: patience.append(s) or all_read(self, s))
    radio = Slow()
    interfaces = [{"name": "lo", "technology": "wifi", "backend": "plc"}]
    live = LiveObjects(parse(json.dumps({"node": "a", "interfaces": interfaces}), "f"), {"lo": radio})
    name = (*INTERFACE_ENTRY, 1, socket.if_nametoindex("lo"))
    until_s = time.monotonic() + 10

    def wait_for(value):
        while live.get(name) != value:
            assert time.monotonic() < until_s
            time.sleep(0.001)

    assert live.get(name) is None and live.get(NODE_NAME).value == b"a"
    assert patience == [PATIENCE_S, 0.0]
    radio.may.set()
    wait_for(Value("octet", b"lo"))
    assert live.following(BASE) == NODE_NAME
    radio.fails = True
    wait_for(None)
    assert "lo: gone" in capsys.readouterr().err
    radio.fails = False
    wait_for(Value("octet", b"lo"))
