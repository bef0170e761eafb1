"""Networks of slices from end to end: a running slicer, an access point on Open vSwitch, stations that choose."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator

import ovs_rig
import pytest
from slicer_rig import SlicerRig, available
from wireless_rig import HOST, OPERATOR, PASSWORD, PRIVACY, AccessPoint, v3, wait_for

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not available(), reason="needs root and Open vSwitch"),
    pytest.mark.skipif(not shutil.which("snmpd") or not shutil.which("snmpset"), reason="snmpd or snmp not installed"),
]
SECRET = "correct horse battery"
VISOR = "127.0.0.1:1161"


def slice_of(name, port, *ssids):
    return {"name": name, "controllers": [f"tcp:127.0.0.1:{port}"], "ssids": list(ssids)}


LAB = slice_of("lab", 6702, {"name": "lab", "security": "wpa2", "passphrase_file": "lab.key"})
WEB = slice_of("web", 6703, {"name": "web"})
OWNERS = {name: v3(name, f"password-of-{name}", f"privacy-of-{name}") for name in ("lab", "web", "production")}


class Campus:
    """A slicer with learning switches as guests, an access point with two radios, SNMPVisor."""

    def __init__(self, rig: SlicerRig, point: AccessPoint) -> None:
        self.rig, self.point, self.stations = rig, point, {}
        self.file = rig.folder / "access-points.json"
        (rig.folder / "lab.key").write_text(SECRET + "\n")
        (rig.folder / "lab.key").chmod(0o600)

    def write(self) -> None:
        operator = {"name": "operator", "password": PASSWORD, "privacy_password": PRIVACY}
        radio = {"owner": "production", "shared": ["lab", "web"]}
        device = {
            "address": HOST, "user": operator, "switch": 1, "radios": {"wlan0": 2, "wlan1": 2},
            "interfaces": {"wlan0": radio, "wlan1": {"owner": "production"}},
        }  # fmt: skip
        users = {
            name: {"user": {"name": name, "password": f"password-of-{name}", "privacy_password": f"privacy-of-{name}"}}
            for name in OWNERS
        }
        settings = {"listen": VISOR, "audit_file": "audit.jsonl", "devices": {"ap1": device}, "slices": users}
        self.file.touch(mode=0o600)
        self.file.write_text(json.dumps(settings))

    def ssids(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hyroads.controller.cli", "ssids", *words]
        command += ["--access-points", str(self.file), "--socket", str(self.rig.folder / "control")]
        # The agent listens in the access point's namespace.
        inside = ["ip", "netns", "exec", self.rig.namespace, *command]
        return subprocess.run(inside, check=False, capture_output=True, text=True, timeout=90)

    def ports(self) -> set[str]:
        return {name for name in self.rig.vsctl("list-ports", "s1").split() if name.startswith("wlan")}

    def on_air(self) -> dict:
        return json.loads((self.point.directory / "ap" / "wireless" / "on-the-air.json").read_text())["bsss"]

    def associate(self, network: str, number: int) -> str:
        """A station that has chosen a network; its namespace."""
        namespace = f"{self.rig.namespace}-{network}"
        if network not in self.stations:
            subprocess.run(["ip", "netns", "add", namespace], check=True)
            self.rig.namespaces.append(namespace)
            interface = self.on_air()[network]["station"]
            self.rig.inside("ip", "link", "set", interface, "netns", namespace)
            for words in (("addr", "add", f"10.0.0.{number}/16", "dev", interface), ("link", "set", interface, "up")):
                subprocess.run(["ip", "-n", namespace, *words], check=True)
            subprocess.run(["ip", "netns", "exec", namespace, "ethtool", "-K", interface, "tx", "off"], check=False)
            self.stations[network] = namespace
        return self.stations[network]

    def reaches(self, one: str, number: int) -> bool:
        return self.rig.ping(self.stations[one], f"10.0.0.{number}", "-c", "5") > 0


@pytest.fixture(scope="module")
def campus(tmp_path_factory) -> Iterator[Campus]:
    directory = tmp_path_factory.mktemp("ap")
    with SlicerRig() as rig:
        for name, port in (("production", 6701), ("lab", 6702), ("web", 6703)):
            rig.ryu(name, port)
        rig.settings([{"name": "production", "controllers": ["tcp:127.0.0.1:6701"]}, LAB, WEB])
        rig.slicer()
        rig.switch(hosts=range(1, 3))
        assert ovs_rig.wait_until(lambda: rig.log("slicer").count("connected") >= 1, 60), rig.log("slicer")
        radios = [{"interface": name, "channels": [1, 6, 11], "most_bss": 2} for name in ("wlan0", "wlan1")]
        wireless = {"backend": "recorded", "bridge": "s1", "radios": radios}
        with AccessPoint(directory, wireless, rig.namespace, rig.env) as point:
            found = Campus(rig, point)
            found.write()
            yield found


def test_a_slice_with_an_ssid_has_its_network_and_stations_choose_it(campus: Campus) -> None:
    planned = campus.ssids("plan", "--json")
    assert planned.returncode == 1, planned.stderr
    assert not campus.ports()
    applied = campus.ssids("apply")
    assert applied.returncode == 0, applied.stderr + campus.point.log()
    assert campus.ports() == {"wlan0-lab", "wlan1-lab", "wlan0-web", "wlan1-web"}
    assert SECRET not in planned.stdout + applied.stdout + applied.stderr + json.dumps(campus.on_air())
    assert campus.ssids("plan").returncode == 0, "nothing is left to do"
    for number, network in enumerate(sorted(campus.ports()), 11):
        campus.associate(network, number)
    # wlan0-lab 11, wlan0-web 12, wlan1-lab 13, wlan1-web 14; hosts 1 and 2 are production's.
    assert wait_for(lambda: campus.reaches("wlan0-lab", 13)), campus.rig.log("slicer")
    assert wait_for(lambda: campus.reaches("wlan0-web", 14))
    assert campus.rig.reaches(1, 2)
    for one, other in (("wlan0-lab", 12), ("wlan1-web", 13), ("wlan0-lab", 1)):
        assert not campus.reaches(one, other)


def test_too_many_networks_are_refused_as_a_whole(campus: Campus) -> None:
    before = campus.on_air()
    document = json.dumps({"slices": [LAB, WEB, slice_of("third", 6709, {"name": "third"})]})
    file = campus.rig.folder / "three.json"
    file.write_text(document)
    refused = campus.ssids("apply", "--slices", str(file))
    assert refused.returncode == 2
    assert "access point ap1, radio wlan0: room for 2 networks, 3 are wanted" in refused.stderr
    assert campus.on_air() == before


def test_owners_see_and_change_their_own_networks_through_snmpvisor(campus: Campus) -> None:
    assert campus.ssids("apply").returncode == 0
    rig, point = campus.rig, campus.point
    rig.start("visor", sys.executable, "-m", "hyroads.controller.cli", "snmpvisor", "--config", str(campus.file))
    lab, web, production = ({"access": OWNERS[name], "peer": VISOR} for name in ("lab", "web", "production"))
    assert wait_for(lambda: point.value("hyroadsBssSsid", "wlan0-lab", **lab) == "lab"), rig.log("visor")
    number = point.number("wlan0")
    # A walk shows the slice's own rows and the radios that it shares, in order; not the second radio, no one else's.
    found = point.walk(**lab)
    names = {oid.split(".", 4)[4] for oid in found if oid.startswith("2.1.")}
    assert names == {".".join(map(str, name.encode())) for name in ("wlan0-lab", "wlan1-lab")}
    assert {oid.split(".")[3] for oid in found if oid.startswith("1.1.")} == {str(number)}
    assert "No Such" in point.value("hyroadsBssSsid", "wlan0-web", **lab)
    # Its own network.
    assert "Error" not in point.set(("hyroadsBssSsid", "wlan0-lab", "s", "our lab"), **lab)
    assert campus.on_air()["wlan0-lab"]["ssid"] == "our lab"
    assert "Error" not in point.set(
        ("hyroadsBssSecurity", "wlan0-lab", "i", 3), ("hyroadsBssPassphrase", "wlan0-lab", "s", "another secret"), **lab
    )
    assert campus.on_air()["wlan0-lab"]["security"] == "wpa3"
    # What is not its own, or everybody's.
    refusals = {
        "noAccess": point.set(("hyroadsBssSsid", "wlan0-web", "s", "mine"), **lab),
        "notWritable": point.set(("hyroadsRadioChannel", number, "i", 6), **lab),
    }
    for column, kind, value in (("Slice", "s", "web"), ("RowStatus", "i", 6), ("AirtimeWeight", "u", 200)):
        refusals[f"notWritable {column}"] = point.set((f"hyroadsBss{column}", "wlan0-lab", kind, value), **lab)
    assert {name: name.split()[0] in text for name, text in refusals.items()} == dict.fromkeys(refusals, True), refusals
    assert "wrongLength" in point.set(("hyroadsBssPassphrase", "wlan0-lab", "s", "short"), **lab)
    # The radio's owner sets the channel, and all who share the radio see it.
    assert "Error" not in point.set(("hyroadsRadioChannel", number, "i", 6), **production)
    assert point.value("hyroadsRadioChannel", number, **web) == "6"
    audit = [json.loads(line) for line in (rig.folder / "audit.jsonl").read_text().splitlines()]
    assert {(line["slice"], line["result"]) for line in audit} >= {("lab", "done"), ("lab", "no_access")}
    assert b"another secret".hex() not in json.dumps(audit) and "secret" in json.dumps(audit)
    rig.stop("visor")


def test_a_slice_that_goes_takes_its_networks_along(campus: Campus) -> None:
    rig = campus.rig
    control = str(rig.folder / "control")
    command = ("hyroads.controller.cli", "ssids", "run", "--access-points", str(campus.file), "--socket", control)
    rig.start("supervisor", sys.executable, "-m", *command)
    assert wait_for(lambda: campus.on_air()["wlan0-lab"]["ssid"] == "lab"), rig.log("supervisor")
    rig.slices("remove-slice", "web")
    assert wait_for(lambda: campus.ports() == {"wlan0-lab", "wlan1-lab"}), rig.log("supervisor")
    assert wait_for(lambda: set(campus.on_air()) == {"wlan0-lab", "wlan1-lab"}), rig.log("supervisor")
    assert wait_for(lambda: campus.reaches("wlan0-lab", 13)), "others stay"
    rig.stop("supervisor")
    assert "Error" not in campus.point.set(("hyroadsBssRowStatus", "wlan0-lab", "i", 6), access=OPERATOR)
    assert "wlan0-lab" not in campus.ports()
