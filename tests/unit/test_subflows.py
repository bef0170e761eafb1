"""Flows of the subflows of an MPTCP connection: as the network file and the REST API take them."""

from __future__ import annotations

import pytest

from hyroads.controller.core.checking import MAX_ID_LENGTH
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.netfile_sections import flow_document
from hyroads.controller.core.subflows import MptcpConnection, Subflow, TcpEnd, subflow_flows
from hyroads.controller.runtime.persistence import parse_flow

NETWORK = parse(
    {
        "nodes": {node: {"role": "ap"} for node in ("phone", "server")},
        "links": [{"id": "l", "from": "phone", "to": "server", "technology": "wifi", "capacity_mbps": 9, "both": True}],
        "interference": {"rule": "technology"},
    },
    "x",
)
SERVER = TcpEnd("server", "10.0.0.9", 443)
FIRST = Subflow(0, TcpEnd("phone", "10.0.0.1", 40000), SERVER)
SECOND = Subflow(1, TcpEnd("phone", "10.0.1.1", 40001), SERVER)


def test_each_subflow_is_a_flow_in_each_direction_and_each_direction_a_group():
    flows = subflow_flows(MptcpConnection(0xBEEF, (FIRST, SECOND)), weight=2.0, slice_name="lab")
    assert [flow.id for flow in flows] == [f"mptcp-0000beef-{n}-{way}" for n in (0, 1) for way in ("up", "down")]
    assert [flow.group for flow in flows] == ["mptcp-0000beef-up", "mptcp-0000beef-down"] * 2
    assert {(flow.weight, flow.slice, flow.is_tcp) for flow in flows} == {(2.0, "lab", True)}
    up, down = flows[:2]
    assert (up.source, up.target, down.source, down.target) == ("phone", "server", "server", "phone")
    assert up.match == {
        "eth_type": 0x0800, "ip_proto": 6, "ipv4_src": "10.0.0.1", "ipv4_dst": "10.0.0.9", "tcp_src": 40000,
        "tcp_dst": 443,
    }  # fmt: skip
    assert down.match["tcp_src"] == 443 and down.match["ipv4_dst"] == "10.0.0.1"


@pytest.mark.parametrize("client", ["10.0.0.1", "2001:DB8:0::1"])
def test_they_are_what_a_file_or_a_request_would_say(client):
    peer = TcpEnd("server", "10.0.0.9" if "." in client else "2001:db8::9", 443)
    connection = MptcpConnection(0xFFFFFFFF, (Subflow(7, TcpEnd("phone", client, 1), peer),))
    for flow in subflow_flows(connection):
        assert len(flow.id) <= MAX_ID_LENGTH
        assert parse_flow(flow_document(flow), NETWORK, "request") == flow


def test_a_subflow_within_one_node_needs_no_path():
    within = Subflow(2, TcpEnd("server", "10.0.0.8", 40002), SERVER)
    assert [flow.id[-4:] for flow in subflow_flows(MptcpConnection(1, (within, FIRST)))] == ["0-up", "down"]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="32 bits"):
        MptcpConnection(1 << 32, ())
    for address in ("2001:db8::1", "10.0.0.256", "phone"):
        with pytest.raises(ValueError, match=r"one version|does not appear"):
            subflow_flows(MptcpConnection(1, (Subflow(0, TcpEnd("phone", address, 1), SERVER),)))
