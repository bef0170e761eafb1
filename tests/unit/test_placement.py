"""Placement of radios: against all combinations tried one by one, by hand, and what is refused."""

from __future__ import annotations

import json
import random
from itertools import permutations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from placement_brute import brute_force

from hyroads.controller.cli.main import main
from hyroads.controller.cli.place import MODES
from hyroads.controller.core.errors import NoRouteError, PlanningError
from hyroads.controller.core.netfile import parse, to_document
from hyroads.controller.core.network import ClientMode, Network
from hyroads.controller.core.placement import RadioRole, place_radios

TECHNOLOGIES = ("wifi2", "wifi5", "lte", "ethernet-1")


def random_network(rng: random.Random) -> Network:
    """A client with one to three radios, up to four neighbours, any rule of interference; some links have no way."""
    aps = [f"a{i}" for i in range(rng.randint(1, 4))]
    roles = {"s": "gateway", "c": "client", **{ap: rng.choice(["ap", "switch"]) for ap in aps}}
    nodes = {
        node: {"role": role, "agent": True, "position": [rng.randint(0, 60), rng.randint(0, 60)]}
        for node, role in roles.items()
    }
    links = []

    def add(start: str, end: str, technology: str) -> None:
        mbps = rng.choice([3, 5, 7, 11, 13, 20, 40])
        link = {"id": f"l{len(links)}", "from": start, "to": end, "technology": technology, "capacity_mbps": mbps}
        links.append({**link, "both": rng.random() < 0.8})

    backhaul = rng.sample([*TECHNOLOGIES, "plc", "ethernet-2"], 2)
    for start, end in permutations(["s", *aps], 2):
        for technology in backhaul:
            if rng.random() < 0.4:
                add(start, end, technology)
    for technology in rng.sample(TECHNOLOGIES, rng.randint(1, 3)):
        for node in rng.sample(["s", *aps], rng.randint(1, min(3, len(aps) + 1))):
            add(node, "c", technology)
    if rng.random() < 0.3:
        # A client without agent forwards nothing, though a fast path would go by it.
        nodes["plain"] = {"role": "client", "agent": False, "position": [30, 30]}
        for start, end in (("s", "plain"), ("plain", aps[0])):
            add(start, end, backhaul[0])
    used = sorted({link["technology"] for link in links})
    media = {technology: {"metered": True} for technology in used if rng.random() < 0.4}
    ids = [link["id"] for link in links]
    rule = rng.choice(["technology", "range", "hearing", "conflicts", "domains"])
    shared = [technology for technology in used if not technology.startswith("ethernet")]
    sections = {
        "range": {"rule": "range", "ranges_m": {technology: rng.choice([15, 30, 45]) for technology in shared}},
        "conflicts": {"conflicts": {link: rng.sample(ids, rng.randint(0, min(4, len(ids)))) for link in ids}},
        "domains": {"domains": [rng.sample(ids, rng.randint(1, len(ids))) for _ in range(3)]},
    }
    interference = sections.get(rule, {"rule": rule})
    document = {"nodes": nodes, "links": links, "interference": interference}
    return parse({**document, "technologies": media} if media else document, "random")


@examples(40)
@given(st.integers(0, 10**9), st.sampled_from(ClientMode))
def test_equals_all_combinations_tried_one_by_one(seed, mode):
    network = random_network(random.Random(seed))
    total, attachments, roles = brute_force(network, "c", "s", mode.value)
    if not attachments:
        with pytest.raises(NoRouteError):
            place_radios(network, "c", "s", mode)
        return
    placed = place_radios(network, "c", "s", mode)
    assert placed.total_mbps == pytest.approx(total, abs=1e-6)
    assert (dict(placed.attachments), dict(placed.roles)) == (attachments, roles)


def two_aps(**technologies: dict[str, bool]) -> Network:
    """Two access points on one wire each (45 Mb/s), both with both bands, and a cell on the air from the gateway."""
    aps = ("a", "b")
    links = [{"id": f"s{ap}", "from": "s", "to": ap, "technology": "ethernet", "capacity_mbps": 45} for ap in aps]
    for band, mbps in (("wifi2", 40), ("wifi5", 50)):
        links += [
            {"id": f"{ap}-{band}", "from": ap, "to": "c", "technology": band, "capacity_mbps": mbps} for ap in aps
        ]
    links.append({"id": "cell", "from": "s", "to": "c", "technology": "lte", "capacity_mbps": 25})
    nodes = {"s": {"role": "gateway"}, "a": {"role": "ap"}, "b": {"role": "ap"}, "c": {"role": "client"}}
    document = {"nodes": nodes, "links": links, "interference": {"rule": "technology"}}
    return parse({**document, "technologies": technologies} if technologies else document, "two-aps")


def test_radios_go_to_different_access_points_whose_wires_they_would_share():
    placed = place_radios(two_aps(), "c", "s", ClientMode.FULL_SPEED)
    assert placed.total_mbps == pytest.approx(40 + 45 + 25)
    assert placed.document() == {
        "total_mbps": placed.total_mbps,
        "attachments": {"wifi2": "a", "wifi5": "b", "lte": "s"},
        "roles": {"wifi2": "active", "wifi5": "active", "lte": "active"},
    }
    assert place_radios(two_aps(), "c", "s", ClientMode.FULL_SPEED, margin=0.1).total_mbps == pytest.approx(99)


def test_metered_radios_are_backup_while_others_carry_anything():
    network = two_aps(lte={"metered": True})
    placed = place_radios(network, "c", "s", ClientMode.COST_EFFICIENT)
    assert placed.total_mbps == pytest.approx(85)
    assert placed.roles == {"wifi2": RadioRole.ACTIVE, "wifi5": RadioRole.ACTIVE, "lte": RadioRole.BACKUP}
    assert placed.attachments == {"wifi2": "a", "wifi5": "b", "lte": "s"}
    wires_cut = network.with_capacities({"sa": 0.0, "sb": 0.0})
    placed = place_radios(wires_cut, "c", "s", ClientMode.COST_EFFICIENT)
    assert (placed.total_mbps, dict(placed.attachments)) == (pytest.approx(25), {"lte": "s"})
    assert placed.roles == {"wifi2": RadioRole.OFF, "wifi5": RadioRole.OFF, "lte": RadioRole.ACTIVE}


def test_copies_take_different_access_points_even_where_one_would_be_faster():
    network = two_aps().with_capacities({"cell": 0.0, "b-wifi2": 10.0, "b-wifi5": 10.0})
    placed = place_radios(network, "c", "s", ClientMode.HIGH_ROBUSTNESS)
    # Both at a would carry 22.5 Mb/s each, over one wire.
    assert (placed.total_mbps, dict(placed.attachments)) == (pytest.approx(10), {"wifi2": "a", "wifi5": "b"})
    assert placed.roles == {"wifi2": RadioRole.COPY, "wifi5": RadioRole.COPY, "lte": RadioRole.OFF}


def test_twenty_equal_neighbours_of_four_radios_are_told_apart_by_their_wires():
    nodes = {"s": {"role": "gateway"}, "c": {"role": "client"}, **{f"a{i}": {"role": "ap"} for i in range(20)}}
    links = [
        {"id": f"{k}{i}", "from": f"a{i}", "to": "c", "technology": k, "capacity_mbps": 40}
        for k in ("w", "x", "y", "z")
        for i in range(20)
    ]
    links += [
        {"id": f"s{i}", "from": "s", "to": f"a{i}", "technology": "ethernet", "capacity_mbps": 30 + i // 16}
        for i in range(20)
    ]
    network = parse({"nodes": nodes, "links": links, "interference": {"rule": "technology"}}, "equal")
    placed = place_radios(network, "c", "s", ClientMode.FULL_SPEED)
    assert placed.total_mbps == pytest.approx(124)
    assert placed.attachments == {"w": "a16", "x": "a17", "y": "a18", "z": "a19"}


@pytest.mark.parametrize(
    ("client", "peer", "expected"),
    [
        ("x", "s", "client 'x': expected the id of a node"),
        ("c", "x", "peer 'x': expected the id of a node"),
        ("a", "s", "client 'a': expected a node of role client"),
        ("c", "c", "peer 'c': expected another node"),
    ],
)
def test_wrong_names_are_refused(client, peer, expected):
    with pytest.raises(PlanningError, match=expected):
        place_radios(two_aps(), client, peer, ClientMode.FULL_SPEED)


def test_five_radios_no_route_and_a_wrong_margin_are_refused():
    nodes = {"s": {"role": "gateway"}, "c": {"role": "client"}}
    links = [{"id": k, "from": "s", "to": "c", "technology": k, "capacity_mbps": 1} for k in "vwxyz"]
    five = parse({"nodes": nodes, "links": links, "interference": {"rule": "technology"}}, "five")
    with pytest.raises(PlanningError, match="at most 4 radios"):
        place_radios(five, "c", "s", ClientMode.FULL_SPEED)
    cut = two_aps().with_capacities({"sa": 0.0, "sb": 0.0, "cell": 0.0})
    for mode in ClientMode:
        with pytest.raises(NoRouteError, match="no route from 's' to 'c'"):
            place_radios(cut, "c", "s", mode)
    with pytest.raises(PlanningError, match="margin"):
        place_radios(two_aps(), "c", "s", ClientMode.FULL_SPEED, margin=1.0)


def test_more_combinations_than_can_be_listed_are_refused():
    nodes = {"s": {"role": "gateway"}, "c": {"role": "client"}, **{f"a{i}": {"role": "ap"} for i in range(40)}}
    links = [{"id": f"s{i}", "from": "s", "to": f"a{i}", "technology": "plc", "capacity_mbps": 9} for i in range(40)]
    links += [
        {"id": f"{k}{i}", "from": f"a{i}", "to": "c", "technology": k, "capacity_mbps": 9}
        for k in "wxyz"
        for i in range(40)
    ]
    network = parse({"nodes": nodes, "links": links, "interference": {"rule": "technology"}}, "many")
    with pytest.raises(PlanningError, match="40 x 40 x 40 x 40 attachments are too many"):
        place_radios(network, "c", "s", ClientMode.FULL_SPEED)


def test_a_file_with_metered_technologies_is_written_as_it_was_read():
    network = two_aps(lte={"metered": True}, wifi2={"metered": False})
    assert network.metered == {"lte"}
    assert parse(to_document(network), "again").metered == {"lte"}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.json"
    path.write_text(json.dumps(to_document(two_aps(lte={"metered": True}))), encoding="utf-8")
    return str(path)


def test_the_command_prints_a_document_or_a_table(file, capsys):
    words = ["place", file, "--client", "c", "--peer", "s", "--mode", "cost-efficient"]
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["total_mbps"] == pytest.approx(85) and document["roles"]["lte"] == "backup"
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "85.000 Mb/s, all active radios together" in shown and "backup" in shown


@pytest.mark.parametrize(
    "words",
    [["--client", "x"], ["--peer", "x"], ["--client", "a"], ["--mode", "fast"], ["--margin", "2"], ["--margin", "x"]],
)
def test_wrong_words_are_one_line_and_status_2(file, words, capsys):
    given = ["place", file, "--client", "c", "--peer", "s", *words]
    try:
        status = main(given)
    except SystemExit as ended:
        status = ended.code
    shown = capsys.readouterr()
    assert (status, shown.out) == (2, "") and len(shown.err.strip().splitlines()) == 1


def test_the_command_names_the_modes_of_the_module():
    # The words are fixed: files, REST and commands have them.
    assert tuple(mode.value for mode in ClientMode) == MODES == ("full-speed", "cost-efficient", "high-robustness")
