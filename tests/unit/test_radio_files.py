"""Technologies on 802.11 radios: the network file, the options, and what hostapd, wpa_supplicant and the medium get."""

from __future__ import annotations

import copy
import struct
from pathlib import Path
from typing import Any

import pytest

from hyroads.controller.access_point.hostapd_conf import fields_of
from hyroads.controller.cli.main import main
from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.netfile import parse, to_document
from hyroads.controller.core.network import Network, RadioMode, RadioUse
from hyroads.controller.kernel.netlink import attribute, attribute_map, text_attribute

pytest.importorskip("mininet")

from hyroads.mininet import radios
from hyroads.mininet.programs import EmulationError
from hyroads.mininet.radio_files import Cell, agent_file, hostapd_text, supplicant_text
from hyroads.mininet.shared_medium import SharedMedium

DOCUMENT: dict[str, Any] = {
    "nodes": {
        "a": {"role": "gateway"},
        "b": {"role": "ap"},
        "c": {"role": "client"},
        "d": {"role": "client", "agent": True},
    },
    "links": [
        {"id": "ab-mesh", "from": "a", "to": "b", "technology": "mesh", "capacity_mbps": 10, "both": True},
        {"id": "ab-plc", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 5, "both": True},
        {"id": "bc-wifi", "from": "b", "to": "c", "technology": "wifi", "capacity_mbps": 20, "both": True},
        {"id": "bd-plc", "from": "b", "to": "d", "technology": "plc", "capacity_mbps": 5, "both": True},
        {"id": "ab-eth", "from": "a", "to": "b", "technology": "ethernet", "capacity_mbps": 100, "both": True},
    ],
    "interference": {"rule": "technology"},
}  # fmt: skip
ON_RADIO = {"wifi": {"radio": {"channel": 1}}, "mesh": {"radio": {"channel": 36}}}
KEY = "0f" * 32


def network(technologies: object, *more: dict[str, Any]) -> Network:
    document = copy.deepcopy(DOCUMENT)
    document["links"] += more
    return parse(document | {"technologies": technologies}, "net.yaml")


def test_the_mode_follows_from_the_links_and_survives_a_round_trip() -> None:
    read = network(ON_RADIO)
    assert read.radios == {"wifi": RadioUse(1, RadioMode.CELL), "mesh": RadioUse(36, RadioMode.IBSS)}
    again = parse(to_document(read), "again")
    assert (again.radios, again.unshared) == (read.radios, {"ethernet"})
    assert network({"plc": {"radio": {"channel": 11}}}).radios["plc"].mode is RadioMode.IBSS
    assert network({}).radios == {}


ONE_WAY = {"id": "ad-far", "from": "a", "to": "d", "technology": "far", "capacity_mbps": 5}


@pytest.mark.parametrize(
    ("technologies", "place", "problem"),
    [
        ({"wifi": {"radio": 1}}, "technologies.wifi.radio", "expected a mapping, got 1"),
        ({"wifi": {"radio": {}}}, "technologies.wifi.radio.channel", "is missing"),
        ({"wifi": {"radio": {"channel": 1, "chanel": 2}}}, "technologies.wifi.radio.chanel", "did you mean 'channel'"),
        *(
            ({"wifi": {"radio": {"channel": wrong}}}, "technologies.wifi.radio.channel", "expected a channel number: 1")
            for wrong in (0, 12, 13, 52, 37, True, "1", 2412, 1.0, None, [1])
        ),
        ({"wifi": {"radio": {"channel": 1, "mode": "ap"}}}, "technologies.wifi.radio.mode", "expected cell or ibss"),
        (
            {"mesh": {"radio": {"channel": 1, "mode": "cell"}}},
            "technologies.mesh.radio.mode",
            "expected ibss: link 'ab-mesh' joins two nodes that are no clients",
        ),
        (
            {"wifi": {"radio": {"channel": 1, "mode": "ibss"}}},
            "technologies.wifi.radio",
            "node 'c' is a client without agent, which needs access points",
        ),
        ({"ethernet": {"radio": {"channel": 1}}}, "technologies.ethernet.radio", "not shared"),
        ({"far": {"radio": {"channel": 1}}}, "technologies.far.radio", "link 'ad-far' has no other direction"),
        ({"wlan": {"radio": {"channel": 1}}}, "technologies.wlan", "no link is of this technology"),
    ],
)
def test_a_wrong_radio_names_its_place(technologies: object, place: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        network(technologies, ONE_WAY)
    errors = [str(each) for each in (caught.value, *caught.value.more)]
    assert any(place in error and problem in error for error in errors), errors


def test_radios_need_declared_links() -> None:
    document = {
        "nodes": {node: {"role": "ap", "technologies": ["wifi"]} for node in "ab"},
        "links": "discover",
        "technologies": {"wifi": {"radio": {"channel": 1}}},
        "interference": {"rule": "hearing"},
    }
    with pytest.raises(ConfigError, match=r"technologies\.wifi\.radio: expected only where links are declared"):
        parse(document, "net.yaml", measured=True)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["triangle", "--radio"], "no technology has a radio (expected, for example, technologies:"),
        (["roaming-80211", "--radio-medium"], "--radio-medium: only with --radio"),
        (["roaming-80211", "--radio", "--measured"], "--measured: not with --radio"),
        (["roaming-80211", "--radio", "--snmp"], "--snmp: not with --radio"),
        (["roaming-80211", "--radio", "--radios"], "--radios: not with --radio"),
        (["roaming-80211", "--radio", "--contention", "csma"], "--contention csma: not with --radio"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["emulate", *arguments]) == 2
    said = capsys.readouterr().err
    assert error in said
    assert said.strip().count("\n") == 0


def test_a_kernel_without_radios_is_one_line_that_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(radios, "family_id", lambda name: None)
    with pytest.raises(EmulationError) as caught:
        radios.check_radios()
    said = str(caught.value)
    assert "modprobe mac80211_hwsim" in said and "scripts/guest.sh" in said and "\n" not in said


def medium(
    technologies: dict[str, object], interference: dict[str, object], tmp_path: Path, elsewhere: set[str]
) -> dict:
    read = parse({**copy.deepcopy(DOCUMENT), "technologies": technologies, "interference": interference}, "net.yaml")
    shared = SharedMedium(read, Addressing.of(read), tmp_path, elsewhere=frozenset(elsewhere))
    return shared.configuration()


@pytest.mark.parametrize(
    "interference",
    [
        {"rule": "technology"},
        {"conflicts": {"ab-plc": ["bd-plc", "bc-wifi"], "bd-plc~": ["ab-plc~"], "ab-mesh": ["bd-plc"]}},
        {"domains": [["ab-mesh", "ab-plc", "bd-plc"], ["bc-wifi", "ab-plc"]]},
    ],
)
def test_the_medium_has_the_other_technologies_with_the_same_conflicts(
    interference: dict[str, object], tmp_path: Path
) -> None:
    whole = medium(ON_RADIO, interference, tmp_path, set())
    part = medium(ON_RADIO, interference, tmp_path, {"wifi", "mesh"})
    names = [link["id"] for link in part["links"]]
    assert names == [link["id"] for link in whole["links"] if "plc" in link["id"] or "eth" in link["id"]]
    assert conflicts(part) == {pair for pair in conflicts(whole) if pair <= set(names)} != set()


def conflicts(document: dict[str, Any]) -> set[frozenset[str]]:
    """Pairs of links that contend, by name."""
    names = [link["id"] for link in document["links"]]
    found = document["conflicts"]
    pairs = [(i, j) for domain in found.get("domains", ()) for i in domain for j in domain if i != j]
    return {frozenset((names[i], names[j])) for i, j in (*pairs, *found.get("pairs", ()))}


def test_hostapd_and_wpa_supplicant_speak_of_the_same_cell() -> None:
    cell = Cell("hr-2", 36, KEY)
    point = fields_of(hostapd_text(cell, "b-wifi", Path("/run/x/ap")))
    station = {key.strip(): value for key, value in fields_of(supplicant_text(cell, Path("/run/x/sta"))).items()}
    assert bytes.fromhex(point["ssid2"]) == bytes.fromhex(station["ssid"]) == b"hr-2"
    assert point["wpa_psk"] == station["psk"] == KEY
    assert (point["hw_mode"], point["channel"], station["scan_freq"]) == ("a", "36", "5180")
    assert {point[key] for key in ("ap_isolate", "bss_transition", "rrm_neighbor_report")} == {"1"}
    assert KEY not in repr(cell)
    assert agent_file("b", [(Path("/run/x/ap/b-wifi"), "wifi")])["hostapd"] == [
        {"socket": "/run/x/ap/b-wifi", "technology": "wifi"}
    ]


class Kernel:
    """Stands for generic netlink: notes requests, and lists two radios."""

    asked: list[tuple[str, int, bytes]]

    def __init__(self, family: str) -> None:
        self.family = family

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None: ...

    def command(self, kind: int, body: bytes = b"") -> int:
        self.asked.append((self.family, kind, body))
        return 7

    def dump(self, kind: int, body: bytes = b"") -> list[bytes]:
        mine = attribute_map(self.asked[0][2])[17].rstrip(b"\0").decode()
        listed = [(0, "phy0"), (5, mine)]
        return [attribute(1, struct.pack("=I", number)) + text_attribute(2, name) for number, name in listed]


def test_a_radio_is_made_without_interface_then_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, bytes]] = []
    monkeypatch.setattr(Kernel, "asked", asked, raising=False)
    monkeypatch.setattr(radios, "GenericNetlink", Kernel)
    radio = radios.Radio("a-wifi", radios.InterfaceKind.ACCESS_POINT, "02:00:01:02:00:02", "42:01:02:03:04:05")
    radio.move(4711)
    radio.remove()
    (made, interface, moved, removed) = [(family, kind, attribute_map(body)) for family, kind, body in asked]
    assert made[:2] == ("MAC80211_HWSIM", 4)
    assert made[2][22] == bytes.fromhex("420102030405") and 18 in made[2]
    assert interface[:2] == ("nl80211", 7)
    assert interface[2] == {
        1: struct.pack("=I", 5), 4: b"a-wifi\0", 5: struct.pack("=I", 3), 6: bytes.fromhex("020001020002")
    }  # fmt: skip
    assert moved == ("nl80211", 49, {1: struct.pack("=I", 5), 82: struct.pack("=I", 4711)})
    assert removed == ("MAC80211_HWSIM", 5, {10: struct.pack("=I", 7)})


def test_a_radio_that_the_kernel_does_not_list_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kernel, "asked", [], raising=False)
    monkeypatch.setattr(Kernel, "dump", lambda *_: [])
    monkeypatch.setattr(radios, "GenericNetlink", Kernel)
    with pytest.raises(EmulationError, match="does not list its new radio"):
        radios.Radio("a-wifi", radios.InterfaceKind.STATION, "02:00:01:02:00:02")
