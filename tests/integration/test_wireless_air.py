"""Several networks on one radio, on the air: needs two radios of mac80211_hwsim (scripts/guest.sh --radios 2).

One is the access point's, with a real hostapd; the other is a station's, with a real wpa_supplicant.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from wireless_rig import PROGRAMS, wait_for

from hyroads.controller.access_point import wireless_mib as mib
from hyroads.controller.access_point.backends import run_command
from hyroads.controller.access_point.config import WirelessConfig
from hyroads.controller.access_point.linux_wifi import LinuxWifi
from hyroads.controller.access_point.mib import Value
from hyroads.controller.access_point.model import RadioError
from hyroads.controller.access_point.nl80211 import Nl80211
from hyroads.controller.access_point.wireless import RadioAbilities
from hyroads.controller.access_point.wireless_agent import WirelessObjects, interface_number
from hyroads.controller.access_point.wireless_hostapd import HostapdBackend

RADIOS = sorted(
    path.name
    for path in Path("/sys/class/net").glob("wlan*")
    if (path / "device" / "driver").resolve().name == "mac80211_hwsim"
)
HOSTAPD, SUPPLICANT, IW = (shutil.which(name, path=PROGRAMS) for name in ("hostapd", "wpa_supplicant", "iw"))

pytestmark = [
    pytest.mark.root,
    pytest.mark.radio,
    pytest.mark.skipif(os.geteuid() != 0 or len(RADIOS) < 2, reason="needs root and two radios of mac80211_hwsim"),
    pytest.mark.skipif(not HOSTAPD or not SUPPLICANT or not IW, reason="needs hostapd, wpa_supplicant, iw"),
]
SECRET = b"correct horse battery"


class Air:
    def __init__(self, folder):
        self.folder, self.radio, self.station, self.complaints = folder, RADIOS[0], RADIOS[1], []
        self.hostapd = subprocess.Popen([HOSTAPD, "-g", f"{folder}/global"], stdout=subprocess.DEVNULL)
        assert wait_for((folder / "global").exists)
        abilities = {self.radio: RadioAbilities(self.radio, (1, 6), most_bss=4)}
        backend = HostapdBackend(
            WirelessConfig(abilities, global_socket=f"{folder}/global"), folder / "wireless", run_command
        )
        self.objects = WirelessObjects(
            abilities, backend, folder / "state.json", self.complaints.append, interface_number
        )
        self.supplicant = None
        self.objects.look(1.0)

    def end(self):
        self.leave()
        self.hostapd.terminate()
        self.hostapd.wait(10)

    def set(self, *bindings):
        self.objects.test([(oid, Value("integer" if isinstance(v, int) else "octet", v)) for oid, v in bindings])
        self.objects.commit()
        self.objects.cleanup()

    def network(self, column, name):
        return (*mib.BSS_ENTRY, column, *mib.bss_index(f"{self.radio}-{name}"))

    def add(self, name, security=1, passphrase=b""):
        values = {mib.BSS_ROW: 4, mib.BSS_RADIO: self.radio.encode(), mib.BSS_SSID: name.encode(), mib.BSS_ENABLED: 1,
                  mib.BSS_SECURITY: security, mib.BSS_PASSPHRASE: passphrase}  # fmt: skip
        self.set(*((self.network(column, name), value) for column, value in values.items()))

    def tune(self, column, value):
        self.set(((*mib.RADIO_ENTRY, column, interface_number(self.radio)), value))

    def join(self, ssid, *lines):
        """A station chooses a network."""
        self.leave()
        block = "\n".join((f'ssid="{ssid}"', "scan_freq=2412 2437", *lines))
        (self.folder / "sta.conf").write_text(f"ctrl_interface={self.folder}/sta\nnetwork={{\n{block}\n}}\n")
        command = [SUPPLICANT, "-Dnl80211", f"-i{self.station}", "-c", str(self.folder / "sta.conf")]
        self.supplicant = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        assert wait_for(lambda: self.stations(ssid)), run_command([IW, "dev"])

    def leave(self):
        if self.supplicant is not None:
            self.supplicant.terminate()
            self.supplicant.wait(10)
            self.supplicant = None

    def stations(self, name):
        """By what the driver says, with the time for which each has been there."""
        done = subprocess.run(
            [IW, "dev", f"{self.radio}-{name}", "station", "dump"], capture_output=True, text=True, check=False
        )
        authorised = "authorized:\tyes" in done.stdout
        return [line for line in done.stdout.splitlines() if "associated at [boottime]" in line] if authorised else []


@pytest.fixture
def air(tmp_path):
    found = Air(tmp_path)
    yield found
    found.end()


def test_networks_come_and_go_and_others_keep_their_stations(air):
    air.add("lab", 2, SECRET)
    air.join("lab", f'psk="{SECRET.decode()}"', "ieee80211w=1")
    there = air.stations("lab")
    air.add("open")
    air.add("sae", 3, SECRET)
    shown = run_command([IW, "dev"])
    assert all(f"ssid {name}" in shown for name in ("lab", "open", "sae"))
    air.set((air.network(mib.BSS_ROW, "open"), 6))
    air.set((air.network(mib.BSS_SSID, "sae"), b"other"))
    air.tune(mib.RADIO_POWER, 1200)
    powers = [line for line in run_command([IW, "dev", f"{air.radio}-lab", "info"]).splitlines() if "txpower" in line]
    assert "12.00 dBm" in powers[0]
    # The interface of that name is there and no radio's: the driver refuses.
    with pytest.raises(mib.SetError):
        air.set(
            ((*mib.BSS_ENTRY, mib.BSS_ROW, *mib.bss_index("lo")), 4),
            ((*mib.BSS_ENTRY, mib.BSS_RADIO, *mib.bss_index("lo")), air.radio.encode()),
            ((*mib.BSS_ENTRY, mib.BSS_SSID, *mib.bss_index("lo")), b"lo"),
            ((*mib.BSS_ENTRY, mib.BSS_ENABLED, *mib.bss_index("lo")), 1),
        )
    assert air.stations("lab") == there, "associated ever since"
    air.objects.look(100.0)
    assert air.objects.get(air.network(11, "lab")).value == 1


def test_wpa3_and_another_channel(air):
    air.add("sae", 3, SECRET)
    air.join("sae", "key_mgmt=SAE", f'sae_password="{SECRET.decode()}"', "ieee80211w=2")
    air.tune(mib.RADIO_CHANNEL, 6)
    assert "2437 MHz" in run_command([IW, "dev", f"{air.radio}-sae", "info"])
    assert wait_for(lambda: air.stations("sae")), "the station comes back"
    air.tune(mib.RADIO_ADMIN, 2)
    assert f"{air.radio}-sae" not in run_command([IW, "dev"])


def test_readings_are_those_that_iw_prints(air):
    """What the agent reads of a station and the channel by nl80211, beside iw's own text of both."""
    air.add("lab")
    air.join("lab", "key_mgmt=NONE")
    interface = f"{air.radio}-lab"
    source = Nl80211(interface)
    (read,) = source.stations()
    printed = run_command([IW, "dev", interface, "station", "dump"])
    assert re.findall(r"^Station ([0-9a-f:]+)", printed, re.MULTILINE) == [read.mac]
    for name, value in (
        ("tx packets", read.tx_packets),
        ("tx retries", read.tx_retries),
        ("tx failed", read.tx_failed),
    ):
        assert int(re.search(rf"{name}:\s*(\d+)", printed)[1]) >= value, name
    for name, rate in (("tx bitrate", read.tx), ("rx bitrate", read.rx)):
        found = re.search(rf"{name}:\s*([\d.]+) MBit/s", printed)
        assert (found and float(found[1])) == (rate and rate.phy_mbps), name
        assert rate is None or rate.is_consistent, rate
    assert read.signal_dbm is not None and f"{read.signal_dbm}" in re.search(r"signal avg:\s*(.*)", printed)[1]
    survey = run_command([IW, "dev", interface, "survey", "dump"])
    busy_us, active_us = source.survey()
    assert (active_us > 0) == ("channel busy time" in survey) and busy_us <= active_us
    # The access point may not have sent a frame at a rate of its own so far.
    assert LinuxWifi(source).read(1.0).neighbours[0].rx_capacity_kbps > 0


def test_an_interface_that_is_no_radio_is_refused():
    with pytest.raises(RadioError, match="nl80211: lo: "):
        Nl80211("lo").stations()
    with pytest.raises(RadioError, match="nl80211: none0: "):
        Nl80211("none0").stations()
