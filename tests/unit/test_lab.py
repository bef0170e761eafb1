"""The pure parts of ``hyroads lab``: mirrors, keys, control groups, wires, documents, reports, the verdict."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from page_session import DOCS, blocks, steps

from hyroads.controller.core.addressing import Addressing
from hyroads.controller.core.netfile import parse
from hyroads.mininet import cgroups, run_directory
from hyroads.mininet.lab import backhaul, box_state, doctor_rows, guest, line_rows, packages, three_boxes, wires
from hyroads.mininet.lab.box import Typed
from hyroads.mininet.lab.measuring import Measuring
from hyroads.mininet.lab.root import RootRecipe, last_words, ready_root, sources_of
from hyroads.mininet.lab.verdict import EXIT_MISSED, Row, Verdict, Wanted, answered, datagrams, tcp_mbps
from hyroads.mininet.programs import EmulationError, Program

TUTORIAL = DOCS / "tutorials" / "three-boxes.md"
MIRROR, OTHER = "http://mirror.example/debian/", "http://tools.example/apt/"
TARGETS = f"""{MIRROR} bookworm main
{MIRROR} bookworm contrib
{MIRROR} bookworm main
{MIRROR} bookworm-updates main
http://mirror.example/debian-security/ bookworm-security main
{OTHER} stable main
"""


def test_root_comes_from_the_mirrors_of_this_machine_with_updates() -> None:
    assert sources_of(TARGETS, "bookworm") == (
        f"deb {MIRROR} bookworm main contrib",
        f"deb {MIRROR} bookworm-updates main",
        "deb http://mirror.example/debian-security/ bookworm-security main",
    )


def test_another_suite_comes_from_the_same_debian_mirror() -> None:
    assert sources_of(TARGETS, "trixie") == (f"deb {MIRROR} trixie main",)


@pytest.mark.parametrize("targets", ["", f"{OTHER} stable main\n", "one two\n"])
def test_machine_without_a_debian_mirror_is_refused(targets: str) -> None:
    with pytest.raises(EmulationError, match="no mirror of Debian bookworm"):
        sources_of(targets, "bookworm")


def test_key_of_a_root_depends_on_its_contents_and_not_on_its_mirror() -> None:
    key = RootRecipe("bookworm", "amd64", ("systemd", "iw")).key
    assert len(key) == 16
    assert RootRecipe("bookworm", "amd64", ("iw", "systemd"), ("deb http://x.example/debian bookworm main",)).key == key
    others = [("trixie", "amd64", ("systemd", "iw")), ("bookworm", "arm64", ("systemd", "iw"))]
    others.append(("bookworm", "amd64", ("systemd",)))
    assert len({key, *(RootRecipe(*other).key for other in others)}) == 4


def test_cached_root_is_used_again(tmp_path: Path) -> None:
    wanted = RootRecipe("bookworm", "amd64")
    (tmp_path / wanted.key).mkdir()
    said: list[str] = []
    assert ready_root(wanted, tmp_path, said.append) == tmp_path / wanted.key
    assert "from the cache" in said[0]


def test_root_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["sh", "-c", "mkdir -p $0/etc; echo E: no such suite; exit 1"]
    monkeypatch.setattr(RootRecipe, "command", lambda self, target: [*words, str(target)])
    wanted = RootRecipe("bookworm", "amd64")
    with pytest.raises(EmulationError, match="E: no such suite"):
        ready_root(wanted, tmp_path, lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == [f"{wanted.key}.lock"]


def test_last_words_leave_empty_lines_out() -> None:
    assert last_words(["one", "", "two", " three ", "four", ""]) == "two; three; four"
    assert last_words([]) == "it printed nothing"


def test_key_of_packages_depends_on_names_and_contents() -> None:
    files = [("a", b"1"), ("b", b"2")]
    assert packages.contents_key(files) == packages.contents_key(reversed(files))
    assert len({packages.contents_key(each) for each in (files, [("a", b"1")], [("a", b"12"), ("b", b"")])}) == 3


def test_newest_packages_of_the_architecture_are_taken(tmp_path: Path) -> None:
    ours = ("hyroads_1_amd64", "hyroads-edge_1_amd64", "hyroads-edge_1_arm64", "hyroads-ap_1_all", "hyroads-box_1_all")
    for name in ours:
        (tmp_path / f"{name}.deb").touch()
    found = {name: file.name for name, file in packages.files_of(tmp_path, "amd64").items()}
    assert found["hyroads-edge"] == "hyroads-edge_1_amd64.deb" and found["hyroads-ap"] == "hyroads-ap_1_all.deb"
    with pytest.raises(EmulationError, match="no hyroads_"):
        packages.files_of(tmp_path, "armhf")


def test_packages_are_built_once_for_the_same_sources_and_two_sets_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [("a.py", b"1")]
    built: list[Path] = []

    def build(work: Path) -> None:
        built.append(work)
        (work / f"hyroads_{len(built)}_amd64.deb").touch()

    monkeypatch.setattr(packages, "_sources", lambda: sources)
    monkeypatch.setattr(packages, "_build", build)
    first = packages.built_packages(tmp_path, lambda _: None)
    assert packages.built_packages(tmp_path, lambda _: None) == first and len(built) == 1
    for number, text in enumerate((b"2", b"3"), 1):
        sources[0] = ("a.py", text)
        latest = packages.built_packages(tmp_path, lambda _: None)
        os.utime(latest, (2e9 + number, 2e9 + number))
    assert (
        len(built) == 3 and not first.exists() and [file.name for file in latest.iterdir()] == ["hyroads_3_amd64.deb"]
    )


V1_MOUNTS = """30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
31 20 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
32 20 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""


def test_control_groups_of_both_versions_are_found() -> None:
    membership = "9:name=systemd:/user/me\n4:memory:/x\n0::/user/me\n"
    assert cgroups.own_folders(membership, V1_MOUNTS) == (
        Path("/sys/fs/cgroup/systemd/user/me"),
        Path("/sys/fs/cgroup/unified/user/me"),
    )
    only_v2 = "40 20 0:30 /machine/me /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    assert cgroups.own_folders("0::/machine/me/in\n", only_v2) == (Path("/sys/fs/cgroup/in"),)


def test_only_groups_of_labs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    for name in ("hr-home/box/init.scope", "other/hr-x", "system.slice"):
        (tmp_path / name).mkdir(parents=True)
    for recorded in ("hr-home", "system.slice", "other/../system.slice/hr-x"):
        cgroups.remove(tmp_path / recorded)
    cgroups.remove(tmp_path.parent / "hr-outside")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "system.slice"]


def test_release_removes_the_recorded_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "ROOT", tmp_path / "run")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path / "cgroup")
    group = tmp_path / "cgroup" / "hr-home"
    (group / "attic").mkdir(parents=True)
    directory = run_directory.claim("home")
    directory.record([], [group])
    directory.release()
    assert not group.exists() and not (tmp_path / "run" / "home").exists()


def test_ports_have_unicast_addresses_of_their_own_and_names_that_fit() -> None:
    plan = three_boxes.plan()
    macs = [port.mac for box in plan.boxes for port in box.ports]
    assert len(set(macs)) == len(macs) and all(mac.startswith("00:") for mac in macs)
    wires.check(plan.boxes, plan.segments)
    with pytest.raises(EmulationError, match="longer than 15"):
        wires.check([wires.BoxPlan("a-long-name", (wires.Port("eth10", "lan", macs[0]),))], plan.segments)
    with pytest.raises(EmulationError, match="no segment moon"):
        wires.check([wires.BoxPlan("a", (wires.Port("eth0", "moon", macs[0]),))], plan.segments)


def test_network_file_of_the_lab_is_one_that_the_controller_reads() -> None:
    mac = "00:00:5e:00:53:0f"
    document = three_boxes.network_document({"wifi": 19.5}, {"attic": mac})
    network = parse(document, "network.yaml", measured=True)
    assert {network.links[network.link_index[link]].technology for link in network.unmeasured} == {"plc"}
    addressing = Addressing.of(network)
    assert addressing.host_mac["attic"] == mac and len(network.links) == 12
    assert {"eth1", "wlan0", "attic-host", "attic-acc", "attic-net"} <= set(addressing.port_names("attic"))


def test_files_of_the_lab_are_those_of_the_tutorial_but_for_the_links() -> None:
    shown = {block.title: yaml.safe_load(block.text) for block in blocks(TUTORIAL) if block.title.endswith(".yaml")}
    network = shown["network.yaml"]
    macs = {node: entry["mac"] for node, entry in network["nodes"].items() if "mac" in entry}
    made = three_boxes.network_document({"wifi": 19.5}, macs)
    assert (network.pop("links"), len(made.pop("links"))) == ("discover", 6)
    technologies = {node: entry.pop("technologies") for node, entry in network["nodes"].items()}
    assert technologies == {node: ["plc", "wifi"] for node in three_boxes.NODES} and made == network
    token = shown["hyroads.yaml"]["api_tokens"]["ops"]["token"]
    assert three_boxes.controller_settings(token) == shown["hyroads.yaml"]


def test_network_file_of_a_lab_with_radios_is_that_of_the_tutorial() -> None:
    (shown,) = [yaml.safe_load(block.text) for block in blocks(TUTORIAL) if block.title == "network.yaml"]
    macs = {node: entry["mac"] for node, entry in shown["nodes"].items() if "mac" in entry}
    assert three_boxes.network_document(None, macs) == shown


def test_backhaul_is_typed_as_on_its_page() -> None:
    page = DOCS / "how-to" / "backhaul.md"
    (shown,) = [block.text for block in blocks(page) if block.language == "text"]
    assert shown == backhaul.TEXT
    typed = [step.words for block in blocks(page) if block.title == "each access point" for step in steps(block)]
    assert typed == [backhaul.INSTALL, backhaul.START, backhaul.SHOW, backhaul.FORWARDING, backhaul.RESIZE]


def test_file_for_emulated_radios_differs_from_the_page_in_country_and_rates_only() -> None:
    page, made = (text.splitlines() for text in (backhaul.TEXT, backhaul.for_emulated_radios(backhaul.TEXT)))
    assert [line for line in page if line not in made] == ["country=DE"]
    assert [line.strip() for line in made if line not in page] == ["disable_ht=1", "disable_vht=1"]


def test_radios_of_boxes_share_one_channel_and_take_the_place_of_ports() -> None:
    wired, plan = three_boxes.plan(), three_boxes.plan(radios=True)
    assert not any(box.radios for box in wired.boxes)
    assert [{port.name for port in (*box.ports, *box.radios)} for box in plan.boxes] == [
        {port.name for port in box.ports} for box in wired.boxes
    ]
    radios = {radio.hardware: radio for box in plan.boxes for radio in box.radios}
    assert len(radios) == len(three_boxes.NODES) and {radio.name for radio in radios.values()} == {"wlan0"}
    macs = [port.mac for box in plan.boxes for port in (*box.ports, *box.radios)]
    assert len(set(macs)) == len(macs)
    wires.check(plan.boxes, plan.segments)
    (air,) = plan.radio_channels
    medium = air.medium()
    assert {port["radio"]: port["mac"] for port in medium["ports"]} == {key: each.mac for key, each in radios.items()}
    assert medium["conflicts"] == {"technology": True} and len(medium["links"]) == 6


def test_guest_of_the_lab_runs_on_virtual_time_where_it_is_user_mode_linux() -> None:
    words = ["lab", "three-boxes", "--kernel"]
    command = guest.guest_command("uml", words, [Path("/tmp/debs"), Path("/tmp"), Path("/root/roots")])
    assert command[0].endswith("scripts/guest.sh") and command[-3:] == words
    assert "--time-travel" in command and "--time-travel" not in guest.guest_command("own", words, [])
    # A guest does not have what lies below /tmp unless it is named.
    assert [command[place + 1] for place, word in enumerate(command) if word == "--see"] == ["/tmp/debs"]


def test_lab_without_a_guest_kernel_names_the_command_that_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "guest.sh"
    script.write_text("#!/bin/sh\necho 'hyroads guest: no kernel; make one: scripts/guest.sh --build' >&2\nexit 125\n")
    script.chmod(0o755)
    monkeypatch.setattr(guest, "_SCRIPT", script)
    with pytest.raises(EmulationError, match=r"^no kernel; make one: scripts/guest\.sh --build$"):
        guest.guest_kind()
    monkeypatch.setattr(guest, "_SCRIPT", tmp_path / "nothing")
    with pytest.raises(EmulationError, match="needs a checkout"):
        guest.guest_kind()


def rows_of(monkeypatch: pytest.MonkeyPatch, *, radios: bool, virtual_time: bool) -> tuple[list[str], list[str]]:
    """Names of the rows that are made, and of those that are not, on boxes of which each measurement succeeds."""
    made: list[str] = []
    monkeypatch.setattr(guest, "has_virtual_time", lambda: virtual_time)
    monkeypatch.setattr(Measuring, "_row", lambda self, wanted, measure, repeat=None: made.append(wanted.what))
    setup = MagicMock(radios=radios, bare={}, typed={})
    return made, list(Measuring(setup).run().not_made)


@pytest.mark.parametrize("virtual_time", [False, True])
def test_lab_in_a_guest_measures_ping_and_tcp_and_lists_all_other_rows_as_not_made(
    monkeypatch: pytest.MonkeyPatch, virtual_time: bool
) -> None:
    every, none = rows_of(monkeypatch, radios=False, virtual_time=False)
    made, not_made = rows_of(monkeypatch, radios=True, virtual_time=virtual_time)
    assert len(every) == 17 and none == []
    assert sorted([*made, *not_made]) == sorted(every)
    assert sum(what.startswith(("TCP", "ping")) for what in made) == 4
    assert ("from the first package to the multipath in force" in not_made) == virtual_time


def test_differences_of_a_box_name_what_came_went_and_changed() -> None:
    before = {"/etc/a": "-rw 1", "/etc/b": "-rw 2", "interface eth1": "up"}
    assert box_state.differences(before, before) == []
    after = {"/etc/a": "-rw 1", "/etc/c": "-rw 3", "interface eth1": "down"}
    assert box_state.differences(before, after) == [
        "/etc/b is gone", "/etc/c is left", "interface eth1: up became down",
    ]  # fmt: skip


def test_state_of_a_box_has_its_files_by_content_and_skips_what_debian_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "syslog").touch()
    (tmp_path / "settings").write_text("one")
    (tmp_path / "link").symlink_to("settings")
    monkeypatch.setattr(box_state, "TOPS", (str(tmp_path),))
    monkeypatch.setattr(box_state, "COMPARED_BY_CONTENT", (str(tmp_path),))
    monkeypatch.setattr(box_state, "LEFT_OUT", {str(tmp_path / "log")})
    first = dict(box_state.files())
    assert set(first) == {str(tmp_path / "settings"), str(tmp_path / "link")}
    (tmp_path / "settings").write_text("two")
    assert [key for key, value in box_state.files() if first[key] != value] == [str(tmp_path / "settings")]


def running(tmp_path: Path, script: str) -> Typed:
    program = Program("attic# join", ["sh", "-c", script], tmp_path / "typed.log")
    program.start()
    return Typed(program)


def test_command_in_the_background_is_followed_by_its_output(tmp_path: Path) -> None:
    typed = running(tmp_path, "echo pending: box b8-41, key 8a; read -r _; echo done")
    assert typed.said(re.compile(r"box (\S+), key"), 10.0)[1] == "b8-41"
    assert typed.finish(10.0).splitlines() == ["pending: box b8-41, key 8a", "done"]


def test_command_that_fails_in_the_background_is_named_with_its_last_line(tmp_path: Path) -> None:
    typed = running(tmp_path, "echo wrong pin; exit 2")
    with pytest.raises(EmulationError, match="attic# join ended with status 2: wrong pin"):
        typed.said(re.compile("pending"), 10.0)
    with pytest.raises(EmulationError, match="wrong pin"):
        typed.finish(10.0)


def test_adapters_of_the_power_line_share_one_medium_and_hear_each_other() -> None:
    plan = three_boxes.plan()
    (line,) = plan.power_lines
    assert {outlet.segment for outlet in line.outlets} <= {segment.name for segment in plan.segments}
    medium = line.medium()
    names = [port["name"] for port in medium["ports"]]
    assert len(names) == 5 and all(len(name) <= wires.MOST_NAME for name in names)
    assert all({*port["hears"], port["name"]} == set(names) for port in medium["ports"])
    assert medium["conflicts"] == {"technology": True}
    # A full frame and its header on the line take what a frame alone takes at the capacity of HomePlug AV.
    assert medium["links"][0]["capacity_mbps"] * 1500 / 1514 == pytest.approx((17 + 0.65) / 1.7)
    links = {link["id"] for link in medium["links"]}
    for number in (1, 2, 3):
        adapter = line.adapter(number, Path("/run/medium.sock"))
        assert adapter["mac"] == line.outlets[number - 1].mac and len(adapter["stations"]) == 2
        assert {name for each in adapter["stations"] for name in (each["tx_link"], each["rx_link"])} <= links


def test_stations_of_the_radio_channel_share_its_time_and_have_the_addresses_of_boxes() -> None:
    plan = three_boxes.plan()
    (channel,) = plan.radio_channels
    ports = {port.segment: port.mac for box in plan.boxes for port in box.ports if port.name == "wlan0"}
    assert {station.segment: station.mac for station in channel.stations} == ports and len(ports) == 3
    mtus = {segment.name: segment.mtu for segment in plan.segments}
    medium = channel.medium()
    assert {mtus[segment] for segment in ports} == {medium["options"]["mtu"]} == {2304}
    assert medium["conflicts"] == {"technology": True} and len(medium["links"]) == 6
    assert [port["mac"] for port in medium["ports"]] == [station.mac for station in channel.stations]
    assert all(len(port["hears"]) == 2 for port in medium["ports"])


def test_verdict_reads_what_the_controller_says_of_the_power_line() -> None:
    path = {"rate_mbps": 4.0}
    flow = {
        "multipath": [{**path, "links": ["gateway-attic-plc"]}, {**path, "links": ["gateway-attic-wifi"]},
                      {**path, "links": ["upstairs-attic-plc~", "x-wifi"]}],
        "bandit": {"probing": 0},
    }  # fmt: skip
    heard = [
        {"node": node, "technology": "plc", "external": share} for node, share in (("attic", 0.1), ("gateway", 0.5))
    ]
    radios = [{"node": "gateway", "interfaces": [{"technology": "plc", "busy_source": "sniffer"}]}]
    measurements = {"interfaces": heard, "flows": [{"id": "web", "delivered_mbps": 7.5}], "radios": radios}
    assert line_rows.seen_in(1.0, measurements, flow) == line_rows.Seen(1.0, 0.5, 8.0, 7.5, True, "sniffer")
    empty = line_rows.seen_in(1.0, {"interfaces": [], "flows": []}, {"multipath": [], "bandit": None})
    assert empty == line_rows.Seen(1.0, 0.0, 0.0, None, False, None)


class FaultyBox:
    """A box whose doctor finds what was planted and not mended; ``blind`` is a line whose fault it does not see."""

    name = "attic"

    def __init__(self, blind: str = "", broken: bool = False) -> None:
        self.blind, self.broken = blind, broken
        self.planted: list[doctor_rows.Fault] = []

    def type(self, line: str) -> str:
        for fault in doctor_rows.FAULTS:
            if line == fault.plant:
                self.planted.append(fault)
            elif line == fault.mend:
                self.planted.remove(fault)
        return ""

    def run(self, *_: str, within_s: float) -> subprocess.CompletedProcess[str]:
        if self.broken:
            return subprocess.CompletedProcess((), 1, "", "Traceback\nno doctor")
        found = [{"level": "fault", "check": fault.check, "place": fault.place} for fault in self.planted]
        seen = [each for each, fault in zip(found, self.planted, strict=True) if fault.plant != self.blind]
        note = {"level": "note", "check": "datapath", "place": "bridge br0"}
        return subprocess.CompletedProcess((), int(bool(seen)), json.dumps({"findings": [*seen, note]}), "")


def test_planted_faults_count_if_the_only_fault_that_is_found_is_theirs() -> None:
    box: Any = FaultyBox()
    assert doctor_rows.faults_of(box) == [] and list(doctor_rows.not_named(box)) == []
    box = FaultyBox(blind=doctor_rows.FAULTS[3].plant)
    assert list(doctor_rows.not_named(box)) == [f"{doctor_rows.FAULTS[3].plant}: nothing"]
    box.type(doctor_rows.FAULTS[0].plant)
    # A second fault makes each verdict ambiguous.
    assert len(list(doctor_rows.not_named(box))) >= 10


def test_a_fault_is_mended_also_if_the_doctor_fails() -> None:
    box: Any = FaultyBox(broken=True)
    with pytest.raises(EmulationError, match="attic: no doctor"):
        list(doctor_rows.not_named(box))
    assert box.planted == []
    assert len({(fault.plant, fault.mend) for fault in doctor_rows.FAULTS}) == 12


def test_capacity_is_payload_of_ethernet() -> None:
    assert three_boxes.Bare(9.5, 14.72).capacity_mbps == 15.0


def test_tcp_rate_is_what_the_receiver_reports() -> None:
    assert tcp_mbps({"end": {"sum_sent": {"bits_per_second": 9e9}, "sum_received": {"bits_per_second": 9.5e6}}}) == 9.5


@pytest.mark.parametrize("report", [{}, {"end": {}}, {"error": "no route to host", "end": {}}, {"end": []}])
def test_report_without_a_rate_is_an_error(report: dict[str, object]) -> None:
    with pytest.raises(EmulationError, match="iperf3"):
        tcp_mbps(report)


def test_datagrams_are_those_that_arrived() -> None:
    text = (
        "Tcp: RtoMin\nTcp: 200\nUdp: InDatagrams NoPorts OutDatagrams\nUdp: 812 3 9\nUdpLite: InDatagrams\nUdpLite: 0\n"
    )
    assert datagrams(text) == 812
    for wrong in ("", "Udp: InDatagrams\n", "Udp: NoPorts\nUdp: 1\n", "Udp: InDatagrams\nUdp: many\n"):
        with pytest.raises(EmulationError, match="no counter"):
            datagrams(wrong)


PINGS = """PING 10.0.0.3 (10.0.0.3) 1472(1500) bytes of data.
1480 bytes from 10.0.0.3: icmp_seq=1 ttl=64 time=2.1 ms
From 10.0.0.9 icmp_seq=2 Frag needed and DF set (mtu = 1450)
ping: local error: message too long, mtu=1450

4 packets transmitted, 1 received, +2 errors, 75% packet loss, time 904ms
"""


def test_ping_counts_answers_and_messages_that_a_packet_is_too_long() -> None:
    assert answered(PINGS) == 0.75
    assert answered("5 packets transmitted, 0 received, 100% packet loss, time 900ms") == 0.0
    assert answered("") == 0.0


@pytest.mark.parametrize(
    ("wanted", "measured", "met"),
    [
        (Wanted("boot", "s", at_most=20.0), 20.0, True),
        (Wanted("boot", "s", at_most=20.0), 20.1, False),
        (Wanted("share", "", at_least=0.85), 0.85, True),
        (Wanted("share", "", at_least=0.85), 0.84, False),
        (Wanted("share", "", at_least=0.85), None, False),
    ],
)
def test_row_is_met_within_its_bound_only(wanted: Wanted, measured: float | None, met: bool) -> None:
    row = Row(wanted, measured, "no answer" if measured is None else "")
    assert row.met == met and row.document()["met"] == met
    assert row.line().startswith("met" if met else "MISSED")


def test_row_of_several_tries_shows_all_of_them() -> None:
    wanted = Wanted("share", "", at_least=0.85)
    assert Row(wanted, 0.9, values=(0.8, 0.9, 0.95)).document()["values"] == [0.8, 0.9, 0.95]
    assert "values" not in Row(wanted, 0.9, values=(0.9,)).document()


def test_verdict_with_a_missed_row_says_so_in_status_and_document() -> None:
    good, bad = Row(Wanted("boot", "s", at_most=20.0), 3.0), Row(Wanted("share", "", at_least=0.85), None, "no answer")
    verdict = Verdict("three-boxes", (good, bad), {"attic": ("apt install", "join"), "laptop": ()})
    assert verdict.status == EXIT_MISSED == 3
    document = json.loads(json.dumps(verdict.document()))
    assert document["ok"] is False and document["typed"] == {"attic": ["apt install", "join"], "laptop": []}
    assert document["rows"][1] == {
        **{"what": "share", "measured": None, "unit": "", "wanted": {"at_least": 0.85}, "met": False},
        "why": "no answer",
    }
    assert (
        "1 of 2 rows are missed" in verdict.text()
        and "commands typed: 2 in attic" in verdict.text()
        and "share" in verdict.text()
    )
    assert Verdict("three-boxes", (good,), {}).status == 0 and document["not_made"] == []
    left_out = Verdict("three-boxes", (good,), {}, {"reboot": "takes minutes"})
    assert left_out.ok and left_out.document()["not_made"] == [{"what": "reboot", "why": "takes minutes"}]
    assert "not made reboot (takes minutes)" in left_out.text()
    assert Verdict("three-boxes", (), {}).status == EXIT_MISSED, "nothing measured is nothing met"


def test_boxes_start_in_control_groups_of_their_own() -> None:
    # The shell moves itself before it becomes systemd-nspawn; here a file stands for a group.
    from hyroads.mininet.lab.box import _IN_GROUPS

    done = subprocess.run(["sh", "-c", _IN_GROUPS, "sh", "/nowhere", "--", "echo", "started"], capture_output=True)
    assert done.returncode != 0 and not done.stdout, "a box without its group must not start"
    done = subprocess.run(["sh", "-c", _IN_GROUPS, "sh", "--", "echo", "started"], capture_output=True)
    assert done.stdout == b"started\n"
