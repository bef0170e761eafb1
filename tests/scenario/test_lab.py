"""The lab of boxes: real systems, set up from packages as the how-to pages say; and nothing is left of it."""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from network_names import network_name
from page_session import DOCS, blocks, steps

from hyroads.mininet import cgroups
from hyroads.mininet.lab.packages import CHECKOUT
from hyroads.mininet.lab.three_boxes import LEAVE, PURGE
from hyroads.mininet.lab.verdict import EXIT_MISSED
from hyroads.mininet.programs import LAB_TOOLS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(
        any(shutil.which(tool) is None for tool in LAB_TOOLS), reason="systemd-nspawn or mmdebstrap is not installed"
    ),
    pytest.mark.skipif(shutil.which("nfpm") is None, reason="nfpm is not installed"),
]
WHOLE_WITHIN_S = 900.0
"""A bound against hanging. Root, packages and lab are meant to take 300 s on a machine that does nothing else."""
LONG_WITHIN_S = 3600.0
HAS_GUEST = subprocess.run([CHECKOUT / "scripts" / "guest.sh", "--which"], capture_output=True).returncode == 0
NO_MIRROR = ("no mirror of Debian", "could not make the root")
AFTERWARDS = ("topology", "flows")
"""What the tutorial looks at once the boxes are adopted."""
INSTALLED = "from the first package to the multipath in force"


def traces(name: str) -> list[str]:
    """All that exists of a lab outside its own namespaces."""
    groups = [str(folder) for folder in cgroups.lab_folders(name) if folder.exists()]
    files = [str(path) for folder in ("/run/hyroads", "/run/netns") for path in Path(folder).glob(f"*{name}*")]
    return groups + files


def boxes_of(name: str) -> list[int]:
    """Processes of systemd-nspawn that belong to a lab: their command lines name its folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"systemd-nspawn") and any(f"/{name}/".encode() in word for word in words):
            found.append(int(path.parent.name))
    return found


def can_make_groups() -> bool:
    """Whether boxes can have control groups here; in some containers these can only be read."""
    folders = cgroups.lab_folders("probe")
    return bool(folders) and all(os.access(folder.parent, os.W_OK) for folder in folders)


def measured(hyroads, document_of, *options: str, within_s: float = WHOLE_WITHIN_S):
    """The lab's verdict; skipped where no Debian can be had, or no control groups."""
    if not can_make_groups():
        pytest.skip("no control groups can be made here, which systemd needs")
    # The first run makes a Debian and packages, which takes longer than tests may stand still; the bound is below.
    faulthandler.cancel_dump_traceback_later()
    words = ("lab", "three-boxes", "--json", "--name", network_name("boxes"), *options)
    done = hyroads(*words, timeout_s=within_s)
    if done.returncode == 2 and any(words in done.stderr for words in NO_MIRROR):
        pytest.skip(f"no Debian to make boxes of: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode in (0, EXIT_MISSED), done.stderr
    document = document_of(done.stdout)
    assert document["ok"] == (done.returncode == 0)
    return document


@pytest.fixture(scope="module")
def verdict(hyroads, document_of):
    """The lab with the rows of every day."""
    return measured(hyroads, document_of)


@pytest.mark.nightly
def test_boxes_carry_what_they_should_with_ports_of_all_sizes(hyroads, document_of) -> None:
    found = measured(hyroads, document_of, "--long", "--learning", "--repeat", "5", within_s=LONG_WITHIN_S)
    assert len(found["rows"]) == 31 and found["ok"], found["rows"]


@pytest.mark.nightly
@pytest.mark.skipif(not HAS_GUEST, reason="no guest kernel (scripts/guest.sh --build)")
def test_boxes_with_radios_carry_a_multipath_on_the_datapath_of_a_guest_kernel(hyroads, document_of) -> None:
    found = measured(hyroads, document_of, "--kernel", within_s=LONG_WITHIN_S)
    rows = {row["what"]: row for row in found["rows"]}
    assert all(row["measured"] is not None for row in rows.values()), rows
    assert rows["TCP over the multipath, share of margin x both segments"]["met"], rows


def test_boxes_from_packages_carry_a_multipath_and_come_back_after_a_reboot(verdict) -> None:
    rows = {row["what"]: row for row in verdict["rows"]}
    assert len(rows) == 17 and rows[INSTALLED]["met"], rows
    # The lab says of each figure whether it is enough; that of a reboot is there only if the attic came back.
    assert all(row["measured"] is not None for row in rows.values()), rows
    assert verdict["ok"] == all(row["met"] for row in rows.values())
    assert traces(network_name("boxes")) == [] and boxes_of(network_name("boxes")) == []


def lines_of(title: str) -> list[str]:
    """What the tutorial has typed in a terminal of this title."""
    page = DOCS / "tutorials" / "three-boxes.md"
    return [step.words for block in blocks(page) if block.title == title for step in steps(block)]


def test_the_lab_types_the_tutorial_word_for_word(verdict) -> None:
    """Names of boxes and the fingerprint differ each time; all else is as on the page, and nothing else is typed."""

    def general(line: str) -> str:
        line = re.sub(r"(?<=--pin )[0-9a-f]{64}$", "SHA256", line)
        return re.sub(r"(?<=box adopt )[0-9a-f]{6}-[0-9a-f]{6}\b", "BOX", line)

    assert [general(line) for line in verdict["typed"]["controller"]] == [
        general(line) for line in lines_of("the controller") if line.split()[1] not in AFTERWARDS
    ]
    for box in ("gateway", "upstairs", "attic"):
        typed = [line for line in lines_of("each box") if line != "hyroads box doctor"]
        assert len(typed) == 2 and [general(line) for line in verdict["typed"][box]] == typed
    left = [PURGE, LEAVE]
    assert sorted(lines_of("a box that leaves")) == sorted(left)


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGKILL], ids=lambda number: number.name
)
def test_ended_lab_leaves_nothing(lab, verdict, tmp_path, number) -> None:
    name, started = network_name("ended"), tmp_path / "started"
    script = tmp_path / "script"
    flush = "laptop sh -c 'echo 1 > /proc/sys/net/ipv4/route/flush && echo its network has settings'"
    script.write_text(f"# as a user types it\nboxes\n{flush}\nattic systemctl is-system-running\nattic sleep 300\n")
    with started.open("w") as output:
        process = subprocess.Popen(
            [*lab.hyroads, "lab", "three-boxes", "--name", name, "--script", str(script)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        assert lab.wait_for(lambda: "running" in started.read_text(), 120.0), started.read_text()
        assert "its network has settings" in started.read_text(), "a box can't write /proc/sys/net"
        assert len(boxes_of(name)) == 6 and traces(name)
        os.kill(process.pid, number)
        process.wait(30)
    finally:
        process.kill()
    assert lab.wait_for(lambda: not boxes_of(name) and not traces(name), 10.0), (boxes_of(name), traces(name))
