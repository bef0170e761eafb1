"""Emulated power-line adapters on real interfaces: Debian's plc-utils and our reader say the same of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hyroads.controller.access_point.model import RadioError
from hyroads.controller.access_point.plc import Plc
from hyroads.controller.access_point.plc_reader import HomePlugReader
from hyroads.mininet.lab.medium import Station
from hyroads.mininet.lab.power_line import PowerLine, RunningLine
from hyroads.mininet.programs import find_program

pytestmark = pytest.mark.root
UNPACKED = Path(__file__).parents[2] / ".venv" / "plc-utils" / "usr" / "bin"
ADAPTERS = ("00:0b:3b:aa:00:01", "00:0b:3b:aa:00:02")
HOSTS = ("02:00:01:02:00:01", "02:00:01:02:00:02")
PEER = "hr-plc-peer"
TX_MBPS, RX_MBPS = 132, 98
PHY_MBPS = 17


def run(command: str, check: bool = True) -> str:
    done = subprocess.run(command.split(), capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 or not check, f"{command}: {done.stderr}"
    return done.stdout


def judge(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(UNPACKED))
    if found is None:
        pytest.skip(f"{name} is not installed (plc-utils, plc-utils-extra; make setup brings them)")
    return found


class Line:
    """Two hosts, each behind an adapter: ``hrp0`` here, ``hrp1`` in another namespace."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modems: list[subprocess.Popen[str]] = []

    def make(self) -> None:
        run(f"ip netns add {PEER}")
        for i, host in enumerate(HOSTS):
            run(f"ip link add hrp{i} address {host} type veth peer name hrp-in{i}")
        # A frame on the line has a header of the adapters, and a tag if the host's frame has one.
        run("ip link add hrp-out0 mtu 1518 type veth peer name hrp-out1 mtu 1518")
        run(f"ip link set hrp1 netns {PEER}")
        for name in ("hrp0", "hrp-in0", "hrp-in1", "hrp-out0", "hrp-out1"):
            run(f"ip link set {name} up")
        run("ip address add 10.99.0.1/24 dev hrp0")
        run(f"ip -n {PEER} address add 10.99.0.2/24 dev hrp1")
        run(f"ip -n {PEER} link set hrp1 up")

    def start(self, **changed: Any) -> None:
        """Starts both adapters; ``changed`` holds for the first one."""
        for i in (0, 1):
            rates = {"tx_mbps": (TX_MBPS, RX_MBPS)[i], "rx_mbps": (RX_MBPS, TX_MBPS)[i], "block_errors": 0.05}
            station = {"mac": ADAPTERS[1 - i], "tei": 2 - i, "behind": HOSTS[1 - i], **rates}
            config = {"mac": ADAPTERS[i], "tei": i + 1, "stations": [station], **(changed if i == 0 else {})}
            file = self._folder / f"modem{i}.json"
            file.write_text(json.dumps(config))
            command = [find_program("hyroads-modem"), "--config", str(file), "--die-with-parent"]
            command += ["--inside", f"hrp-in{i}", "--outside", f"hrp-out{i}"]
            modem = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            self._modems.append(modem)
            assert modem.stdout is not None
            assert "ready" in modem.stdout.readline()

    def stop(self) -> None:
        """Ends the adapters."""
        for modem in self._modems:
            modem.terminate()
            assert modem.wait(10) == 0
        self._modems.clear()

    def remove(self) -> None:
        """Leaves nothing."""
        for modem in self._modems:
            modem.kill()
            modem.wait(10)
        for name in ("hrp0", "hrp-in1", "hrp-out0", "hrp-bridge"):
            run(f"ip link del {name}", check=False)
        run(f"ip netns del {PEER}", check=False)


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    made = Line(tmp_path)
    made.remove()
    try:
        made.make()
        yield made
    finally:
        made.remove()


@pytest.fixture
def shared(line: Line, tmp_path: Path) -> Iterator[RunningLine]:
    """The same two hosts, with adapters on a medium that is shared with a network next door."""
    outlets = tuple(Station(f"hrp-in{i}", adapter) for i, adapter in enumerate(ADAPTERS))
    running = RunningLine(PowerLine("hrp-line", PHY_MBPS, outlets), tmp_path / "power-line")
    try:
        running.start()
        yield running
    finally:
        running.stop()


def ping(count: int, size: int = 1400) -> None:
    run(f"ping -q -c {count} -i 0.002 -s {size} 10.99.0.2")


def eventually(holds: Callable[[], bool], what: str, patience_s: float = 10.0) -> None:
    until_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < until_s, what
        time.sleep(0.05)


def test_debians_programs_and_our_reader_agree(line: Line) -> None:
    plcstat, plcrate = judge("plcstat"), judge("plcrate")
    line.start(sniffer=False)
    ping(100)
    reader = HomePlugReader("hrp0")
    (station,) = reader.view(0.0).stations
    table = run(f"{plcstat} -t -i hrp0 local")
    row = re.search(r"REM STA (\d+) (\S+) (\S+) (\d+) (\d+) (\S+) (\S+)", table)
    assert row is not None, table
    assert (row[2].lower(), row[3].lower()) == (station.mac, station.bridged_mac) == (ADAPTERS[1], HOSTS[1])
    assert (int(row[4]), int(row[5])) == (station.tx_mbps, station.rx_mbps) == (TX_MBPS, RX_MBPS)
    assert row[6] == "QCA7420" and row[7].startswith("MAC-QCA7420-hyroads-modem")
    assert re.search(rf"LOC CCO 001 {ADAPTERS[0]}", table, re.IGNORECASE), table
    rates = run(f"{plcrate} -n -i hrp0 local")
    assert f"TX {TX_MBPS:03d} mbps" in rates and f"RX {RX_MBPS:03d} mbps" in rates
    assert station.tx is not None and station.tx.pbs_passed >= 280

    def counters_agree() -> bool:
        # Neighbour discovery may send a frame meanwhile, so only a pair of equal readings is compared with.
        before = _tx(reader)
        counted = run(f"{plcstat} -q -d tx -s 0xF8 -p {ADAPTERS[1]} -i hrp0 {ADAPTERS[0]}")
        after = _tx(reader)
        passed, failed, _, acked = re.findall(r"TX +(\d+) +(\d+) +([\d.]+)% +(\d+)", counted)[0]
        assert before <= (int(passed), int(failed), int(acked)) <= after
        return before == after

    eventually(counters_agree, "the counters do not come to rest")
    assert [round(ble) for ble in station.slot_ble_mbps] == [TX_MBPS] * 6


def test_reads_an_adapter_whose_port_is_in_a_bridge(line: Line) -> None:
    line.start()
    run("ip link add hrp-bridge type bridge")
    run("ip link set hrp-bridge up")
    run("ip link set hrp0 master hrp-bridge")
    (near,) = Plc(HomePlugReader("hrp0")).read(0.0).neighbours
    assert (near.mac, near.tx_capacity_kbps) == (HOSTS[1], 78_029)


def test_carries_1500_bytes_and_no_more(line: Line) -> None:
    line.start()
    run("ping -q -c 3 -i 0.01 -s 1472 -M do 10.99.0.2")
    for place in ("hrp0", "hrp-in0", "hrp-in1", "hrp-out0", "hrp-out1"):
        run(f"ip link set {place} mtu 1600")
    assert "100% packet loss" in run("ping -q -c 3 -i 0.01 -W 1 -s 1473 -M do 10.99.0.2", check=False)


def share(radio: Plc, source: str, load: Callable[[], None] = lambda: None) -> float:
    """Busy share of two and a half seconds, in which ``load`` is called ten times a second."""
    eventually(lambda: radio.read(time.monotonic()).busy_source == source, f"no busy time by {source}")
    first, began = radio.read(time.monotonic()), time.monotonic()
    while time.monotonic() < began + 2.5:
        time.sleep(0.1)
        load()
        last = radio.read(time.monotonic())
    return (last.busy_us - first.busy_us) / (last.active_us - first.active_us)


def test_sniffer_sees_foreign_traffic_and_counters_do_not(line: Line) -> None:
    line.start(foreign_share=0.5)
    assert share(Plc(HomePlugReader("hrp0")), "sniffer") == pytest.approx(0.5, abs=0.1)
    line.stop()
    line.start(foreign_share=0.5, sniffer=False)
    assert share(Plc(HomePlugReader("hrp0")), "counters") < 0.1


def test_adapters_on_a_medium_read_it(shared: RunningLine) -> None:
    ping(1)
    radio = Plc(HomePlugReader("hrp0"))
    capacity_kbps = round(1000 * (PHY_MBPS + 0.65) / 1.7)

    def is_known() -> bool:
        (near,) = radio.read(0.0).neighbours
        # The adapter has learned what is behind the other one.
        return (near.mac, near.tx_capacity_kbps, near.rx_capacity_kbps) == (HOSTS[1], capacity_kbps, capacity_kbps)

    eventually(is_known, "the rates of the medium are not those of the adapter")
    with shared.traffic_next_door(0.5):
        assert share(radio, "sniffer") == pytest.approx(0.5, abs=0.07)
        assert shared.airtime(*shared.plan.next_door)[1] > 1.0


def test_counters_give_the_airtime_of_own_traffic_alone(shared: RunningLine) -> None:
    ping(1)
    shared.plug_in(sniffer=False)
    radio = Plc(HomePlugReader("hrp0"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender, shared.traffic_next_door(0.3):

        def load() -> None:
            for _ in range(20):
                sender.sendto(bytes(1472), ("10.99.0.2", 9))

        began_s, before_s = shared.airtime(1, 2)
        busy = share(radio, "counters", load)
        ended_s, after_s = shared.airtime(1, 2)
    assert after_s - before_s > 0.3
    assert busy == pytest.approx((after_s - before_s) / (ended_s - began_s), rel=0.15)


def test_silent_and_late_adapters_give_one_line(line: Line) -> None:
    radio = Plc(HomePlugReader("hrp0"))
    line.start(answer_delay_ms=1200)
    with pytest.raises(RadioError, match="no power-line adapter answers"):
        radio.read(0.0)
    line.stop()
    line.start(qualcomm=False)
    eventually(lambda: _reads(radio), "the adapter is read once it answers")
    assert radio.read(0.0).neighbours[0].mac == ADAPTERS[1]


def _tx(reader: HomePlugReader) -> tuple[int, int, int]:
    (station,) = reader.view(time.monotonic()).stations
    assert station.tx is not None
    return station.tx.pbs_passed, station.tx.pbs_failed, station.tx.mpdus_acked


def _reads(radio: Plc) -> bool:
    try:
        return bool(radio.read(0.0).neighbours)
    except RadioError:
        return False
