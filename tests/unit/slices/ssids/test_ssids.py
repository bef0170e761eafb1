"""From slices and access points to networks, ports and one SET for each access point."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snmp_agent import Agent

from hyroads.controller.access_point import wireless_mib
from hyroads.controller.core.errors import ConfigError
from hyroads.slices.core.slicefile import parse, parse_slice, slice_document
from hyroads.slices.snmpvisor import pdu, requests
from hyroads.slices.snmpvisor.pdu import Binding, Kind, Pdu, SnmpError
from hyroads.slices.ssids import desired, rows
from hyroads.slices.ssids.desired import RULE, AccessPoint, SsidError, bss_name, wanted, with_ports
from hyroads.slices.ssids.rows import Row, change, reconcile, rows_of

POINTS = (AccessPoint("ap1", 1, {"wlan0": 2, "wlan1": 4}), AccessPoint("ap2", 2, {"wlan0": 2}))
STAFF = {"name": "staff", "ssids": [{"name": "staff", "security": "wpa3-enterprise", "radius": "campus"}]}
LAB = {"name": "lab", "ssids": [{"name": "lab", "security": "wpa2", "passphrase_file": "lab.key"}]}
GUESTS = {"name": "guests", "ssids": [{"name": "Gäste"}], "flowspace": [{"switches": [2], "match": {"vlan_vid": 7}}]}


def model(*slices):
    return parse({"slices": list(slices)}, "slices.yaml")


def test_a_network_is_on_every_radio_of_the_slices_access_points():
    found = wanted(model(LAB, GUESTS), POINTS)
    assert [bss.name for bss in found["ap1"]] == ["wlan0-lab", "wlan1-lab"]
    lab, guests = sorted(found["ap2"], key=lambda bss: bss.slice_name, reverse=True)
    assert (lab.name, lab.ssid, lab.security, lab.passphrase_file) == ("wlan0-lab", "lab", "wpa2", "lab.key")
    assert (guests.ssid, guests.security) == ("Gäste", "open") and guests.name.startswith("wlan0-gues")


def test_production_may_have_networks_everywhere():
    found = wanted(model({"name": "production", "ssids": [{"name": "office"}]}), POINTS)
    assert all(bsss for bsss in found.values())


texts = st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=8)
slice_names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}", fullmatch=True)


@given(st.sampled_from(["wlan0", "wl", "wlp170s0f3"]), slice_names, texts)
def test_names_are_short_stable_and_an_interfaces(radio, slice_name, ssid):
    name = bss_name(radio, slice_name, ssid)
    assert len(name) <= 15 and name == bss_name(radio, slice_name, ssid)
    assert wireless_mib.is_interface(name) and name != radio


def test_what_can_not_be_had_is_refused_and_says_where():
    three = [{"name": f"s{n}", "ssids": [{"name": f"s{n}"}]} for n in range(3)]
    with pytest.raises(SsidError, match=r"ap1, radio wlan0: room for 2 networks, 3 are wanted: s0 \(s0\), s1"):
        wanted(model(*three), POINTS)
    with pytest.raises(SsidError, match="slices s0 and s1 both have the SSID x"):
        wanted(model(*({"name": f"s{n}", "ssids": [{"name": "x"}]} for n in range(2))), POINTS)


def test_ports_follow_the_networks_and_nothing_else_changes():
    each = parse_slice(GUESTS, "guests")
    there = with_ports(each, POINTS)
    (rule,) = [rule for rule in there.flowspace if rule.name == RULE]
    assert rule.switches == {2} and rule.ports == {bss_name("wlan0", "guests", "Gäste")}
    assert with_ports(there, POINTS) == there, "once more changes nothing"
    assert parse_slice(slice_document(there), "again") == there
    lab = with_ports(parse_slice(LAB, "lab"), POINTS)
    assert {(rule.switches, rule.ports) for rule in lab.flowspace} == {
        (frozenset({1}), frozenset({"wlan0-lab", "wlan1-lab"})),
        (frozenset({2}), frozenset({"wlan0-lab"})),
    }
    without = parse_slice({**slice_document(there), "ssids": []}, "again")
    assert with_ports(without, POINTS).flowspace == each.flowspace


def test_columns_are_those_of_the_access_points_agent():
    assert requests.BSS_ENTRY == wireless_mib.BSS_ENTRY and requests.RADIO_ENTRY == wireless_mib.RADIO_ENTRY
    mine = (
        rows.RADIO,
        requests.SSID,
        requests.SECURITY,
        requests.PASSPHRASE,
        requests.ENABLED,
        rows.SLICE,
        requests.WEIGHT,
        rows.ROW,
    )
    theirs = ("RADIO", "SSID", "SECURITY", "PASSPHRASE", "ENABLED", "SLICE", "WEIGHT", "ROW")
    assert mine == tuple(getattr(wireless_mib, f"BSS_{name}") for name in theirs)
    assert (requests.CHANNEL, requests.POWER, requests.RADIO_ADMIN) == (2, 4, 5)


class Point(Agent):
    """An access point's table as its agent keeps it."""

    def __init__(self, variables=(), refuse=None):
        super().__init__(dict(variables))
        self.refuse = refuse

    def walk(self, column):
        return [Binding(oid, value) for oid, value in sorted(self.variables.items()) if oid[: len(column)] == column]

    def get(self, oid):
        return pdu.element(pdu.OCTETS, b"no such luck")

    def set(self, bindings):
        if self.refuse:
            raise SnmpError(self.refuse)
        for each in bindings:
            column, index = each.oid[len(requests.BSS_ENTRY)], each.oid[len(requests.BSS_ENTRY) + 1 :]
            if column == rows.ROW and each.value == pdu.of_integer(rows.DESTROY):
                gone = [oid for oid in self.variables if oid[len(requests.BSS_ENTRY) + 1 :] == index]
                for oid in gone:
                    del self.variables[oid]
        kept = [each for each in bindings if each.value != pdu.of_integer(rows.DESTROY)]
        self.answer(Pdu(Kind.SET, 1, tuple(kept)))


def test_one_set_makes_what_is_wanted_and_leaves_the_operators_own_alone():
    bsss = wanted(model(LAB), POINTS)["ap2"]
    own = {"wlan0": Row("wlan0", b"office", 2, ""), "wlan0-old": Row("wlan0", b"old", 1, "old")}
    todo = change(own, bsss, {"lab.key": "correct horse"})
    assert todo.words == ("remove wlan0-old (old)", "add wlan0-lab: SSID lab, wpa2 (lab)")
    assert "correct" not in repr(todo.words)
    set_ = {
        (each.oid[len(requests.BSS_ENTRY)], bytes(each.oid[len(requests.BSS_ENTRY) + 2 :])) for each in todo.bindings
    }
    assert not any(name == b"wlan0" for _, name in set_)
    point = Point()
    point.set(todo.bindings)
    there = rows_of(point.walk(requests.BSS_ENTRY))
    again = change(there, bsss, {"lab.key": "correct horse"})
    assert again.words == () and [each.oid[len(requests.BSS_ENTRY)] for each in again.bindings] == [requests.PASSPHRASE]
    changed = change({"wlan0-lab": Row("wlan0", b"other", 2, "lab")}, bsss, {"lab.key": "correct horse"})
    assert changed.words == ("change wlan0-lab: SSID lab, wpa2 (lab)",)


def test_access_points_are_helped_one_by_one():
    points = {"ap1": Point(refuse="refuses: commit failed"), "ap2": Point()}

    def agent_of(name):
        return points[name]

    def keys(files):
        return dict.fromkeys(files, "correct horse")

    first, second = reconcile(model(LAB), POINTS, keys, agent_of, dry=True)
    assert first.words and second.words and not points["ap2"].variables
    first, second = reconcile(model(LAB), POINTS, keys, agent_of)
    assert first.problem == "refuses: commit failed: no such luck" and second.problem is None
    assert rows_of(points["ap2"].walk(requests.BSS_ENTRY))["wlan0-lab"].ssid == b"lab"
    first, second = reconcile(model(), POINTS, keys, agent_of)
    assert second.words == ("remove wlan0-lab (lab)",) and not points["ap2"].variables


def test_the_file_of_access_points(tmp_path):
    file = tmp_path / "aps.yaml"
    user = "user: {name: hyroads, password: password-1, privacy_password: password-2}"
    file.write_text(f"devices:\n  ap1: {{address: '192.0.2.1:161', {user}, switch: 0x1, radios: {{wlan0: 4}}}}\n")
    file.chmod(0o600)
    assert desired.load(str(file)).points == (AccessPoint("ap1", 1, {"wlan0": 4}),)
    for text, problem in (
        ("devices: {ap1: {address: '192.0.2.1:161', community: c, switch: 1, radios: {wlan0: 4}}}", "in the clear"),
        (f"devices: {{ap1: {{address: '192.0.2.1:161', {user}, radios: {{wlan0: 4}}}}}}", "switch: is missing"),
        (f"devices: {{ap1: {{address: '192.0.2.1:161', {user}, switch: 1, radios: {{wlan0: 99}}}}}}", "from 1 to 32"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=problem):
            desired.load(str(file))


def test_a_network_under_8021x_names_a_group_of_radius_servers():
    (bss,) = wanted(model(STAFF), POINTS[1:])["ap2"]
    assert (bss.security, bss.radius, bss.passphrase_file) == ("wpa3-enterprise", "campus", None)
    assert model(STAFF) == parse({"slices": [slice_document(each) for each in model(STAFF).slices.values()]}, "again")
    made = change({}, [bss], {})
    assert made.words == ("add wlan0-staff: SSID staff, wpa3-enterprise (staff)",)
    there = rows_of(made.bindings)
    assert there["wlan0-staff"].radius == "campus"
    assert not change(there, [bss], {}).bindings
    other = {**there, "wlan0-staff": Row("wlan0", b"staff", 5, "staff", "guests")}
    assert len(change(other, [bss], {}).bindings) == 1


@pytest.mark.parametrize(
    "ssid",
    [
        {"security": "wpa3-enterprise"},
        {"security": "wpa2", "passphrase_file": "x", "radius": "campus"},
        {"radius": "campus"},
        {"security": "wpa2-enterprise", "radius": "a b"},
        {"security": "wpa2-enterprise", "radius": "campus", "passphrase_file": "x"},
        {"security": "802.1x", "radius": "campus"},
    ],
)
def test_what_8021x_needs_and_nothing_else(ssid):
    with pytest.raises(ConfigError, match=r"ssids\[0\]"):
        parse_slice({"name": "staff", "ssids": [{"name": "staff", **ssid}]}, "slices.yaml")
