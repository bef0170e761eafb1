"""The SNMP proxy in front of a real snmpd, asked by net-snmp's own tools, as the owners of slices would."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import metrics_page
import pytest

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(not shutil.which("snmpd") or not shutil.which("snmpwalk"), reason="snmpd or snmp not installed"),
]

NAMESPACE = "hr-snmpvisor"
DEVICE, VISOR, BEHIND = "127.0.0.1:1610", "127.0.0.1:1161", "127.0.0.1:1163"
METRICS = "127.0.0.1:9116"
PASSWORD, PRIVACY = "password-of-the-lab", "privacy-of-the-lab"
V3 = ("-v3", "-l", "authPriv", "-u", "lab", "-a", "SHA-256", "-A", PASSWORD, "-x", "AES", "-X", PRIVACY, "-n", "ap1")
IF_DESCR, IF_ADMIN, IF_NUMBER = "1.3.6.1.2.1.2.2.1.2", "1.3.6.1.2.1.2.2.1.7", "1.3.6.1.2.1.2.1.0"
SNMPD = """agentAddress udp:127.0.0.1:1610
rwcommunity device default
createUser proxy SHA-256 password-of-the-proxy AES privacy-of-the-proxy
rwuser -s usm proxy authpriv
"""
INTERFACES = {
    "radio0": {"owner": "production", "shared": ["web", "lab"]},
    "web0": {"owner": "web"},
    "lab0": {"owner": "lab"},
    "none0": {},
}


def inside(*command, **options):
    return subprocess.run(["ip", "netns", "exec", NAMESPACE, *command], text=True, capture_output=True, **options)


def flags(interface):
    return json.loads(inside("ip", "-j", "link", "show", interface).stdout)[0]["flags"]


def wait_for(condition, timeout_s=15.0):
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        if condition():
            return True
        time.sleep(0.1)
    return bool(condition())


class Rig:
    def __init__(self, directory, device):
        self.directory, self.device, self.started = directory, device, []

    def begin(self):
        directory = self.directory
        subprocess.run(["ip", "netns", "del", NAMESPACE], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
        inside("ip", "link", "set", "lo", "up", check=True)
        for name in INTERFACES:
            inside("ip", "tuntap", "add", "dev", name, "mode", "tap", check=True)
            inside("ip", "link", "set", name, "up", check=True)
        conf = directory / "snmpd.conf"
        conf.write_text(SNMPD)
        state = {"SNMP_PERSISTENT_DIR": str(directory / "state"), "MIBS": ""}
        self.start(
            "snmpd", "-f", "-C", "-c", str(conf), "-Lf", str(directory / "snmpd.log"), env={**os.environ, **state}
        )
        user = {"name": "lab", "password": PASSWORD, "privacy_password": PRIVACY}
        settings = {
            "audit_file": "audit.jsonl",
            "state_file": "engine.json",
            "shared_radios": "majority",
            "metrics": METRICS,
            "devices": {"ap1": {"address": DEVICE, "interfaces": dict(INTERFACES), **self.device}},
            "slices": {"web": {"community": "of-web"}, "lab": {"user": user}, "production": {"community": "of-all"}},
        }
        self.settings = settings
        self.visor = self.start_visor(settings, "visor")
        assert wait_for(lambda: self.get(IF_NUMBER, "-v2c", "-c", "of-web").returncode == 0), self.log()

    def start(self, *command, **options):
        process = subprocess.Popen(["ip", "netns", "exec", NAMESPACE, *command], stdin=subprocess.DEVNULL, **options)
        self.started.append(process)
        return process

    def log(self):
        return (self.directory / "visor.log").read_text()[-2000:]

    def get(self, oid, *access):
        return inside("snmpget", *access, "-m", "", "-Oqnv", "-t", "1", "-r", "1", VISOR, oid)

    def set(self, oid, kind, value, *access):
        return inside("snmpset", *access, "-m", "", "-Oqn", "-t", "1", "-r", "1", VISOR, oid, kind, value)

    def names(self, *access, tool="snmpwalk", peer=VISOR):
        done = inside(tool, *access, "-m", "", "-Oqn", "-t", "2", "-r", "1", peer, IF_DESCR)
        rows = [line.split(" ", 1) for line in done.stdout.splitlines() if " " in line]
        return {value.strip('"'): int(oid.rsplit(".", 1)[1]) for oid, value in rows if "No more" not in value}

    def stop(self):
        for process in reversed(self.started):
            process.send_signal(signal.SIGTERM)
        for process in self.started:
            process.wait(10)
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=True)

    def start_visor(self, settings, name):
        file = self.directory / f"{name}.json"
        file.write_text(json.dumps(settings))
        file.chmod(0o600)
        command = [sys.executable, "-m", "hyroads.controller.cli", "snmpvisor", "--config", str(file)]
        return self.start(*command, stderr=(self.directory / f"{name}.log").open("w"))


@pytest.fixture(scope="module", params=["v2c", "v3"])
def rig(request, tmp_path_factory):
    proxy = {"name": "proxy", "password": "password-of-the-proxy", "privacy_password": "privacy-of-the-proxy"}
    device = {"community": "device"} if request.param == "v2c" else {"user": proxy}
    rig = Rig(tmp_path_factory.mktemp(request.param), device)
    try:
        rig.begin()
        yield rig
    finally:
        rig.stop()


WEB, ALL = ("-v2c", "-c", "of-web@ap1"), ("-v2c", "-c", "of-all@ap1")


@pytest.mark.parametrize("tool", ["snmpwalk", "snmpbulkwalk"])
@pytest.mark.parametrize(("access", "names"), [(WEB, {"web0", "radio0"}), (V3, {"lab0", "radio0"}), (ALL, {"radio0"})])
def test_each_slice_walks_over_its_own_interfaces(rig, tool, access, names):
    real = rig.names("-v2c", "-c", "device", peer=DEVICE)
    assert real.keys() >= {*INTERFACES, "lo"}
    assert rig.names(*access, tool=tool) == {name: real[name] for name in names}
    assert rig.get(IF_NUMBER, *access).stdout.strip() == str(len(names))


def test_metrics_tell_what_became_of_the_requests_of_each_slice(rig):
    rig.get(IF_NUMBER, *WEB)
    rig.set(IF_DESCR + ".1", "s", "mine", *WEB)
    rig.get(IF_NUMBER, "-v2c", "-c", "of-nobody@ap1")
    text = inside("curl", "-s", "--max-time", "5", f"http://{METRICS}/metrics", check=True).stdout
    assert metrics_page.check(text, "All programs", "SNMPVisor", absent=("hyroads_rest_",)) > 10
    metrics_page.lint(text)
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    labels = '{slice="web",target="ap1"}'
    assert float(found[f"hyroads_snmp_requests_total{labels}"]) >= 2
    assert float(found[f"hyroads_snmp_refusals_total{labels}"]) >= 1
    assert float(found[f"hyroads_snmp_answer_seconds_count{labels}"]) >= 2
    assert float(found["hyroads_snmp_unidentified_total"]) >= 1
    assert (
        found['hyroads_snmp_up{target="ap1"}'] == "1.0" and float(found['hyroads_snmp_age_seconds{target="ap1"}']) < 15
    )
    other = inside("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://{METRICS}/", check=True)
    assert other.stdout == "404"


def test_a_whole_walk_ends_and_is_in_order(rig):
    done = inside("snmpbulkwalk", *WEB, "-m", "", "-Oqn", VISOR, "1.3.6.1")
    oids = [
        tuple(map(int, line.split(" ")[0][1:].split("."))) for line in done.stdout.splitlines() if line[:3] == ".1."
    ]
    assert done.returncode == 0 and oids == sorted(oids) and len(oids) > 30
    assert not any(oid[:8] == (1, 3, 6, 1, 2, 1, 4, 20) for oid in oids), "addresses of the device are nobody's"


def test_what_a_slice_may_not_change_stays_and_says_why(rig):
    real = rig.names("-v2c", "-c", "device", peer=DEVICE)
    for name, words in (("lab0", "noAccess"), ("none0", "noAccess"), ("radio0", "inconsistentValue")):
        done = rig.set(f"{IF_ADMIN}.{real[name]}", "i", "2", *WEB)
        assert done.returncode != 0 and words in done.stderr, done.stderr
    assert "notWritable" in rig.set("1.3.6.1.2.1.1.4.0", "s", "me", *WEB).stderr
    assert "UP" in flags("lab0")
    assert rig.get(f"{IF_ADMIN}.{real['lab0']}", *WEB).stdout.strip().startswith("No Such Instance")


def test_a_slice_switches_its_own_interface_off_and_on(rig):
    index = rig.names(*WEB)["web0"]
    for value, shown in (("2", False), ("1", True)):
        assert rig.set(f"{IF_ADMIN}.{index}", "i", value, *WEB).returncode == 0
        assert ("UP" in flags("web0")) is shown
    lines = [json.loads(line) for line in (rig.directory / "audit.jsonl").read_text().splitlines()]
    mine = [line for line in lines if f"{IF_ADMIN}.{index}" in line["set"]]
    assert [(line["slice"], line["device"], line["result"]) for line in mine] == [("web", "ap1", "done")] * 2


def test_two_of_three_who_share_a_radio_decide(rig):
    index = rig.names(*WEB)["radio0"]
    variable = f"{IF_ADMIN}.{index}"
    assert "inconsistentValue" in rig.set(variable, "i", "1", *WEB).stderr
    assert rig.set(variable, "i", "1", *V3).returncode == 0


def test_strangers_get_no_answer_or_a_report(rig):
    assert "Timeout" in rig.get(IF_NUMBER, "-v2c", "-c", "guess@ap1").stderr
    assert "Timeout" in rig.get(IF_NUMBER, "-v2c", "-c", "of-web@ap2").stderr
    wrong = [PASSWORD + "x" if word == PASSWORD else word for word in V3]
    assert "Authentication failure" in rig.get(IF_NUMBER, *wrong).stderr
    assert "Unknown user name" in rig.get(IF_NUMBER, *["eve" if word == "lab" else word for word in V3]).stderr
    plain = ("-v3", "-l", "authNoPriv", "-u", "lab", "-a", "SHA-256", "-A", PASSWORD, "-n", "ap1")
    assert "security level" in rig.get(IF_NUMBER, *plain).stderr
    assert PASSWORD not in rig.log() and "of-web" not in rig.log()


def test_a_hangup_is_ignored_and_said(rig):
    rig.visor.send_signal(signal.SIGHUP)
    assert wait_for(lambda: "SIGHUP is ignored" in rig.log())
    assert rig.visor.poll() is None and rig.get(IF_NUMBER, *WEB).returncode == 0


def test_an_owner_passes_on_a_part_of_a_view_by_a_visor_behind_the_visor(rig):
    """Of the interfaces that the owner of slice lab passes on, those are passed on that are lab's."""
    user = {"name": "lab", "password": PASSWORD, "privacy_password": PRIVACY}
    given = {"lab0": {"owner": "student"}, "web0": {"owner": "student"}, "none0": {"owner": "student"}}
    far = {"address": VISOR, "user": user, "context": "ap1", "interfaces": given}
    settings = {"listen": BEHIND, "devices": {"far": far}, "slices": {"student": {"community": "of-student"}}}
    student = ("-v2c", "-c", "of-student@far")
    behind = rig.start_visor(settings, "behind")
    try:
        assert wait_for(lambda: rig.names(*student, peer=BEHIND).keys() == {"lab0"})
        real = rig.names("-v2c", "-c", "device", peer=DEVICE)

        def switched_off(name):
            variable = f"{IF_ADMIN}.{real[name]}"
            inside("snmpset", *student, "-m", "", "-t", "2", "-r", "1", BEHIND, variable, "i", "2")
            return "UP" not in flags(name)

        assert [switched_off(name) for name in ("lab0", "web0", "none0")] == [True, False, False]
        inside("ip", "link", "set", "lab0", "up", check=True)
        # What lab loses, it has passed on to nobody.
        rig.visor.terminate()
        rig.visor.wait(10)
        rig.settings["devices"]["ap1"]["interfaces"]["lab0"] = {"owner": "web"}
        rig.visor = rig.start_visor(rig.settings, "visor")
        assert wait_for(lambda: rig.names(*WEB).keys() >= {"lab0"})
        assert not switched_off("lab0")
        assert wait_for(lambda: rig.names(*student, peer=BEHIND) == {})
    finally:
        behind.terminate()
        behind.wait(10)
