"""The emulator behind mac80211_hwsim: capacity, loss and links of the configuration hold for real 802.11 frames.

In a throw-away kernel: ``scripts/guest.sh --time-travel --radios 2 pytest tests/integration/test_radio_medium.py``.
Rates are L2 payload, as everywhere.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import radio_rig
from radio_rig import air, document, radios
from wireless_rig import wait_for

from hyroads.mininet.programs import find_program

MISSING = radio_rig.missing()
pytestmark = [pytest.mark.root, pytest.mark.radio, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.mark.parametrize("capacity_mbps", [5.0, 20.0])
def test_a_saturated_link_carries_its_capacity(tmp_path: Path, capacity_mbps: float) -> None:
    with air(tmp_path, capacity_mbps) as found:
        found.associate()
        rate_mbps, _ = found.udp(1.5 * capacity_mbps, 3)
        assert 0.95 <= rate_mbps / capacity_mbps <= 1.02
        stats = found.raw_stats()["hwsim"]
        assert (stats["odd"], stats["overruns"], stats["strangers"]) == (0, 0, 0)


def test_the_medium_is_no_bottleneck_at_100_mbps(tmp_path: Path) -> None:
    with air(tmp_path, 120.0) as found:
        found.associate()
        rate_mbps, _ = found.udp(130, 2)
        assert rate_mbps >= 100


def test_frames_that_are_lost_are_sent_again(tmp_path: Path) -> None:
    with air(tmp_path, 20.0) as found:
        found.associate()
        found.set_links(loss=0.3)
        found.medium.reset()
        rate_mbps, lost = found.udp(7, 5)
        link = found.medium.stats().links["sta-ap"]
        # 0.3 / 0.7 more transmissions than frames; all eight tries of a frame fail with 0.3^8.
        assert lost <= 1e-3 and rate_mbps == pytest.approx(7 * 1428 / 1400, rel=0.02)
        assert link.retries / link.frames == pytest.approx(0.3 / 0.7, rel=0.15)
        # The driver was told of each.
        assert int(found.station("tx retries")) >= 0.95 * link.retries
        assert found.ping_losses(300, 0.01) <= 1
        # Retransmissions cost airtime: 0.7 of the capacity is left.
        rate_mbps, _ = found.udp(17, 3)
        assert rate_mbps == pytest.approx(0.7 * 20, rel=0.05)


def test_stations_collide_where_the_configuration_says_so(tmp_path: Path) -> None:
    with air(tmp_path, 20.0, contention={"wifi": "csma-802.11"}) as found:
        found.associate()
        both = subprocess.Popen(
            ["ping", "-q", "-f", "-s", "1400", "-w", "3", radio_rig.STATION_IP], stdout=subprocess.DEVNULL
        )
        _, lost = found.udp(12, 3)
        both.wait(20)
        links = found.medium.stats().links
        assert min(links[link].collisions for link in ("ap-sta", "sta-ap")) > 0
        # Collisions are repaired as losses are.
        assert lost <= 1e-3


def test_a_link_that_is_cut_ends_the_association_and_the_signal_is_heard(tmp_path: Path) -> None:
    with air(tmp_path, 20.0) as found:
        found.associate()
        found.set_links(signal_dbm=-67)
        assert found.ping_losses(3, 0.05) == 0
        assert wait_for(lambda: found.station("signal:").startswith("-67"), 2.0)
        found.set_links(up=False)
        assert found.ping_losses(2, 0.05) == 2
        # The station misses its beacons.
        assert wait_for(lambda: not found.associated(), 20.0)
        found.set_links(up=True)
        assert found.associate() < 5.0


def test_an_access_point_that_is_off_acknowledges_nothing(tmp_path: Path) -> None:
    with air(tmp_path, 20.0) as found:
        found.associate()
        assert found.ping_losses(3, 0.05) == 0
        # Without a word of farewell.
        found.hostapd.kill()
        found.hostapd.wait(10)
        radio_rig.run("ip", "link", "set", found.ap.interface, "down")
        found.ping_losses(3, 0.05)
        assert found.raw_stats()["hwsim"]["deaf"] > 0
        assert wait_for(lambda: not found.associated(), 20.0)


def test_only_one_program_is_the_medium_and_its_end_frees_the_radios(tmp_path: Path) -> None:
    with air(tmp_path, 5.0) as found:
        found.associate()
        command = [find_program("hyroads-medium"), "--config", f"{tmp_path}/medium.json", "--hwsim", "--socket"]
        second = subprocess.run([*command, f"{tmp_path}/second"], capture_output=True, text=True, timeout=20)
        assert second.returncode == 1 and "another program is the medium" in second.stderr
        assert second.stderr.count("\n") == 1 and not (tmp_path / "second").exists()
        assert found.ping_losses(3, 0.05) == 0
        found.process.kill()
        found.process.wait(10)
        # The kernel's own medium, without loss and airtime, takes over.
        rate_mbps, _ = found.udp(10, 3)
        assert rate_mbps > 9


def test_a_radio_that_the_file_does_not_name_is_heard_by_nobody(tmp_path: Path) -> None:
    ap, sta = radios()[:2]
    other = {**document(ap, sta, 20.0)["ports"][1], "mac": "02:00:00:00:77:02", "radio": "42:00:00:00:77:00"}
    ports = [document(ap, sta, 20.0)["ports"][0], other]
    with air(tmp_path, 20.0, ports=ports) as found:
        found._try_to_join()
        assert not found.associated()
        assert found.raw_stats()["hwsim"]["strangers"] > 0
