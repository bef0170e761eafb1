"""HYROADS-MIB is valid under a MIB compiler, and what the agent serves is what the module says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hyroads.controller.access_point import mib, wireless_mib

ROOT = Path(__file__).parents[2]
MODULE = ROOT / "mibs" / "HYROADS-MIB.txt"
# Debian does not ship the RFCs' modules; tests/support/mibs has the names and numbers that ours needs of them.
FOLDERS = f"{ROOT / 'tests' / 'support' / 'mibs'}:/usr/share/snmp/mibs"
needs_smilint = pytest.mark.skipif(
    shutil.which("smilint") is None or not Path("/usr/share/snmp/mibs/NET-SNMP-MIB.txt").exists(),
    reason="smitools and libsnmp-base are not installed",
)


def smilint(path):
    command = ["smilint", "-c", "/dev/null", "-l", "6", "-s", "-m", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env={"SMIPATH": FOLDERS, "PATH": "/usr/bin:/bin"})
    return done.stdout + done.stderr


@needs_smilint
def test_the_module_is_valid_at_the_strictest_level():
    assert smilint(MODULE) == ""


@needs_smilint
@pytest.mark.parametrize(
    ("good", "bad"), [("Gauge32 (0..10000)", "Gauge33"), ("{ hyroadsNeighbourEntry 9 }", "{ x 9 }")]
)
def test_the_compiler_would_notice(tmp_path, good, bad):
    broken = tmp_path / MODULE.name
    broken.write_text(MODULE.read_text().replace(good, bad, 1))
    assert broken.name in smilint(broken)


def columns(entry):
    text = MODULE.read_text()
    return {
        int(number): access
        for access, number in re.findall(
            rf"OBJECT-TYPE(?:(?!OBJECT-TYPE).)*?MAX-ACCESS\s+(\S+)(?:(?!OBJECT-TYPE).)*?::= \{{ {entry} (\d+) \}}",
            text,
            re.DOTALL,
        )
    }


def test_served_columns_are_those_of_the_module():
    readable = {n for n, access in columns("hyroadsInterfaceEntry").items() if access == "read-only"}
    assert readable == set(mib.INTERFACE_COLUMNS)
    readable = {n for n, access in columns("hyroadsNeighbourEntry").items() if access == "read-only"}
    assert readable == set(mib.NEIGHBOUR_COLUMNS)
    served = (
        ("hyroadsRadioEntry", wireless_mib.RADIO_COLUMNS, wireless_mib.RADIO_SETTERS),
        ("hyroadsBssEntry", wireless_mib.BSS_COLUMNS, {**wireless_mib.BSS_SETTERS, wireless_mib.BSS_ROW: None}),
    )
    for entry, readable_columns, setters in served:
        access = columns(entry)
        assert {n for n, each in access.items() if each != "not-accessible"} == set(readable_columns)
        assert {n for n, each in access.items() if each in ("read-write", "read-create")} == set(setters)
    assert set(columns("hyroadsAgent")) == {oid[-2] for oid in (mib.NODE_NAME, mib.BOOT, mib.CLOCK, mib.SNAPSHOT_AGE)}


@pytest.mark.skipif(shutil.which("snmptranslate") is None, reason="snmp is not installed")
@pytest.mark.parametrize(
    ("name", "oid"),
    [
        ("hyroadsNodeName", mib.NODE_NAME[:-1]),
        ("hyroadsSnapshotAge", mib.SNAPSHOT_AGE[:-1]),
        ("hyroadsInterfaceBusyTime", (*mib.INTERFACE_ENTRY, 5)),
        ("hyroadsNeighbourTxCapacity", (*mib.NEIGHBOUR_ENTRY, 3)),
        ("hyroadsRadioTxPower", (*wireless_mib.RADIO_ENTRY, wireless_mib.RADIO_POWER)),
        ("hyroadsBssPassphrase", (*wireless_mib.BSS_ENTRY, wireless_mib.BSS_PASSPHRASE)),
        ("hyroadsWirelessProblem", wireless_mib.PROBLEM[:-1]),
    ],
)
def test_net_snmp_gives_the_names_our_numbers(name, oid, tmp_path):
    command = ["snmptranslate", "-M", f"{FOLDERS}:{MODULE.parent}", "-m", "HYROADS-MIB", "-On", f"HYROADS-MIB::{name}"]
    environment = {"SNMP_PERSISTENT_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "." + ".".join(map(str, oid))
