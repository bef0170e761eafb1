"""The units of an access point in a real systemd: install, crash, watchdog, upgrade and purge in a box of the lab.

A reboot is a row of the lab's verdict (test_lab.py).
"""

from __future__ import annotations

import base64
import faulthandler
import shutil

import pytest
from network_names import network_name

from hyroads.mininet.programs import LAB_TOOLS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.nightly,
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in LAB_TOOLS), reason="systemd-nspawn or mmdebstrap is not installed"
    ),
    pytest.mark.skipif(shutil.which("nfpm") is None, reason="nfpm is not installed"),
]
WITHIN_S = 900.0
"""A bound against hanging: the first lab of a machine makes its root and packages."""
NO_LAB = ("no mirror of Debian", "could not make the root", "control groups")
# As a user types it; each step that is met has a line.
STEPS = r"""
set -eu
cd /
met() { echo "met $1"; }
until_met() { timeout "$1" sh -c "until $3; do sleep 0.1; done"; met "$2"; }
pid() { systemctl show -p MainPID --value "$1"; }
UNITS="hyroads-edge@attic hyroads-ap-agent"
apt-get install -y -q /media/packages/hyroads-edge_*.deb /media/packages/hyroads-ap_*.deb >/dev/null
for unit in $UNITS; do ! systemctl is-enabled -q "$unit" && ! systemctl is-active -q "$unit"; done
met "nothing runs after the installation"

install -D -m 0600 -o hyroads-ap /dev/stdin /etc/hyroads/agent.token <<END
a-token-of-the-operator
END
install -m 0600 -o hyroads-ap /dev/stdin /etc/hyroads/ap.json <<END
{"node": "attic", "interfaces": [{"name": "eth1", "technology": "plc", "backend": "plc"}]}
END
sed -i 's/^CONTROLLER=.*/CONTROLLER=192.0.2.1:6654/' /etc/default/hyroads-ap
systemctl enable -q --now $UNITS
systemctl is-active -q $UNITS
met "both services say that they are ready"

for unit in $UNITS; do
    before=$(pid "$unit")
    kill -KILL "$before"
    until_met 10 "$unit runs again after a crash" \
        "systemctl is-active -q $unit && [ \$(systemctl show -p MainPID --value $unit) != $before ]"
done

for unit in $UNITS; do
    before=$(pid "$unit")
    kill -STOP "$before"
    until_met 60 "$unit runs again after it hung" \
        "systemctl is-active -q $unit && [ \$(systemctl show -p MainPID --value $unit) != $before ]"
    journalctl -q -u "$unit" | grep -q "Watchdog timeout"
done

edge=$(pid hyroads-edge@attic) agent=$(pid hyroads-ap-agent)
mkdir /root/new
for deb in /media/packages/hyroads-edge_*.deb /media/packages/hyroads-ap_*.deb; do
    dpkg-deb -R "$deb" /root/unpacked
    sed -i -E 's/^Version: .*/Version: 9.9.9/; s/\(= [^)]*\)/(= 9.9.9)/' /root/unpacked/DEBIAN/control
    # nfpm writes an empty line if there are none, which dpkg-deb does not take.
    sed -i '/^$/d' /root/unpacked/DEBIAN/conffiles
    dpkg-deb -b --root-owner-group /root/unpacked "/root/new/$(basename "$deb")" >/dev/null
    rm -r /root/unpacked
done
dpkg -i /root/new/*.deb >/dev/null
systemctl is-active -q $UNITS
[ "$(pid hyroads-edge@attic)" != "$edge" ] && [ "$(pid hyroads-ap-agent)" != "$agent" ]
grep -q 192.0.2.1:6654 /etc/default/hyroads-ap
met "an upgrade restarts both and keeps the settings"

rm -r /root/new /etc/hyroads
apt-get purge -y -q hyroads-edge hyroads-ap >/dev/null
! pgrep -f hyroads
! getent passwd hyroads-ap
[ -z "$(systemctl list-unit-files --no-legend 'hyroads*')" ]
[ -z "$(find / -xdev -name '*hyroads*' -not -path '/proc/*' -not -path '/media/*' -not -path '/var/log/*')" ]
met "nothing is left after a purge"
"""
MET = [
    "nothing runs after the installation",
    "both services say that they are ready",
    "hyroads-edge@attic runs again after a crash",
    "hyroads-ap-agent runs again after a crash",
    "hyroads-edge@attic runs again after it hung",
    "hyroads-ap-agent runs again after it hung",
    "an upgrade restarts both and keeps the settings",
    "nothing is left after a purge",
]


def test_units_of_an_access_point_in_a_real_systemd(hyroads, tmp_path) -> None:
    faulthandler.cancel_dump_traceback_later()
    script, steps = tmp_path / "script", base64.b64encode(STEPS.encode()).decode()
    script.write_text(f"attic echo {steps} | base64 -d > /root/steps && bash /root/steps\n")
    name = network_name("units")
    done = hyroads("lab", "three-boxes", "--name", name, "--script", str(script), timeout_s=WITHIN_S)
    if done.returncode == 2 and any(words in done.stderr for words in NO_LAB):
        pytest.skip(f"no lab here: {done.stderr.strip().splitlines()[-1]}")
    said = [line.removeprefix("met ") for line in done.stdout.splitlines() if line.startswith("met ")]
    assert said == MET, done.stdout + done.stderr
