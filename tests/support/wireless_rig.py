"""An access point in a namespace of its own: real snmpd, the agent's wireless part, net-snmp's tools, real hostapd.

Radios are not to be had here, so hostapd runs with the driver ``none``: it reads configurations and keeps BSSs as ever,
but a radio has one BSS at most.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

from hyroads.controller.kernel.generic_netlink import family_id
from hyroads.controller.kernel.netlink import NetlinkError
from hyroads.mininet.radios import HWSIM

PROGRAMS = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
HOSTAPD = shutil.which("hostapd", path=PROGRAMS)
PASSWORD, PRIVACY = "password-of-the-operator", "privacy-of-the-operator"
HOST = "127.0.0.1:1610"


def v3(user, password=PASSWORD, privacy=PRIVACY):
    return ("-v3", "-l", "authPriv", "-u", user, "-a", "SHA-256", "-A", password, "-x", "AES", "-X", privacy)


OPERATOR, READER = v3("operator"), v3("reader")


def has_radios():
    """Whether this kernel makes emulated radios, for root."""
    try:
        return os.geteuid() == 0 and family_id(HWSIM) is not None
    except NetlinkError:
        return False


def wait_for(condition, timeout_s=20.0):
    """Until it holds; what it says last."""
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        if found := condition():
            return found
        time.sleep(0.05)
    return condition()


class AccessPoint:
    """``wireless`` is the section of the agent's file; in a namespace of its own, or in one that is there."""

    def __init__(self, directory: Path, wireless: dict, namespace=None, environment=None):
        self.directory, self.wireless, self.interfaces = directory, wireless, ("wlan0", "wlan1")
        self.own = namespace is None
        self.namespace = namespace or f"hr-ssids-{secrets.token_hex(3)}"
        # Stand-ins for tools that need radios come first.
        self.environment = {**(environment or os.environ), "PATH": f"{directory}:{PROGRAMS}"}
        self.started = []

    def __enter__(self):
        try:
            if self.own:
                subprocess.run(["ip", "netns", "add", self.namespace], check=True)
                self.inside("ip", "link", "set", "lo", "up", check=True)
            for name in self.interfaces:
                self.inside("ip", "tuntap", "add", "dev", name, "mode", "tap", check=True)
                self.inside("ip", "link", "set", name, "up", check=True)
            self.start_agent()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.started):
            if process.poll() is None:
                process.terminate()
        for process in self.started:
            process.wait(10)
        if self.own:
            subprocess.run(["ip", "netns", "del", self.namespace], check=False)

    def inside(self, *command, **options):
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace, *command], text=True, capture_output=True, **options
        )

    def start(self, *command, log="log", **options):
        with (self.directory / log).open("ab") as file:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *command],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, **options,
            )  # fmt: skip
        self.started.append(process)
        return process

    def start_agent(self):
        file = self.directory / "agent.json"
        users = [
            {"name": name, "auth_password": PASSWORD, "priv_password": PRIVACY, "write": name == "operator"}
            for name in ("operator", "reader")
        ]
        file.touch(mode=0o600)
        file.write_text(
            json.dumps({"node": "ap1", "listen": [HOST], "users": users, "interfaces": [], "wireless": self.wireless})
        )
        command = [sys.executable, "-m", "hyroads.controller.cli", "ap-agent", "--config", str(file)]
        self.agent = self.start(*command, "--directory", str(self.directory / "ap"), env=self.environment)
        assert wait_for(lambda: "1" in self.value("hyroadsRadioChannel", self.number("wlan0"))), self.log()

    def start_hostapd(self):
        """One that runs for radios to be added."""
        path = self.wireless["global"]
        process = self.start(str(HOSTAPD), "-g", path, log="hostapd.log")
        assert wait_for(lambda: Path(path).exists()), (self.directory / "hostapd.log").read_text()
        return process

    def log(self, name="log"):
        return (self.directory / name).read_text()[-3000:]

    # -- SNMP, by the names of the module

    _COLUMNS: ClassVar = {
        "hyroadsRadioName": "1.1.1", "hyroadsRadioChannel": "1.1.2", "hyroadsRadioFrequency": "1.1.3",
        "hyroadsRadioTxPower": "1.1.4", "hyroadsRadioAdminStatus": "1.1.5", "hyroadsRadioOperStatus": "1.1.6",
        "hyroadsBssRadio": "2.1.2", "hyroadsBssSsid": "2.1.3", "hyroadsBssSecurity": "2.1.4",
        "hyroadsBssPassphrase": "2.1.5", "hyroadsBssEnabled": "2.1.6", "hyroadsBssSlice": "2.1.7",
        "hyroadsBssAirtimeWeight": "2.1.8", "hyroadsBssBssid": "2.1.9", "hyroadsBssOperStatus": "2.1.10",
        "hyroadsBssStations": "2.1.11", "hyroadsBssRowStatus": "2.1.12", "hyroadsWirelessProblem": "3",
    }  # fmt: skip
    BASE = "1.3.6.1.4.1.8072.9999.9999.18514.1.4"

    def oid(self, name, row):
        index = row if isinstance(row, int) else ".".join(map(str, (len(row), *row.encode())))
        return f"{self.BASE}.{self._COLUMNS[name]}.{index}"

    def number(self, name):
        return int(json.loads(self.inside("ip", "-j", "link", "show", name).stdout)[0]["ifindex"])

    def value(self, name, row, access=READER, peer=HOST):
        done = self.inside("snmpget", *access, "-m", "", "-Oqnv", "-t", "5", "-r", "2", peer, self.oid(name, row))
        return done.stdout.strip().strip('"').strip()

    def set(self, *bindings, access=OPERATOR, peer=HOST):
        """(column, row, type, value) of each; what snmpset says."""
        words = [word for column, row, kind, value in bindings for word in (self.oid(column, row), kind, str(value))]
        done = self.inside("snmpset", *access, "-m", "", "-Oqn", "-t", "10", "-r", "0", peer, *words)
        return done.stdout + done.stderr

    def create(self, name, ssid, passphrase="", security=1, radio="wlan0", slice_name="", **options):
        return self.set(
            ("hyroadsBssRowStatus", name, "i", 4), ("hyroadsBssRadio", name, "s", radio),
            ("hyroadsBssSsid", name, "s", ssid), ("hyroadsBssSecurity", name, "i", security),
            ("hyroadsBssPassphrase", name, "s", passphrase), ("hyroadsBssSlice", name, "s", slice_name),
            ("hyroadsBssEnabled", name, "i", 1), **options,
        )  # fmt: skip

    def walk(self, access=READER, peer=HOST):
        done = self.inside("snmpwalk", *access, "-m", "", "-Oqn", "-t", "5", "-r", "2", peer, self.BASE)
        rows = (line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(f".{self.BASE}."))
        return {oid[len(self.BASE) + 2 :]: value.strip('"') for oid, value in rows if "No Such" not in value}

    def problem(self):
        return self.value("hyroadsWirelessProblem", 0)
