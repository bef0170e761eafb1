"""Policies of clients: what a file says, every error with its place, and what the program is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.cli.main import main
from hyroads.controller.client.flow_match import Match
from hyroads.controller.client.modes import ModeError, Modes, WaypointSession, configuration, flow_name
from hyroads.controller.client.policy import MODES, Policy, load_text, parse
from hyroads.controller.core.errors import ConfigError

SPEC = """
interfaces: {wlan0: {rate_mbps: auto}, wwan0: {metered: true, cap_gib_month: 20}}
mode: full-speed
waypoint: 192.0.2.1            # or null
flows:
  - {name: voice, match: {udp_dst: 5060}, weight: 4, urgent: true, mode: high-robustness}
  - {name: video, match: {tcp_dst: 443}, interfaces: [wlan0]}
  - {name: rest, spread: flow}      # or packet: needs a peer or waypoint
"""
APPLICATION = ("flows[0].match.application", "the name of an application such as firefox")
TWO = {"wlan0": {}, "wwan0": {"metered": True}}
SESSION = WaypointSession("192.0.2.1", 6656, 7, "00" * 16, "100.72.0.7", None)


def policy(**more: Any) -> Policy:
    return parse({"interfaces": TWO, **more}, "client.yaml")


def errors(document: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(document, "client.yaml")
    return [str(each) for each in (caught.value, *caught.value.more)]


def rule(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in document["rules"] if each["name"] == name)


def test_the_published_example_is_read() -> None:
    read = load_text(SPEC, "/etc/hyroads/client.yaml")
    assert list(read.interfaces) == ["wlan0", "wwan0"]
    assert read.interfaces["wwan0"].cap_gib_month == 20
    assert read.waypoint is not None
    assert (read.waypoint.address, read.waypoint.port) == ("192.0.2.1", 6656)
    assert read.waypoint.ca_file == "/etc/hyroads/waypoint-ca.pem"
    voice, video, rest = read.flows
    assert (voice.weight, voice.urgent, voice.mode) == (4, True, "high-robustness")
    assert voice.match == Match(protocol="udp", destination_ports=((5060, 5060),))
    assert video.interfaces == ("wlan0",)
    assert rest.match == Match()


def test_a_last_flow_without_a_match_is_implied() -> None:
    read = policy(flows=[{"name": "rest", "match": {"tcp_dst": 80}}])
    assert [flow.name for flow in read.flows] == ["rest", "rest-2"]
    assert read.flows[-1].match == Match()
    assert [flow.name for flow in policy().flows] == ["rest"]


def test_ports_are_numbers_ranges_and_lists() -> None:
    read = policy(flows=[{"name": "a", "match": {"udp_dst": [53, "5000-5010", 53], "udp_src": "1-2"}}])
    assert read.flows[0].match.destination_ports == ((53, 53), (5000, 5010))
    rules = configuration(read, Modes())["rules"]
    assert [each["name"] for each in rules] == ["a", "a#2", "rest"]
    assert [each["match"]["destination_port"] for each in rules] == [[53, 53], [5000, 5010], None]
    assert {flow_name(each["name"]) for each in rules} == {"a", "rest"}


@pytest.mark.parametrize(
    ("document", "place", "expected"),
    [
        ({}, "interfaces", "is missing"),
        ({"interfaces": {}}, "interfaces", "1 to 16 interfaces"),
        ({"interfaces": {"hr0": {}}}, "interfaces.hr0", "host's own"),
        ({"interfaces": {"a/b": {}}}, "interfaces.'a/b'", "interface's name"),
        ({"interfaces": {"e\n0": {}}}, "interfaces.'e\\n0'", "control characters"),
        ({"interfaces": {"wlan0": {"cap_gib_month": 1}}}, "interfaces.wlan0.cap_gib_month", "metered"),
        ({"interfaces": {"wlan0": {"rate_mbps": 0}}}, "interfaces.wlan0.rate_mbps", "above 0"),
        ({"interfaces": {"wlan0": {"speed": 1}}}, "interfaces.wlan0.speed", "unknown key"),
        ({"interfaces": {"wlan0": {"dns": ["x"]}}}, "interfaces.wlan0.dns[0]", "DNS server"),
        ({"interfaces": TWO, "mode": "full-sped"}, "mode", "did you mean 'full-speed'"),
        ({"interfaces": TWO, "mode": "high-robustness"}, "mode", "needs a waypoint"),
        ({"interfaces": TWO, "waypoint": "nowhere"}, "waypoint", "IP address"),
        ({"interfaces": TWO, "waypoint": {"address": "192.0.2.1", "fingerprint": "00"}}, "waypoint.fingerprint", "64"),
        ({"interfaces": TWO, "plane": "moon"}, "plane", "agent, kernel or mptcp"),
        ({"interfaces": TWO, "address4": "127.0.0.1"}, "address4", "IPv4 address for hr0"),
        ({"interfaces": TWO, "flows": [{"match": {}}]}, "flows[0].name", "is missing"),
        ({"interfaces": TWO, "flows": [{"name": "a"}, {"name": "b"}]}, "flows[0]", "the last one"),
        ({"interfaces": TWO, "flows": [{"name": "a", "interfaces": []}]}, "flows[0].interfaces", "at least one"),
        ({"interfaces": TWO, "flows": [{"name": "a", "interfaces": ["wlan1"]}]}, "flows[0].interfaces[0]", "'wlan0'"),
        ({"interfaces": TWO, "flows": [{"name": "a", "spread": "packet"}]}, "flows[0].spread", "needs a waypoint"),
        ({"interfaces": TWO, "flows": [{"name": "a", "via": "waypoint"}]}, "flows[0].via", "needs a waypoint"),
        ({"interfaces": TWO, "flows": [{"name": "a#2"}]}, "flows[0].name", "letters"),
        ({"interfaces": TWO, "flows": [{"name": "a", "match": {"tcp_dst": 65536}}]}, "flows[0].match.tcp_dst", "65535"),
        ({"interfaces": TWO, "flows": [{"name": "a", "match": {"tcp_dst": "9-5"}}]}, "flows[0].match.tcp_dst", "range"),
        ({"interfaces": TWO, "flows": [{"name": "a", "match": {"tcp_dst": []}}]}, "flows[0].match.tcp_dst", "1 to 32"),
        ({"interfaces": TWO, "flows": [{"name": "a", "match": {"tcp_dst": 1, "udp_dst": 1}}]}, "flows[0].match", "one"),
        (
            {"interfaces": TWO, "flows": [{"name": "a", "match": {"dst": "10.0.0.1/8"}}]},
            "flows[0].match.dst",
            "network",
        ),
        ({"interfaces": TWO, "flows": [{"name": "a", "match": {"dscp": 64}}]}, "flows[0].match.dscp", "63"),
        *(
            ({"interfaces": TWO, "flows": [{"name": "a", "match": {"application": name}}]}, *APPLICATION)
            for name in ("", 7, "a b", "a/b", "/", "/a/", "/a//b", "/a/../b", "/a\nb", "x" * 256, ["firefox"])
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(document: Any, place: str, expected: str) -> None:
    found = errors(document)
    assert len(found) == 1, found
    assert found[0].startswith(f"client.yaml: {place}: ")
    assert expected in found[0]


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), "4", True, None])
def test_weights_are_above_zero_and_finite(weight: Any) -> None:
    assert (
        "flows[0].weight: expected a weight above 0"
        in errors({"interfaces": TWO, "flows": [{"name": "a", "weight": weight}]})[0]
    )


def test_all_errors_are_told_at_once() -> None:
    flows = [{"name": "a", "match": {"icmp": True}, "weight": 0}, {"name": "a", "colour": "red"}]
    found = errors({"interfaces": {"wlan0": {"metered": 1}}, "mode": "fast", "flows": flows})
    assert len(found) == 5
    assert any("flows[1].name: expected a name that no other flow has" in each for each in found)


def test_a_flow_that_goes_direct_can_have_no_copies() -> None:
    flow = {"name": "a", "via": "direct", "mode": "high-robustness"}
    found = errors({"interfaces": TWO, "waypoint": "192.0.2.1", "flows": [flow]})
    assert "flows[0].mode: high-robustness needs via: waypoint" in found[0]


def test_mptcp_is_managed_beside_a_plane_or_alone() -> None:
    assert not parse({"interfaces": TWO}, "client.yaml").mptcp
    assert parse({"interfaces": TWO, "mptcp": True}, "client.yaml").mptcp
    alone = {"interfaces": TWO, "plane": "mptcp"}
    assert parse(alone, "client.yaml").mptcp
    assert errors({**alone, "mptcp": False}) == ["client.yaml: mptcp: plane: mptcp does nothing else"]
    assert "client.yaml: mptcp: expected true or false, got 'yes'" in errors({"interfaces": TWO, "mptcp": "yes"})
    waypoint = errors({**alone, "waypoint": "192.0.2.1"})
    assert waypoint == ["client.yaml: waypoint: needs plane: agent or kernel, which have hr0"]
    with pytest.raises(ModeError, match="needs a waypoint"):
        Modes().with_choice(parse(alone, "client.yaml"), "high-robustness", None)


def test_the_kernel_s_plane_makes_no_copies_and_spreads_nothing() -> None:
    document = {
        "plane": "kernel",
        "interfaces": TWO,
        "waypoint": "192.0.2.1",
        "mode": "high-robustness",
        "flows": [
            {"name": "a", "match": {"tcp_dst": 1}, "spread": "packet"},
            {"name": "b", "match": {"tcp_dst": 2}, "mode": "high-robustness"},
            {"name": "c", "match": {"application": "firefox"}},
        ],
    }
    assert errors(document) == [
        "client.yaml: mode: high-robustness needs plane: agent, which makes copies",
        "client.yaml: flows[0].spread: expected flow: the kernel keeps a flow on one interface",
        "client.yaml: flows[1].mode: high-robustness needs plane: agent, which makes copies",
        "client.yaml: flows[2].match.application: needs plane: agent, which knows the flows' sockets",
    ]
    assert parse({**document, "plane": "agent"}, "client.yaml").plane == "agent"
    plain = parse({"plane": "kernel", "interfaces": TWO, "waypoint": "192.0.2.1"}, "client.yaml")
    with pytest.raises(ModeError, match="plane: high-robustness needs plane: agent"):
        Modes().with_choice(plain, "high-robustness", None)
    ports = [{"name": f"f{k}", "match": {"tcp_dst": list(range(1, 60, 2))}} for k in range(9)]
    told = errors({"plane": "kernel", "interfaces": TWO, "flows": ports})
    assert told == ["client.yaml: flows: expected at most 249 pairs of source and destination ports, got 270"]


def test_metered_interfaces_are_a_backup_where_cost_counts() -> None:
    saving = configuration(policy(mode="cost-efficient", flows=[{"name": "sms", "interfaces": ["wwan0"],
                                                                 "match": {"udp_dst": 9}}]), Modes())  # fmt: skip
    assert (rule(saving, "rest")["interfaces"], rule(saving, "rest")["backup"]) == (["wlan0"], ["wwan0"])
    # It accepts nothing else.
    assert (rule(saving, "sms")["interfaces"], rule(saving, "sms")["backup"]) == (["wwan0"], [])
    alone = configuration(policy(mode="cost-efficient"), Modes())
    assert [each["backup"] for each in alone["interfaces"]] == [False, True]
    assert rule(configuration(policy(), Modes()), "rest")["interfaces"] == ["wlan0", "wwan0"]


def test_copies_need_the_waypoint_s_session() -> None:
    robust = policy(mode="high-robustness", waypoint="192.0.2.1", flows=[{"name": "a", "via": "direct",
                                                                          "match": {"icmp": True}}])  # fmt: skip
    with_session = configuration(robust, Modes(), session=SESSION)
    assert rule(with_session, "rest")["copies"] is True
    assert (rule(with_session, "a")["copies"], rule(with_session, "a")["via"]) == (False, "direct")
    assert with_session["address4"] == "100.72.0.7"
    assert with_session["waypoint"] == {"address": "192.0.2.1", "port": 6656, "session": 7, "key": "00" * 16}
    without = configuration(robust, Modes())
    assert (rule(without, "rest")["copies"], rule(without, "rest")["via"]) == (False, "direct")
    assert without["waypoint"] is None


def test_a_used_up_cap_is_kept_even_without_another_interface() -> None:
    only = parse({"interfaces": {"wwan0": {"metered": True, "cap_gib_month": 1}}}, "client.yaml")
    assert [each["usable"] for each in configuration(only, Modes(), {"wwan0"})["interfaces"]] == [False]


def test_modes_are_chosen_for_the_client_or_for_a_flow() -> None:
    given_policy = policy(waypoint="192.0.2.1", flows=[{"name": "a", "match": {"icmp": True}, "mode": "full-speed"}])
    chosen = Modes().with_choice(given_policy, "cost-efficient", None)
    rules = configuration(given_policy, chosen)
    assert rule(rules, "rest")["backup"] == ["wwan0"]
    assert rule(rules, "a")["backup"] == [], "a flow's own mode counts more"
    both = chosen.with_choice(given_policy, "cost-efficient", "a")
    assert rule(configuration(given_policy, both), "a")["backup"] == ["wwan0"]
    with pytest.raises(ModeError, match="unknown mode 'fast'"):
        chosen.with_choice(given_policy, "fast", None)
    with pytest.raises(ModeError, match="unknown flow 'b'"):
        chosen.with_choice(given_policy, "full-speed", "b")
    with pytest.raises(ModeError, match="needs a waypoint"):
        Modes().with_choice(policy(), "high-robustness", None)


NAMES = st.sampled_from(["wlan0", "wwan0", "eth0", "plc0"])


@given(
    st.dictionaries(NAMES, st.booleans(), min_size=1),
    st.lists(st.tuples(st.sets(NAMES), st.sampled_from([None, *MODES])), max_size=6),
    st.sampled_from(MODES),
    st.booleans(),
    st.sets(NAMES),
)
def test_no_flow_ever_leaves_its_interfaces(
    interfaces: dict[str, bool],
    flows: list[tuple[set[str], str | None]],
    mode: str,
    connected: bool,
    used_up: set[str],
) -> None:
    """Whatever modes, caps and session are: a rule's interfaces are those of its flow, each once and at least one."""
    entries = [
        {"name": f"f{number}", "match": {"tcp_dst": number}, "interfaces": sorted(names & interfaces.keys())}
        | ({} if own is None else {"mode": own})
        for number, (names, own) in enumerate(flows)
        if names & interfaces.keys()
    ]
    given_policy = parse(
        {
            "interfaces": {name: {"metered": metered} for name, metered in interfaces.items()},
            "waypoint": "192.0.2.1",
            "mode": mode,
            "flows": entries,
        },
        "client.yaml",
    )
    document = configuration(given_policy, Modes(), used_up, SESSION if connected else None)
    assert len(document["rules"]) == len(entries) + 1
    for flow, each in zip(given_policy.flows, document["rules"], strict=True):
        assert each["interfaces"]
        assert sorted(each["interfaces"] + each["backup"]) == sorted(flow.interfaces)
        assert all(interfaces[name] for name in each["backup"]), "only metered ones are a backup"
    assert {each["name"] for each in document["interfaces"] if not each["usable"]} == used_up & interfaces.keys()


KEYS = ["interfaces", "mode", "waypoint", "flows", "name", "match", "tcp_dst", "dst", "weight", "via", "spread"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from([*KEYS, "address", "wlan0", "metered", "dns"]), inner, max_size=5)
    ),
    max_leaves=30,
)


@given(JSON)
def test_any_document_is_read_or_refused(document: Any) -> None:
    try:
        parse(document, "client.yaml")
    except ConfigError as error:
        assert str(error).startswith("client.yaml: ")


def test_check_lists_every_error_and_says_what_a_good_file_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.yaml"
    file.write_text(SPEC)
    assert main(["client", "check", str(file)]) == 0
    assert "interfaces wlan0, wwan0, 3 flows, waypoint 192.0.2.1 port 6656" in capsys.readouterr().out
    file.write_text("interfaces: {a: {}}\nflows: [{name: x, weight: .nan}, {name: x}]\n")
    assert main(["client", "check", str(file)]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert len(said.err.splitlines()) == 3
    assert main(["client", "check", str(tmp_path / "none.yaml")]) == 2
    assert "can't be read" in capsys.readouterr().err


def test_a_client_imports_nothing_large(tmp_path: Path) -> None:
    (tmp_path / "client.yaml").write_text(SPEC)
    large = ("ryu", "eventlet", "flask", "numpy", "scipy", "pysnmp", "requests", "rich")
    code = (
        "import sys; from hyroads.controller.cli.main import main;"
        f"assert main(['client', 'check', {str(tmp_path / 'client.yaml')!r}]) == 0;"
        "small = 'asyncio' not in sys.modules;"
        "import hyroads.controller.client.daemon, hyroads.controller.client.waypoint;"
        f"print(small, [name for name in {large} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True []"


@pytest.mark.parametrize("name", ["firefox", "org.mozilla.firefox", "user@1000.service", "/system.slice/a b.service"])
def test_an_application_goes_to_the_program_as_it_is_written(name: str) -> None:
    flows = [{"name": "a", "match": {"application": name, "tcp_dst": [80, 443]}}]
    rules = configuration(parse({"interfaces": TWO, "flows": flows}, "client.yaml"), Modes())["rules"]
    assert [rule["match"].get("application") for rule in rules] == [name, name, None]


def test_flows_that_want_the_waypoint_are_blocked_without_it_where_the_policy_says_so() -> None:
    flows = [{"name": "sms", "via": "direct", "match": {"udp_dst": 5}}, {"name": "rest"}]
    for on_loss, ways in (("direct", ("direct", None)), ("block", ("waypoint", "block"))):
        read = policy(waypoint={"address": "192.0.2.1", "on_loss": on_loss}, flows=flows)
        for session, wanted in ((None, ways), (SESSION, ("waypoint", ways[1]))):
            rules = {one["name"]: one for one in configuration(read, Modes(), session=session)["rules"]}
            assert (rules["rest"]["via"], rules["rest"].get("on_loss")) == wanted
            assert (rules["sms"]["via"], rules["sms"].get("on_loss")) == ("direct", None)
    with pytest.raises(ConfigError, match="on_loss"):
        policy(waypoint={"address": "192.0.2.1", "on_loss": "drop"})
    with pytest.raises(ConfigError, match="on_loss: block needs plane: agent"):
        policy(waypoint={"address": "192.0.2.1", "on_loss": "block"}, plane="kernel")
