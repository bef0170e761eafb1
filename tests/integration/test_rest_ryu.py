"""Ryu's read endpoints against Ryu itself: both controllers are connected to the same switches and asked the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from controller_process import eventually, free_ports
from dummy_switches import available
from rest_lab import PORTS, RestLab, rest_lab

if not available():
    pytest.skip("needs Open vSwitch", allow_module_level=True)

RYU = "from hyroads.controller.framework.launcher import ryu_manager; raise SystemExit(ryu_manager())"
APPS = ("ryu.app.ofctl_rest", "ryu.app.rest_topology")


class Both:
    def __init__(self, lab: RestLab, ryu_port: int) -> None:
        self.lab = lab
        self._urls = (lab.url, f"http://127.0.0.1:{ryu_port}")

    def ask(self, path: str, body: object = None) -> list[tuple[int, Any]]:
        return [request(url + path, body) for url in self._urls]

    def same(self, path: str, body: object = None) -> Any:
        (ours, answer), (theirs, expected) = self.ask(path, body)
        assert ours == theirs == 200, (ours, answer, theirs, expected)
        assert settled(answer) == settled(expected)
        return answer


def request(url: str, body: object = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=10
        ) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, None


def settled(document: Any) -> Any:
    """Without what passes between two questions: times and counters. Rules come in any order."""
    if isinstance(document, dict):
        moving = ("duration_sec", "duration_nsec", "packet_count", "byte_count", "lookup_count", "matched_count")
        return {key: settled(value) for key, value in document.items() if key not in moving}
    if isinstance(document, list):
        return sorted((settled(item) for item in document), key=json.dumps)
    return document


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    pytest.importorskip("ryu")
    folder = tmp_path_factory.mktemp("ryu")
    openflow, web = free_ports(2)
    options = [f"--ofp-tcp-listen-port={openflow}", f"--wsapi-port={web}", "--ofp-listen-host=127.0.0.1"]
    with rest_lab(folder) as lab, (folder / "ryu.log").open("wb") as log:
        ryu = subprocess.Popen([sys.executable, "-c", RYU, *options, *APPS], stdout=log, stderr=log, env=os.environ)
        try:
            lab.switches.connect(lab.controller.openflow, openflow)
            eventually(lambda: len(request(f"http://127.0.0.1:{web}/stats/switches")[1] or ()) == len(PORTS))
            eventually(lambda: lab.controller.rest("GET", "/health")[1]["ok"])
            yield Both(lab, web)
        finally:
            ryu.terminate()
            ryu.wait()


@pytest.mark.parametrize(
    "query",
    ["desc", "aggregateflow", "table", "port", "port/{}/1", "port/{}/ALL", "queue", "queue/{}/1",
     "queue/{}/ALL/ALL", "queueconfig/{}/1", "meterfeatures", "meterconfig", "meter", "groupfeatures", "groupdesc",
     "group", "portdesc", "role", "tablefeatures"],
)  # fmt: skip
@pytest.mark.parametrize("dpid", ["1", pytest.param("0x2", marks=pytest.mark.nightly)])
def test_queries_answer_as_ryu_does(both: Both, query: str, dpid: str) -> None:
    place = query.format(dpid) if "{}" in query else f"{query}/{dpid}"
    answer = both.same(f"/stats/{place}")
    assert list(answer) == [str(int(dpid, 0))]


def test_rules_are_those_of_the_switch(both: Both) -> None:
    rules = request(f"{both.lab.url}/stats/flow/1")[1]["1"]
    dumped = both.lab.switches.run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "a")
    assert len(rules) == dumped.count("actions=") > 5
    actions = [action for rule in rules for action in rule["actions"]]
    assert "GOTO_TABLE:7" in actions
    # Ryu fails on rules with Open vSwitch's own actions; here they are told as bytes.
    told = [action for action in actions if action.startswith(("NX_UNKNOWN: {subtype: 46", "NX_UNKNOWN: {subtype: 47"))]
    # Those within a clone are a part of its bytes.
    assert 0 < len(told) <= len(re.findall(r"\b(?:encap|decap)\b", dumped)), actions


def test_rules_read_as_ryu_reads_them(both: Both) -> None:
    tables = ({"table_id": table} for table in range(6))
    # Ryu has no answer where there are actions that it cannot write, as in the rules for fragments in table 0.
    kinds = ({"match": {"eth_type": kind}} for kind in (0x0806, 0x0800, 0x8847, 0x86DD, 0x894F, 0x88B5))
    ports = ({"match": {"in_port": port}} for port in range(1, 5))
    answers = [both.ask("/stats/flow/1", body) for body in (*tables, *kinds, *ports)]
    readable = [(ours, theirs) for (_, ours), (status, theirs) in answers if status == 200]
    assert sum(len(theirs["1"]) for _, theirs in readable) > 5
    for ours, theirs in readable:
        assert settled(ours) == settled(theirs)


def test_filters(both: Both) -> None:
    everything = request(f"{both.lab.url}/stats/flow/1", {})[1]["1"]
    of_table = request(f"{both.lab.url}/stats/flow/1", {"table_id": 0})[1]["1"]
    assert 0 < len(of_table) < len(everything) and {rule["table_id"] for rule in of_table} == {0}
    matched = both.same("/stats/flow/1", {"match": {"in_port": 1}})["1"]
    assert len(matched) < len(everything)
    both.same("/stats/aggregateflow/1", {"table_id": 1})


def test_lists_of_switches(both: Both) -> None:
    (_, ours), (_, theirs) = both.ask("/stats/switches")
    assert sorted(theirs) == ours == [1, 2]
    both.same("/v1.0/topology/switches")
    both.same("/v1.0/topology/switches/0000000000000001")


def test_links_and_hosts_have_ryus_shape(both: Both) -> None:
    # A link is there only while switches and agents at both ends are connected.
    links = eventually(lambda: (found := both.ask("/v1.0/topology/links")[0][1]) and len(found) >= 4 and found)
    names = {(link["src"]["name"], link["dst"]["name"]) for link in links}
    assert names == {("a-plc", "b-plc"), ("a-wifi", "b-wifi"), ("b-plc", "a-plc"), ("b-wifi", "a-wifi")}
    (_, switches), _ = both.ask("/v1.0/topology/switches")
    ports = [port for switch in switches for port in switch["ports"]]
    assert all(link[end] in ports for link in links for end in ("src", "dst"))
    (_, hosts), _ = both.ask("/v1.0/topology/hosts/0000000000000001")
    assert [host["port"]["name"] for host in hosts] == ["a-host"] and set(hosts[0]) == {"mac", "ipv4", "ipv6", "port"}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/stats/flow/9", None, 404), ("/stats/flow/x", None, 422), ("/stats/port/1/x", None, 422),
        ("/stats/flow/1", {"match": {"no_such": 1}}, 422), ("/stats/flow/1", {"match": {"eth_dst": "x"}}, 422),
        ("/stats/flow/1", {"colour": 1}, 422), ("/v1.0/topology/switches/1", None, 404),
        ("/stats/flow/1", {"match": {"ipv4_src": "10.0.0.1"}}, 422),
    ],
)  # fmt: skip
def test_wrong_questions_have_answers(both: Both, path: str, body: object, status: int) -> None:
    before = both.lab.controller.rest("GET", "/health")[1]["counters"]
    assert both.ask(path, body)[0][0] == status
    assert both.lab.controller.rest("GET", "/health")[1]["counters"]["openflow_errors"] == before["openflow_errors"]


def test_nothing_can_be_written(both: Both) -> None:
    assert request(f"{both.lab.url}/stats/flowentry/add", {"dpid": 1})[0] == 404
