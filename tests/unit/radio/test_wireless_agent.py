"""A SET from its test to what is on the air: several networks on a radio, refusals, a hostapd that starts anew."""

import json
import stat

import pytest
from hostapd_global import Hostapd

from hyroads.controller.access_point import wireless_mib as mib
from hyroads.controller.access_point.config import WirelessConfig, parse
from hyroads.controller.access_point.mib import Value
from hyroads.controller.access_point.model import RadioError
from hyroads.controller.access_point.snmpd import snmpd_conf
from hyroads.controller.access_point.wireless import RadioAbilities, WirelessError
from hyroads.controller.access_point.wireless_agent import LOOK_EVERY_S, WirelessObjects
from hyroads.controller.access_point.wireless_hostapd import HostapdBackend, RecordedBackend
from hyroads.controller.core.errors import ConfigError

RADIOS = {
    "wlan0": RadioAbilities("wlan0", (1, 6), most_bss=4, mac="02:11:22:33:44:00"),
    "wlan1": RadioAbilities("wlan1", (36,), mac="02:11:22:33:44:01"),
}


class Driver:
    """``iw`` and ``ovs-vsctl``."""

    def __init__(self):
        self.commands, self.fails, self.ports = [], "", set()

    def __call__(self, command):
        self.commands.append(command)
        if self.fails and self.fails in " ".join(command):
            raise RadioError(f"{command[0]}: no")
        if "add-port" in command:
            self.ports.add(command[command.index("add-port") + 2])
        if "del-port" in command:
            self.ports.discard(command[-1])
        return "\n".join(self.ports) if "find" in command or "list-ports" in command else ""


class Point:
    def __init__(self, folder, kind="hostapd"):
        self.folder, self.driver, self.complaints = folder, Driver(), []
        self.hostapd = Hostapd(folder / "global") if kind == "hostapd" else None
        config = WirelessConfig(RADIOS, kind, bridge="br0", global_socket=str(folder / "global"))
        self.backend = (HostapdBackend if kind == "hostapd" else RecordedBackend)(config, folder / "w", self.driver)
        self.now_s = 1.0
        self.start()

    def start(self):
        numbers = {"wlan0": 3, "wlan1": 4}
        self.objects = WirelessObjects(
            RADIOS, self.backend, self.folder / "state" / "w.json", self.complaints.append, numbers.get
        )
        self.look()

    def look(self, after_s=LOOK_EVERY_S + 0.1):
        self.now_s += after_s
        self.objects.look(self.now_s)

    def set(self, *bindings):
        self.objects.test([(oid, Value("integer" if isinstance(v, int) else "octet", v)) for oid, v in bindings])
        self.objects.commit()
        self.objects.cleanup()

    def add(self, name, ssid, radio=b"wlan0"):
        self.set(
            (bss(mib.BSS_ROW, name), 4), (bss(mib.BSS_RADIO, name), radio), (bss(mib.BSS_SSID, name), ssid),
            (bss(mib.BSS_ENABLED, name), 1),
        )  # fmt: skip

    def value(self, oid):
        return self.objects.get(oid).value

    @property
    def on_air(self):
        return {radio: [each["name"] for each in found] for radio, found in self.hostapd.radios.items()}


def bss(column, name):
    return (*mib.BSS_ENTRY, column, *mib.bss_index(name))


@pytest.fixture
def point(tmp_path):
    found = Point(tmp_path)
    yield found
    found.hostapd.end()


def test_networks_come_and_go_without_disturbing_others(point):
    point.add("wlan0", b"office")
    point.add("wlan0-a", b"a")
    point.add("wlan0-b", b"b")
    assert point.on_air == {"wlan0": ["wlan0", "wlan0-a", "wlan0-b"]}
    assert point.driver.ports == {"wlan0", "wlan0-a", "wlan0-b"}
    point.hostapd.stations["wlan0-b"] = 3
    point.look()
    assert point.value(bss(11, "wlan0-b")) == 3
    point.set((bss(mib.BSS_ROW, "wlan0-a"), 6))
    point.set((bss(mib.BSS_SSID, "wlan0-b"), b"bb"))
    assert point.on_air == {"wlan0": ["wlan0", "wlan0-b"]} and point.driver.ports == {"wlan0", "wlan0-b"}
    assert point.hostapd.begun == {"wlan0": 1, "wlan0-a": 1, "wlan0-b": 2}
    file = (point.folder / "w" / "wlan0.conf").read_text()
    assert "bss=wlan0-b" in file and "wlan0-a" not in file, "the next start of the radio knows what is on it"
    point.set(((*mib.RADIO_ENTRY, mib.RADIO_CHANNEL, 3), 6))
    assert point.hostapd.channel["wlan0"] == "6" and point.hostapd.begun["wlan0"] == 2
    point.set(((*mib.RADIO_ENTRY, mib.RADIO_ADMIN, 3), 2))
    assert point.on_air == {} and point.driver.ports == set()


def test_a_radio_whose_own_interface_nobody_has_is_closed_there(point):
    point.add("wlan0-a", b"a")
    assert point.on_air == {"wlan0": ["wlan0", "wlan0-a"]} and point.driver.ports == {"wlan0-a"}
    assert point.hostapd.radios["wlan0"][0]["start_disabled"] == "1"


def test_what_is_refused_is_taken_back_and_not_kept(point):
    point.add("wlan0", b"office")
    point.add("wlan0-a", b"a")
    kept = (point.folder / "state" / "w.json").read_text()
    point.hostapd.refuses.add("wlan0-b")
    with pytest.raises(mib.SetError) as refused:
        point.add("wlan0-b", b"b")
    assert refused.value.status == mib.COMMIT_FAILED
    assert point.on_air == {"wlan0": ["wlan0", "wlan0-a"]}
    assert (point.folder / "state" / "w.json").read_text() == kept
    assert b"wlan0-b" in point.value(mib.PROBLEM) and point.objects.get(bss(mib.BSS_SSID, "wlan0-b")) is None
    point.driver.fails = "txpower"
    with pytest.raises(mib.SetError):
        point.set(((*mib.RADIO_ENTRY, mib.RADIO_POWER, 3), 1000))
    assert point.value((*mib.RADIO_ENTRY, mib.RADIO_POWER, 3)) == -1
    with pytest.raises(mib.SetError):
        point.set(((*mib.RADIO_ENTRY, mib.RADIO_POWER, 3), 1000), (bss(mib.BSS_SSID, "wlan0-a"), b"aa"))
    assert point.on_air == {"wlan0": ["wlan0", "wlan0-a"]}
    assert point.hostapd.radios["wlan0"][1]["ssid2"] == b"a".hex()
    assert point.hostapd.begun["wlan0"] == 1, "others kept their stations"


def test_undo_brings_back_what_was(point):
    point.add("wlan0", b"office")
    point.objects.test([(bss(mib.BSS_SSID, "wlan0"), Value("octet", b"other"))])
    point.objects.commit()
    assert point.value(bss(mib.BSS_SSID, "wlan0")) == b"other"
    point.objects.undo()
    assert point.value(bss(mib.BSS_SSID, "wlan0")) == b"office"
    assert point.hostapd.radios["wlan0"][0]["ssid2"] == b"office".hex()


def test_a_hostapd_that_forgot_gets_everything_again_and_a_restarted_agent_changes_nothing(point):
    point.add("wlan0", b"office")
    point.add("wlan1", b"five", b"wlan1")
    begun = dict(point.hostapd.begun)
    point.start()
    assert point.hostapd.begun == begun, "what is as wanted is left alone"
    point.hostapd.forget()
    point.look()
    assert point.on_air == {"wlan0": ["wlan0"], "wlan1": ["wlan1"]}
    assert point.value((*mib.RADIO_ENTRY, 6, 3)) == mib.UP


def test_one_radio_that_fails_holds_up_no_other_and_is_tried_ever_more_seldom(point):
    point.add("wlan0", b"office")
    point.add("wlan1", b"five", b"wlan1")
    point.hostapd.forget()
    point.hostapd.refuses.add("wlan0")
    for _ in range(20):
        point.look()
    assert point.on_air == {"wlan1": ["wlan1"]}
    assert 3 <= len(point.complaints) <= 7
    point.hostapd.refuses.clear()
    point.look(61)
    assert set(point.on_air) == {"wlan0", "wlan1"} and point.value(mib.PROBLEM) == b""


def test_without_hostapd_nothing_is_set_and_nothing_is_up(point):
    point.add("wlan0", b"office")
    point.hostapd.end()
    point.look()
    assert point.value(bss(10, "wlan0")) == mib.DOWN and point.complaints
    with pytest.raises(mib.SetError):
        point.set((bss(mib.BSS_SSID, "wlan0"), b"other"))
    assert point.value(bss(mib.BSS_SSID, "wlan0")) == b"office"
    (point.folder / "global").unlink(missing_ok=True)
    point.hostapd = Hostapd(point.folder / "global")


def test_the_stand_in_keeps_and_reports(tmp_path):
    point = Point(tmp_path, "recorded")
    point.add("wlan0-a", b"a")
    assert point.driver.ports == {"wlan0-a"} and point.value(bss(10, "wlan0-a")) == mib.UP
    record = json.loads((tmp_path / "w" / "on-the-air.json").read_text())
    assert record["bsss"]["wlan0-a"]["ssid"] == "a" and "passphrase" not in record["bsss"]["wlan0-a"]
    point.driver.fails = "add-port"
    with pytest.raises(mib.SetError):
        point.add("wlan0-b", b"b")
    point.driver.fails = ""
    point.set((bss(mib.BSS_ROW, "wlan0-a"), 6))
    assert not point.driver.ports


def test_what_was_kept_must_make_sense(tmp_path):
    point = Point(tmp_path, "recorded")
    point.add("wlan0-a", b"a")
    kept = tmp_path / "state" / "w.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.write_text("{")
    with pytest.raises(WirelessError, match=r"w\.json"):
        point.start()


# -- the file ---------------------------------------------------------------------------------------------------------

RADIO = {"interface": "wlan0", "channels": [1, 6]}


def parse_wireless(section):
    return parse(json.dumps({"node": "a", "wireless": section}), "f").wireless


def test_the_section_is_read():
    found = parse_wireless({"radios": [{**RADIO, "most_dbm": 17.5, "options": ["ieee80211n=1"]}]})
    assert found.radios["wlan0"].most_mbm == 1750 and found.backend == "hostapd"


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ([], "wireless"),
        ({"radios": []}, "wireless.radios"),
        ({"radios": [RADIO, RADIO]}, "wireless.radios"),
        ({"radios": [RADIO], "backend": "x"}, "wireless.backend"),
        ({"radios": [RADIO], "state": "relative"}, "wireless.state"),
        ({"radios": [RADIO], "other": 1}, "wireless.other"),
        ({"radios": [{**RADIO, "channels": [35]}]}, "wireless.radios.0.channels"),
        ({"radios": [{**RADIO, "channels": []}]}, "wireless.radios.0.channels"),
        ({"radios": [{**RADIO, "interface": "a b"}]}, "wireless.radios.0.interface"),
        ({"radios": [{**RADIO, "options": ["ssid=evil"]}]}, "wireless.radios.0.options.0"),
        ({"radios": [{**RADIO, "options": ["a=1\nbss=evil"]}]}, "wireless.radios.0.options.0"),
        ({"radios": [{**RADIO, "country": "germany"}]}, "wireless.radios.0.country"),
        ({"radios": [{**RADIO, "most_bss": 0}]}, "wireless.radios.0.most_bss"),
        ({"radios": [{**RADIO, "most_dbm": 50}]}, "wireless.radios.0.most_dbm"),
    ],
)
def test_a_wrong_section_names_its_place(section, place):
    with pytest.raises(ConfigError) as error:
        parse_wireless(section)
    assert error.value.place == place


def test_only_users_who_may_write_and_only_what_can_be_set():
    user = {"name": "one", "auth_password": "a" * 8, "priv_password": "b" * 8}
    document = {"node": "a", "users": [user, {**user, "name": "two", "write": True}], "wireless": {"radios": [RADIO]}}
    text = snmpd_conf(parse(json.dumps(document), "f"), ["run"], "f", "/run/x/agentx")
    assert "rouser -s usm one authpriv -V hyroads" in text and "rouser -s usm two" not in text
    assert "group hyroads-writers usm two" in text and "rwuser" not in text
    assert 'access hyroads-writers "" usm priv exact hyroads hyroads-writable none' in text
    assert "agentXSocket /run/x/agentx" in text
    readers = snmpd_conf(parse(json.dumps({"node": "a", "users": [user]}), "f"), ["run"], "f")
    assert "agentx" not in readers and "writable" not in readers
