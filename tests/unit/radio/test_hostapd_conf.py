"""hostapd's files, and the steps from one configuration to another."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.access_point import hostapd_conf as conf
from hyroads.controller.access_point.hostapd_conf import Place, Step, What
from hyroads.controller.access_point.wireless import (
    WPA2,
    WPA3,
    Bss,
    Radio,
    RadioAbilities,
    Wireless,
    WirelessError,
    document_of,
    is_passphrase,
    restored,
)

ABLE = RadioAbilities("wlan0", (6, 36), country="DE", options=("ieee80211n=1",))
PLACE = Place("/run/x/control")
OWN = Bss("wlan0", "wlan0", "büro".encode(), enabled=True, bssid="00:11:22:33:44:00")
LAB = Bss("wlan0-lab", "wlan0", b"lab\n", "wpa2", "correct horse", True, "lab", bssid="06:11:22:33:44:00")
SAE = Bss("wlan0-sae", "wlan0", b"sae", WPA3, "battery staple", True, bssid="0a:11:22:33:44:00")


def wireless(*bsss, **radio):
    return Wireless({"wlan0": Radio(**{"channel": 36, **radio})}, {bss.name: bss for bss in bsss})


def sections(text):
    """The lines of the radio's own BSS and of each other."""
    head, *others = text.split("\nbss=")
    return {"": head.splitlines(), **{other.split("\n")[0]: other.splitlines()[1:] for other in others}}


def test_a_radio_with_three_networks():
    found = sections(conf.radio_text(ABLE, Radio(36), wireless(OWN, LAB, SAE), PLACE))
    assert list(found) == ["", "wlan0-lab", "wlan0-sae"]
    assert {"interface=wlan0", "driver=nl80211", "country_code=DE", "hw_mode=a", "channel=36", "ieee80211n=1",
            f"ssid2={'büro'.encode().hex()}", "utf8_ssid=1"} <= set(found[""])  # fmt: skip
    assert {"bssid=06:11:22:33:44:00", f"ssid2={b'lab'.hex()}0a", "wpa_passphrase=correct horse"} <= set(
        found["wlan0-lab"]
    )
    assert {"wpa_key_mgmt=SAE", "wpa_passphrase=battery staple", "ieee80211w=2"} <= set(found["wlan0-sae"])
    for lines in found.values():
        assert "ap_isolate=1" in lines and not any(line.startswith("bridge") for line in lines)
    assert not any("wpa" in line for line in found[""])


def test_a_radio_whose_own_interface_nobody_has_lets_nobody_in_there():
    own = sections(conf.radio_text(ABLE, Radio(6), wireless(LAB, channel=6), PLACE))[""]
    assert {"macaddr_acl=1", "start_disabled=1", "hw_mode=g"} <= set(own)


def test_weights_are_written_only_if_there_are_any():
    assert "airtime" not in conf.radio_text(ABLE, Radio(36), wireless(OWN, LAB), PLACE)
    found = sections(conf.radio_text(ABLE, Radio(36), wireless(OWN, replace(LAB, airtime_weight=3)), PLACE))
    assert "airtime_mode=2" in found[""] and "airtime_bss_weight=3" in found["wlan0-lab"]


def test_the_file_of_one_network_is_that_of_the_radio_without_the_others():
    whole, one = wireless(OWN, LAB), conf.bss_text(LAB, ABLE, Radio(36), wireless(OWN, LAB), PLACE).splitlines()
    assert one[0] == "interface=wlan0-lab" and "channel=36" in one
    assert set(sections(conf.radio_text(ABLE, Radio(36), whole, PLACE))["wlan0-lab"]) <= set(one)


NOTHING = wireless()
START, STOP, POWER = (Step(what, "wlan0") for what in (What.START, What.STOP, What.POWER))


def join(bss):
    return Step(What.JOIN, "wlan0", bss)


def leave(bss):
    return Step(What.LEAVE, "wlan0", bss)


@pytest.mark.parametrize(
    ("before", "wanted", "expected"),
    [
        (NOTHING, NOTHING, []),
        (wireless(OWN), wireless(OWN), []),
        (NOTHING, wireless(LAB), [START, POWER]),
        (Wireless({}, {"wlan0-lab": LAB}), wireless(LAB), [START, POWER]),
        (wireless(OWN, LAB), NOTHING, [STOP]),
        (wireless(OWN), wireless(OWN, up=False), [STOP]),
        (wireless(OWN), wireless(OWN, channel=6), [STOP, START, POWER]),
        (wireless(OWN), wireless(OWN, LAB), [join("wlan0-lab")]),
        (wireless(OWN, LAB), wireless(OWN, SAE), [leave("wlan0-lab"), join("wlan0-sae")]),
        (wireless(OWN, LAB), wireless(OWN, replace(LAB, ssid=b"x")),
         [leave("wlan0-lab"), join("wlan0-lab")]),
        (wireless(LAB, SAE), wireless(LAB), [leave("wlan0-sae")]),
        (wireless(LAB), wireless(LAB, OWN), [STOP, START, POWER]),
        (wireless(OWN), wireless(OWN, power_mbm=1500), [POWER]),
        (wireless(OWN), wireless(OWN, replace(SAE, airtime_weight=2)), [STOP, START, POWER]),
    ],
)  # fmt: skip
def test_the_fewest_stations_lose_their_network(before, wanted, expected):
    assert conf.steps(before, wanted) == expected


STATUS = {"state": "ENABLED", "channel": "36", "bss[0]": "wlan0", "num_sta[0]": "2", "bss[1]": "wlan0-lab",
          "num_sta[1]": "7"}  # fmt: skip


def test_reading_back():
    right = {"ssid": "lab\\n", "key_mgmt": "WPA-PSK "}
    assert conf.difference(LAB, Radio(36), STATUS, right) is None
    assert "kind of security" in conf.difference(LAB, Radio(36), STATUS, {**right, "key_mgmt": "SAE"})
    assert "SSID" in conf.difference(LAB, Radio(36), STATUS, {**right, "ssid": "lab"})
    assert "channel 36" in conf.difference(LAB, Radio(6), STATUS, right)
    assert "disabled" in conf.difference(LAB, Radio(36), {"state": "DISABLED"}, right)
    assert "nothing" in conf.difference(LAB, Radio(36), {}, {})
    assert conf.difference(OWN, Radio(36), STATUS, {"ssid": "b\\xc3\\xbcro"}) is None
    assert (conf.stations_of("wlan0-lab", STATUS), conf.stations_of("wlan0-x", STATUS)) == (7, 0)
    assert conf.on_air(STATUS) == {"wlan0", "wlan0-lab"}


def test_the_power():
    assert conf.power_command("wlan0", "phy3", 1500) == ["iw", "phy", "phy3", "set", "txpower", "fixed", "1500"]
    assert conf.power_command("wlan0", None, -1) == ["iw", "dev", "wlan0", "set", "txpower", "auto"]
    info = "Interface wlan0\n\ttype AP\n\ttxpower 15.00 dBm\n"
    assert conf.power_difference("wlan0", 1550, info) is None
    assert conf.power_difference("wlan0", 2000, info) == "wlan0 sends with 15.00 dBm"
    assert conf.power_difference("wlan0", 2000, "type AP\n") is None


PRINTABLE = st.text([chr(code) for code in range(32, 127)], min_size=8, max_size=63)
MEANT = ["|mac=02:00:00:00:00:01", "|vlanid=1", "|pk=x:y", "|id=x", "#", '"', "\\", "{", "}", "%", "=", " "]


@given(PRINTABLE | st.lists(st.sampled_from([*MEANT, "abcdefgh"]), min_size=1).map("".join).filter(is_passphrase),
       st.binary(min_size=1, max_size=32), st.sampled_from([WPA2, WPA3]))  # fmt: skip
def test_passphrases_and_names_are_no_more_than_that(passphrase, ssid, security):
    """The lines are those of any other network, but for the two values; hostapd ends a value at the line's end."""
    found = [
        conf.bss_text(bss, ABLE, Radio(36), wireless(bss), PLACE)
        for bss in (replace(SAE, security=security), replace(SAE, security=security, passphrase=passphrase, ssid=ssid))
    ]
    usual, mine = (dict(line.split("=", 1) for line in text.splitlines() if line) for text in found)
    assert found[1].count("\n") == len(mine) and "sae_password" not in mine
    assert mine.pop("wpa_passphrase") == passphrase and bytes.fromhex(mine.pop("ssid2")) == ssid
    assert {**mine, "utf8_ssid": "1"} == {key: usual[key] for key in usual if key not in ("wpa_passphrase", "ssid2")}


WRONG = [
    "12345678\nssid=x",
    "12345678\r",
    "12345678\0",
    "1234567\t8",
    "1234567\x7f",
    "12345678ü",
    "1234567",
    "x" * 64,
    "",
]


@pytest.mark.parametrize("passphrase", WRONG)
@pytest.mark.parametrize("security", [WPA2, WPA3])
def test_no_file_is_made_of_what_is_no_passphrase(passphrase, security):
    bss = replace(SAE, security=security, passphrase=passphrase)
    with pytest.raises(WirelessError, match="passphrase"):
        conf.radio_text(ABLE, Radio(36), wireless(bss), PLACE)


LIES = [{"passphrase": WRONG[0]}, {"slice": "a b"}, {"bssid": "x\nbss=y"}, {"security": "x"}]


@pytest.mark.parametrize("change", LIES)
def test_a_state_that_says_such_things_is_not_read(change):
    document = document_of(wireless(SAE))
    assert restored(document, {"wlan0": ABLE}) == wireless(SAE)
    document["bsss"][SAE.name].update(change)
    with pytest.raises(WirelessError):
        restored(document, {"wlan0": ABLE})
