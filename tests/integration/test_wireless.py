"""The wireless configuration by SNMP: real snmpd and snmpset, the agent beside it, and real hostapd."""

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from wireless_rig import HOSTAPD, READER, AccessPoint, wait_for

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("snmpd") or not shutil.which("snmpset"), reason="snmpd or snmp not installed"),
]
RADIOS = [
    {"interface": "wlan0", "channels": [1, 6, 11], "most_bss": 2, "mac": "02:11:22:33:44:00"},
    {"interface": "wlan1", "channels": [36, 40], "mac": "02:11:22:33:44:01"},
]
SECRET = "correct horse battery"


@pytest.fixture
def recorded(tmp_path):
    with AccessPoint(tmp_path, {"backend": "recorded", "state": f"{tmp_path}/state.json", "radios": RADIOS}) as found:
        yield found


def on_air(point):
    return json.loads((point.directory / "ap" / "wireless" / "on-the-air.json").read_text())


def test_a_network_is_made_changed_and_taken_away(recorded):
    point = recorded
    assert "Error" not in point.create("wlan0-lab", "lab", SECRET, 2, slice_name="research")
    assert point.value("hyroadsBssSsid", "wlan0-lab") == "lab"
    assert point.value("hyroadsBssOperStatus", "wlan0-lab") == "1"
    assert point.value("hyroadsBssPassphrase", "wlan0-lab") == ""
    assert point.value("hyroadsBssSlice", "wlan0-lab") == "research"
    assert on_air(point)["bsss"]["wlan0-lab"]["ssid"] == "lab"
    number = point.number("wlan0")
    assert point.value("hyroadsRadioOperStatus", number) == "1"
    # Channel and power change together; another's refusal leaves all as it was.
    assert "Error" not in point.set(("hyroadsRadioChannel", number, "i", 6), ("hyroadsRadioTxPower", number, "i", 1500))
    refused = point.set(("hyroadsRadioChannel", number, "i", 11), ("hyroadsRadioTxPower", number, "i", 3900))
    assert "inconsistentValue" in refused
    assert [point.value(f"hyroadsRadio{what}", number) for what in ("Channel", "TxPower", "Frequency")] == [
        "6",
        "1500",
        "2437",
    ]
    assert "39 dBm are more than 20" in point.problem()
    assert SECRET not in point.log() and SECRET not in json.dumps(on_air(point))
    assert "Error" not in point.set(("hyroadsBssRowStatus", "wlan0-lab", "i", 6))
    assert "wlan0-lab" not in on_air(point)["bsss"]
    assert "No Such" in point.value("hyroadsBssSsid", "wlan0-lab")


def test_refusals_have_the_right_errors(recorded):
    point, number = recorded, recorded.number("wlan0")
    errors = {
        "wrongValue": point.set(("hyroadsRadioChannel", number, "i", 15)),
        "inconsistentValue": point.set(("hyroadsRadioChannel", number, "i", 36)),
        "wrongType": point.set(("hyroadsRadioChannel", number, "s", "6")),
        "wrongLength": point.create("wlan0-lab", "lab", "short", 2),
        "inconsistentName": point.set(("hyroadsBssSsid", "wlan0-lab", "s", "lab")),
        "noCreation": point.set(("hyroadsRadioChannel", 999, "i", 6)),
        "notWritable": point.set(("hyroadsRadioFrequency", number, "u", 6)),
        "noAccess": point.set(("hyroadsRadioChannel", number, "i", 6), access=READER),
    }
    assert {name: name in text for name, text in errors.items()} == dict.fromkeys(errors, True), errors
    for name in ("a", "b"):
        assert "Error" not in point.create(f"wlan0-{name}", name)
    assert "inconsistentValue" in point.create("wlan0-c", "c")
    assert "room for 2 BSSs" in point.problem()


def test_a_walk_shows_all_in_order_after_what_the_radios_measure(recorded):
    point = recorded
    point.create("wlan0-lab", "lab")
    found = list(point.walk())
    order = [tuple(map(int, oid.split("."))) for oid in found]
    assert order == sorted(order) and len(order) == 2 * 7 + 12 + 1
    whole = point.inside(
        "snmpbulkwalk", *READER, "-m", "", "-Oqn", "127.0.0.1:1610", "1.3.6.1.4.1.8072.9999.9999.18514"
    )
    lines = [line for line in whole.stdout.splitlines() if line[:2] == ".1" and "No more" not in line]
    oids = [tuple(map(int, line.split(" ")[0][1:].split("."))) for line in lines]
    assert oids == sorted(oids) and len(oids) == len(order) + 4


def test_what_was_set_is_kept_over_a_restart(recorded):
    point = recorded
    point.create("wlan0-lab", "lab", SECRET, 3, slice_name="research")
    address = point.value("hyroadsBssBssid", "wlan0-lab")
    kept = point.directory / "state.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and SECRET in kept.read_text()
    point.agent.kill()
    point.agent.wait()
    point.start_agent()
    assert wait_for(lambda: point.value("hyroadsBssOperStatus", "wlan0-lab") == "1")
    assert point.value("hyroadsBssBssid", "wlan0-lab") == address
    assert point.value("hyroadsBssSlice", "wlan0-lab") == "research"


# -- hostapd ----------------------------------------------------------------------------------------------------------

needs_hostapd = pytest.mark.skipif(HOSTAPD is None, reason="hostapd not installed")


@pytest.fixture
def real(tmp_path):
    """hostapd without radios: each has one BSS at most. ``iw`` keeps what it is told."""
    iw = tmp_path / "iw"
    iw.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/iw.log\n[ "$3" = info ] && echo "	txpower 15.00 dBm"\nexit 0\n'
    )
    iw.chmod(0o755)
    wireless = {"global": f"{tmp_path}/global", "driver": "none", "state": f"{tmp_path}/state.json", "radios": RADIOS}
    with AccessPoint(tmp_path, wireless) as found:
        found.hostapd = found.start_hostapd()
        yield found


def hostapd(point, interface, question):
    from hyroads.controller.access_point.hostapd_conf import fields_of
    from hyroads.controller.access_point.wireless import WirelessError
    from hyroads.controller.access_point.wireless_hostapd import ask

    try:
        return fields_of(ask(str(point.directory / "ap" / "wireless" / "control" / interface), question))
    except WirelessError:
        return {}


@needs_hostapd
def test_hostapd_does_what_was_set(real):
    point = real
    assert "Error" not in point.create("wlan0", "office", SECRET, 2), point.log() + point.problem()
    there = hostapd(point, "wlan0", "GET_CONFIG")
    assert (there["ssid"], there["key_mgmt"].strip()) == ("office", "WPA-PSK")
    assert hostapd(point, "wlan0", "STATUS")["channel"] == "1"
    file = point.directory / "ap" / "wireless" / "wlan0.conf"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and SECRET in file.read_text()
    number = point.number("wlan0")
    assert "Error" not in point.set(("hyroadsRadioChannel", number, "i", 6), ("hyroadsRadioTxPower", number, "i", 1500))
    assert hostapd(point, "wlan0", "STATUS")["channel"] == "6"
    assert "dev wlan0 set txpower fixed 1500" in (point.directory / "iw.log").read_text()
    # Another radio, WPA3, does not disturb the first.
    assert "Error" not in point.create("wlan1", "büro", SECRET, 3, radio="wlan1")
    assert hostapd(point, "wlan1", "GET_CONFIG")["key_mgmt"].strip() == "SAE"
    assert "Error" not in point.set(("hyroadsBssEnabled", "wlan1", "i", 2))
    assert hostapd(point, "wlan1", "STATUS") == {} and hostapd(point, "wlan0", "STATUS")["state"] == "ENABLED"


@needs_hostapd
def test_what_hostapd_refuses_is_taken_back(real):
    point = real
    point.create("wlan0", "office")
    # A second BSS is more than a radio that is not there can do.
    assert "commitFailed" in point.create("wlan0-lab", "lab")
    assert "wlan0-lab" in point.problem()
    assert hostapd(point, "wlan0", "GET_CONFIG")["ssid"] == "office"
    assert (
        "No Such" in point.value("hyroadsBssSsid", "wlan0-lab") and point.value("hyroadsBssOperStatus", "wlan0") == "1"
    )
    # A power that the driver does not take.
    refused = point.set(
        ("hyroadsRadioChannel", point.number("wlan0"), "i", 11),
        ("hyroadsRadioTxPower", point.number("wlan0"), "i", 400),
    )
    assert "commitFailed" in refused and "15.00 dBm" in point.problem()
    assert hostapd(point, "wlan0", "STATUS")["channel"] == "1"


@needs_hostapd
def test_a_hostapd_that_starts_anew_gets_everything_again(real):
    point = real
    point.create("wlan0", "office", SECRET, 2)
    point.hostapd.kill()
    point.hostapd.wait()
    assert wait_for(lambda: point.value("hyroadsBssOperStatus", "wlan0") == "2")
    assert "commitFailed" in point.set(("hyroadsBssSsid", "wlan0", "s", "other"))
    Path(point.wireless["global"]).unlink(missing_ok=True)
    point.start_hostapd()
    assert wait_for(lambda: point.value("hyroadsBssOperStatus", "wlan0") == "1"), point.problem()
    assert hostapd(point, "wlan0", "GET_CONFIG")["ssid"] == "office"


@needs_hostapd
def test_hostapd_reads_every_file_that_is_generated(tmp_path):
    """All kinds of networks, several on a radio: hostapd gets as far as the driver, which has no radios."""
    from hyroads.controller.access_point import hostapd_conf
    from hyroads.controller.access_point.wireless import Bss, Radio, RadioAbilities, Wireless

    bsss = [
        Bss("wlan0-a", "wlan0", b'a "quoted" \n name', "wpa2", 'p\\"#=ss word', True, bssid="06:11:22:33:44:00"),
        Bss("wlan0-b", "wlan0", b"\xff\x00", "wpa3", SECRET, True, airtime_weight=3, bssid="0a:11:22:33:44:00"),
        Bss("wlan0-c", "wlan0", b"c", "open", "", True, bssid="0e:11:22:33:44:00"),
    ]
    wireless = Wireless({"wlan0": Radio(36)}, {bss.name: bss for bss in bsss})
    able = RadioAbilities("wlan0", (36,), country="DE", options=("ieee80211n=1", "ieee80211ac=1"))
    place = hostapd_conf.Place(str(tmp_path / "control"), "none")
    texts = [hostapd_conf.radio_text(able, Radio(36), wireless, place)]
    texts += [hostapd_conf.bss_text(bss, able, Radio(36), wireless, place) for bss in bsss]
    for text in texts:
        assert not mistakes(tmp_path, text), text
    assert mistakes(tmp_path, texts[0].replace("wpa_key_mgmt=SAE", "wpa_key_mgmt=NONSENSE"))


def mistakes(folder, text):
    """What hostapd says is wrong with a file, once it has begun with what is in it, or has given up."""
    file, log = folder / "wlan0.conf", folder / "hostapd.log"
    file.write_text(text)
    log.write_text("")
    process = subprocess.Popen([str(HOSTAPD), "-f", str(log), str(file)], stdout=subprocess.DEVNULL)
    try:
        assert wait_for(lambda: "interface state" in log.read_text() or process.poll() is not None)
    finally:
        process.kill()
        process.wait()
    return [line for line in log.read_text().splitlines() if line.startswith("Line ") or "errors found" in line]
