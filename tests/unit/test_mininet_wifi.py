"""Network files on Mininet-WiFi: what is asked of its classes, by a stand-in of them; its import, and its absence."""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import mininet_wifi_stand_in as stand_in
import pytest

pytest.importorskip("mininet")
from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.netfile import load_text
from hyroads.mininet import run_directory, wifi_import
from hyroads.mininet.factory import factory_address
from hyroads.mininet.programs import EmulationError

EXAMPLES = Path(run_directory.__file__).parent / "examples"


@pytest.fixture
def wifi(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """``hyroads.mininet.wifi`` on the stand-in; it runs no program and asks no kernel."""
    stand_in.install(monkeypatch)
    found = importlib.import_module("hyroads.mininet.wifi")
    monkeypatch.setattr(sys.modules["hyroads.mininet.wifi_nodes"].RoamingRadio, "settle_s", 0.0)
    for check in ("_check_machine", "_check_kernel", "end_radio_programs"):
        monkeypatch.setattr(found, check, lambda: None)
    monkeypatch.setattr(found, "remove_radios", lambda _made: None)
    # A client with an agent has a shell in a namespace.
    monkeypatch.setattr(found, "BridgedStation", stand_in.Station)
    yield found
    for name in [name for name in sys.modules if name.startswith("hyroads.mininet.wifi")]:
        del sys.modules[name]


def test_access_points_have_what_the_network_file_says(wifi: ModuleType, tmp_path: Path) -> None:
    net = wifi.wifi_net("walk", directory=tmp_path)
    addressing = Addressing.of(net.network)
    assert [ap.name for ap in net.aps] == ["ap1", "ap2"]
    first, second = (ap.params for ap in net.aps)
    assert int(first["dpid"], 16) == addressing.dpid["ap1"]
    assert first["mac"] == [factory_address(addressing, "ap1", "wifi")]
    assert (first["protocols"], first["failMode"]) == ("OpenFlow13", "secure")
    assert first["position"] == "20.0,30.0,0"
    assert first["ssid"] == second["ssid"]
    assert first["passwd"] == second["passwd"], "one key in a cell"
    assert addressing.interface_name["ap1", "wifi"] == "ap1-wlan1", "the controller knows it by Mininet-WiFi's name"
    assert '"ap1-wlan1"' in (tmp_path / "network.json").read_text()


def test_stations_have_the_addresses_of_the_file_and_scan_one_channel(wifi: ModuleType, tmp_path: Path) -> None:
    net = wifi.wifi_net("walk", directory=tmp_path, channels={"wifi": 36}, params={"sta1": {"range": 12}})
    params = net["sta1"].params
    assert (params["mac"], params["ip"]) == (net.addressing.host_mac["sta1"], f"{net.addressing.host_ip['sta1']}/16")
    assert params["scan_freq"] == ["5180"]
    assert params["range"] == 12
    assert [ap.params["channel"] for ap in net.aps] == [["36"], ["36"]]


def test_what_is_not_wifi_is_wired_to_the_shared_medium(wifi: ModuleType, tmp_path: Path) -> None:
    net = wifi.wifi_net("walk", directory=tmp_path)
    net.configureNodes()
    wires = {(a.name, b.name, params["intfName1"]) for a, b, params in net.links}
    assert ("ap1", "plc", "ap1-plc") in wires
    assert ("g", "ethernet-2", "g-ethernet-2") in wires
    assert len(wires) == 6
    assert "wifi" not in net.shared.network.technologies
    assert {link["id"] for link in net.shared.configuration()["links"]} == {  # type: ignore[union-attr, attr-defined]
        link.id for link in net.network.links if link.technology != "wifi"
    }


def test_a_client_with_an_agent_has_a_radio_and_a_wire(wifi: ModuleType, tmp_path: Path) -> None:
    net = wifi.wifi_net("wifi-and-plc", directory=tmp_path)
    net.configureNodes()
    assert [station.name for station in net.bridged] == ["laptop"]
    assert net["laptop"].params["mac"] == [factory_address(net.addressing, "laptop", "wifi")]
    assert any(a.name == "laptop" and b.name == "plc" for a, b, _ in net.links)


def test_two_ssids_are_two_radios_with_keys_of_their_own(wifi: ModuleType, tmp_path: Path) -> None:
    net = wifi.wifi_net("two-ssids", directory=tmp_path, ssids={"wifi": "staff", "wifi-guests": "guests"})
    params = net["ap1"].params
    assert params["ssid"] == ["staff", "guests"]
    assert params["channel"] == ["1", "6"]
    assert net["guest1"].params["passwd"] == [params["passwd"][1]] != [params["passwd"][0]]


def test_stations_without_a_position_go_where_the_file_says(wifi: ModuleType, tmp_path: Path) -> None:
    net = wifi.wifi_net("two-ssids", directory=tmp_path)
    net.start()
    ap = net["ap1"]
    assert net["staff1"].wintfs[0].associatedTo is ap.wintfs[0]
    assert net["guest1"].wintfs[0].associatedTo is ap.wintfs[1]
    assert net.calls == ["configureNodes", "build", "start"]
    net.stop()


def test_a_running_supplicant_roams(wifi: ModuleType, tmp_path: Path) -> None:
    net = wifi.wifi_net("walk", directory=tmp_path)
    net.configureNodes()
    station, radio = net["sta1"], net["sta1"].wintfs[0]
    one, two = (ap.wintfs[0] for ap in net.aps)
    radio.associate_infra(one)
    assert radio.asked == [f"start {one.mac}"], "none ran"
    station.answers["status"] = f"wpa_state=COMPLETED\nbssid={one.mac}\n"
    station.commands.clear()
    radio.associate_infra(one)
    assert not any("roam" in command for command in station.commands), "it is there already"
    radio.associate_infra(two)
    assert station.commands[-1] == f"wpa_cli -i sta1-wlan0 roam {two.mac}"
    assert radio.asked == [f"start {one.mac}"], "no second wpa_supplicant"
    station.answers["status"] = "wpa_state=DISCONNECTED\n"
    radio.associate_infra(one)
    assert "wpa_cli -i sta1-wlan0 reconnect" in station.commands


def test_a_station_that_leaves_the_last_access_point_is_disconnected(wifi: ModuleType, tmp_path: Path) -> None:
    net = wifi.wifi_net("walk", directory=tmp_path)
    net.configureNodes()
    station, radio = net["sta1"], net["sta1"].wintfs[0]
    one, two = (ap.wintfs[0] for ap in net.aps)
    radio.apsInRange = {one.node: -40.0, two.node: -60.0}
    radio.disconnect(one)
    assert station.commands == [], "it roams to the other"
    radio.apsInRange = {one.node: -40.0}
    radio.disconnect(one)
    assert station.commands == ["wpa_cli -i sta1-wlan0 disconnect"]


def test_every_bss_of_a_file_of_hostapd_is_completed(wifi: ModuleType, tmp_path: Path) -> None:
    from hyroads.mininet import wifi_nodes

    text = "interface=ap1-wlan1\nssid=a\nbss_transition=0\n\nbss=ap1-wlan1-0\nssid=b\n"
    sections = wifi_nodes.with_lines(text).split("\nbss=")
    assert "bss_transition=0" in sections[0]
    assert "bss_transition=1" not in sections[0], "what is said stays"
    assert all("rrm_neighbor_report=1" in section and "ctrl_interface=" in section for section in sections)
    assert "bss_transition=1" in sections[1]
    assert wifi_nodes.with_lines(wifi_nodes.with_lines(text)) == wifi_nodes.with_lines(text)
    ap = wifi.HybridAP("ap9")
    path = tmp_path / "mn1_ap9-wlan1.apconf"
    path.write_text("interface=ap9-wlan1\n")
    ap.cmd(f"hostapd -B {path} ")
    assert "rrm_neighbor_report=1" in path.read_text()
    assert ap.commands == [f"hostapd -B {path} "]


def test_names_that_do_not_fit_are_refused(wifi: ModuleType, tmp_path: Path) -> None:
    network = """
nodes:
  ap1: {role: ap, ports: {wifi: radio7}}
  s: {role: client}
links:
  - {id: l, from: ap1, to: s, technology: wifi, capacity_mbps: 5, both: true}
interference: {rule: technology}
"""
    with pytest.raises(EmulationError, match="node ap1: Mininet-WiFi calls its wifi ap1-wlan1, the file radio7"):
        wifi.wifi_net(load_text(network, "net"), directory=tmp_path)
    for wrong, named in (
        ({"ssids": {"lte": "x"}}, "lte"),
        ({"channels": {"wifi": 15}}, "channel 15"),
        ({"params": {"nobody": {}}}, "nobody"),
    ):
        with pytest.raises(EmulationError, match=named):
            wifi.wifi_net("walk", directory=tmp_path, **wrong)
    with pytest.raises(EmulationError, match="no such node"):
        wifi.HybridAP("elsewhere", network="walk")
    with pytest.raises(EmulationError, match="no such client"):
        wifi.HybridStation("ap1", network="walk")


def test_an_access_point_of_anybody_says_which_port_the_file_lacks(wifi: ModuleType) -> None:
    ap = wifi.HybridAP("ap1", network="walk")
    ap.params["wlan"] = ["ap1-wlan1"]
    stand_in.master(ap, 0)
    with pytest.raises(EmulationError, match=r"say nodes.ap1.ports: \{wifi: ap1-wlan1\}"):
        ap.radio_names()


@pytest.mark.parametrize("example", ["walking_station", "wifi_and_plc", "slices_by_ssid"])
def test_the_examples_build_their_networks(
    wifi: ModuleType, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in ("setPropagationModel", "startMobility", "stopMobility", "mobility"):
        monkeypatch.setattr(stand_in.Mininet_wifi, call, lambda *_, **__: None, raising=False)
    monkeypatch.setattr(stand_in.Mininet_wifi, "addHost", stand_in.Mininet_wifi.addSwitch, raising=False)
    script = runpy.run_path(str(EXAMPLES / f"{example}.py"))
    if example == "walking_station":
        assert [station.name for station in script["walk"]().stations] == ["sta1"]
    elif example == "slices_by_ssid":
        net = script["two_ssids"](tmp_path)
        assert net.links[-1][2] == {"intfName1": "ap1-portal"}
        assert [controller.params["port"] for controller in net.controllers] == [6633]
    else:
        assert script["wifi_net"] is wifi.wifi_net


def test_the_page_shows_the_example() -> None:
    root = EXAMPLES.resolve().parents[1]
    page = (root / "docs" / "how-to" / "mininet-wifi.md").read_text()
    shown = page.partition("```python\n")[2].partition("```")[0]
    assert shown.strip()
    assert shown in (EXAMPLES / "walking_station.py").read_text()


def test_without_mininet_wifi_there_is_one_line() -> None:
    if importlib.util.find_spec("mn_wifi") is not None:
        pytest.skip("Mininet-WiFi is installed here")
    command = [sys.executable, "-m", "hyroads.controller.cli", "mininet-wifi", "walk"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_without_folder())
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "sudo util/install.sh -Wlnfv" in done.stderr


def _without_folder() -> dict[str, str]:
    import os

    return {name: value for name, value in os.environ.items() if name != wifi_import.FOLDER_VARIABLE}


def test_a_folder_without_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(wifi_import.FOLDER_VARIABLE, str(tmp_path))
    if importlib.util.find_spec("mn_wifi") is None:
        with pytest.raises(ImportError, match="expected a folder with mn_wifi"):
            wifi_import.load()


def test_stand_ins_of_modules_are_gone_after_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    import mininet.util

    absent = {"FlightRadar24", "bitstring", "requests", "pkg_resources"}
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in absent else real(name))
    for name in absent:
        monkeypatch.delitem(sys.modules, name, raising=False)
    had = hasattr(mininet.util, "fmtBps")
    with wifi_import.stand_ins():
        assert absent <= sys.modules.keys()
        from FlightRadar24 import FlightRadar24API  # type: ignore[import-not-found]

        with pytest.raises(ImportError, match="FlightRadar24"):
            FlightRadar24API()
        assert hasattr(mininet.util, "fmtBps")
        path = Path(sys.modules["pkg_resources"].resource_filename("hyroads.mininet.wifi_import", "x"))
        assert path.name == "x"
    assert not absent & sys.modules.keys()
    assert hasattr(mininet.util, "fmtBps") == had


@pytest.mark.parametrize(
    ("rate", "unit", "shown"),
    [
        (9.5e6, None, "9.50 Mbits/sec"),
        (2e9, None, "2.00 Gbits/sec"),
        (1500.0, None, "1.50 Kbits/sec"),
        (2e9, "m", "2000.00 Mbits/sec"),
    ],
)
def test_rates_are_shown_as_iperf_does(rate: float, unit: str | None, shown: str) -> None:
    assert wifi_import.bits_per_second(rate, unit) == shown
