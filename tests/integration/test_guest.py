"""scripts/guest.sh with the kernel that it chooses here: in a guest, that is the guest's own."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from page_session import DOCS, blocks, shows, steps

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "guest.sh"
PAGE = DOCS / "how-to" / "radios.md"
WHICH = subprocess.run([SCRIPT, "--which"], capture_output=True, text=True)
UML = WHICH.stdout.startswith("uml")
TRAVEL = ["--time-travel"] if UML else []

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(WHICH.returncode != 0, reason=WHICH.stderr.strip()),
]


def guest(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *TRAVEL, *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def test_status_and_output_are_the_commands_and_in_order() -> None:
    done = guest("bash", "-c", "seq 100000; echo err >&2; exit 3")
    assert (done.returncode, done.stderr) == (3, "err\n")
    assert done.stdout == "".join(f"{number}\n" for number in range(1, 100001))


def test_the_command_is_root_and_has_radios_of_its_own() -> None:
    done = guest("--radios", "3", "sh", "-c", "id -u; ls /sys/class/ieee80211 | wc -l; cat /sys/class/net/lo/operstate")
    assert done.stdout.split()[:2] == ["0", "3"], done.stderr
    assert guest("sh", "-c", "ls /sys/class/ieee80211 | wc -l").stdout.split() == ["0"]


def test_open_vswitch_of_the_kernel_carries_packets() -> None:
    commands = """set -e
    cd /run/openvswitch
    ovsdb-tool create /tmp/conf.db /usr/share/openvswitch/vswitch.ovsschema
    ovsdb-server --detach --no-chdir --pidfile --log-file=/tmp/db.log --remote=punix:db.sock /tmp/conf.db
    ovs-vswitchd --detach --no-chdir --pidfile --log-file=/tmp/ovs.log 2>/dev/null
    ovs-vsctl --no-wait init
    ovs-vsctl add-br br0
    for name in a b; do
        ip netns add $name
        ip link add name p$name type veth peer name eth0 netns $name
        ip link set p$name up
        ovs-vsctl add-port br0 p$name
        ip -n $name link set eth0 up
    done
    ip -n a address add 10.9.9.1/24 dev eth0
    ip -n b address add 10.9.9.2/24 dev eth0
    ip netns exec a ping -c 5 -i 0.2 -q 10.9.9.2 | grep received
    ovs-appctl dpctl/show | head -n 1"""
    done = guest("bash", "-c", commands)
    assert "5 packets transmitted, 5 received" in done.stdout, done.stdout + done.stderr
    assert "system@ovs-system" in done.stdout


def test_only_what_is_shared_stays(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("before")
    mark = Path("/var/tmp") / f"hyroads-guest-test-{os.getpid()}"
    done = guest("--share", str(tmp_path), "sh", "-c", f"cat {tmp_path}/old; echo new >{tmp_path}/new; echo x >{mark}")
    assert (done.returncode, done.stdout) == (0, "before")
    assert (tmp_path / "new").read_text() == "new\n"
    assert not mark.exists()


def test_what_is_shown_below_tmp_is_a_copy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    done = guest("--see", str(tmp_path), "sh", "-c", f"cat {tmp_path}/file; echo other >{tmp_path}/file")
    assert (done.returncode, done.stdout) == (0, "here")
    assert (tmp_path / "file").read_text() == "here"
    assert guest("cat", f"{tmp_path}/file").returncode == 1


@pytest.mark.skipif(not UML, reason="time stands still in User-Mode Linux only")
def test_time_travel_is_repeatable_and_does_not_wait() -> None:
    script = "cat /proc/uptime; for i in $(seq 300); do :; done; sleep 300.07; cat /proc/uptime"
    start_s = time.monotonic()
    first = guest("bash", "-c", script)
    assert time.monotonic() - start_s < 60
    begin_s, end_s = (float(line.split()[0]) for line in first.stdout.splitlines())
    assert end_s - begin_s == pytest.approx(300.07, abs=0.02)
    assert guest("bash", "-c", script).stdout == first.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_the_script_ends_the_guest(number: int) -> None:
    name = f"sleep {1000 + number}.{os.getpid()}"
    running = subprocess.Popen(
        [SCRIPT, *TRAVEL, "bash", "-c", f"echo up; exec {name}"],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert running.stdout is not None and running.stdout.readline() == "up\n"
    running.send_signal(number)
    running.wait(10)
    until_s = time.monotonic() + 10
    while left := processes(f"hyroads-guest-{running.pid}-") + processes(name):
        assert time.monotonic() < until_s, left
        time.sleep(0.05)


HERE = "not run: a kernel is needed; tests/integration/test_guest.py runs it"
COMMANDS = [step for block in blocks(PAGE) if block.note == HERE for step in steps(block)]


@pytest.mark.skipif(not UML, reason="the page travels in time")
def test_the_page_says_what_happens() -> None:
    # In the checkout itself: of a folder below /tmp, a guest sees nothing but the one in which it is started.
    root = SCRIPT.parents[1]
    written = root / "out" / "radios.txt"
    written.unlink(missing_ok=True)
    assert len(COMMANDS) == 4
    for step in COMMANDS:
        done = subprocess.run(["bash", "-c", step.words], cwd=root, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        assert shows(done.stdout, step.output) is None, done.stdout
    assert "Wiphy" in written.read_text()
    written.unlink()


def processes(word: str) -> list[str]:
    """Command lines in which the word is."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line:
            found.append(line)
    return found
