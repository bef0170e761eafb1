"""The guest network's settings, and what nftables and dnsmasq are told."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path, PurePath
from typing import Any

import pytest

from hyroads.controller.cli.main import main
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.core.netfile import load_text
from hyroads.controller.guest.rules import dnsmasq_options, nft_rules
from hyroads.controller.guest.settings import parse
from hyroads.mininet.guest_network import gateway_of
from hyroads.mininet.programs import EmulationError

LEAST = {"interface": "guest0", "uplink": "wan0"}


def test_defaults() -> None:
    found = parse(LEAST, "guest.yaml")
    assert (str(found.network), str(found.gateway)) == ("192.168.90.0/24", "192.168.90.1")
    assert tuple(map(str, found.pool)) == ("192.168.90.2", "192.168.90.254") and found.leases == 250
    assert parse({**LEAST, "network": "10.7.0.8/29"}, "x").leases == 5, "no more than there are addresses"


@pytest.mark.parametrize(
    ("more", "place", "words"),
    [
        ({"interface": 'x"; accept'}, "interface", "name of an interface"),
        ({"interface": "a" * 16}, "interface", "name of an interface"),
        ({"uplink": "../all"}, "uplink", "name of an interface"),
        ({"uplink": "guest0"}, "uplink", "another interface"),
        ({"network": "192.168.90.1/24"}, "network", "an IPv4 network"),
        ({"network": "10.0.0.0/8"}, "network", "from /16 to /29"),
        ({"network": "10.0.0.0/30"}, "network", "from /16 to /29"),
        ({"network": "239.0.0.0/24"}, "network", "a network of hosts"),
        ({"network": 7}, "network", "an IPv4 network"),
        ({"isolated": ["fd00::/8"]}, "isolated[0]", "an IPv4 network"),
        ({"dns": ["9.9.9.9\nserver=/x/1.1.1.1"]}, "dns[0]", "address"),
        ({"dns": "9.9.9.9"}, "dns", "a list"),
        ({"domain": "guest\ndhcp-script=/bin/sh"}, "domain", "a domain"),
        ({"domain": "guest\n"}, "domain", "a domain"),
        ({"state_directory": "run"}, "state_directory", "absolute path"),
        ({"state_directory": "/run/x\ndhcp-script=/bin/sh"}, "state_directory", "absolute path"),
        ({"lease_minutes": 1}, "lease_minutes", ""),
        ({"most_guests": 0}, "most_guests", ""),
        ({"rate_mbps": 0}, "rate_mbps", ""),
        ({"uplinks": "x"}, "uplinks", "unknown key"),
    ],
)
def test_wrong_settings_are_named(more: dict[str, Any], place: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse({**LEAST, **more}, "guest.yaml")
    assert error.value.place == place and words in error.value.problem


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ConfigError) as error:
        parse({}, "guest.yaml")
    assert [each.place for each in (error.value, *error.value.more)] == ["interface", "uplink"]


def test_networks_of_the_campus_are_isolated_and_all_that_are_not_public() -> None:
    text = nft_rules(parse({**LEAST, "isolated": ["198.51.100.0/24", "10.1.0.0/16"]}, "x"))
    line = next(line for line in text.splitlines() if "elements" in line)
    found = [ipaddress.ip_network(word) for word in line.split("{")[1].strip(" }").split(", ")]
    for address in ("10.255.0.1", "172.31.0.1", "192.168.3.4", "169.254.1.1", "100.64.0.1", "239.0.0.1", "127.0.0.1",
                    "198.51.100.9"):  # fmt: skip
        assert any(ipaddress.ip_address(address) in network for network in found), address
    assert not any(ipaddress.ip_address("9.9.9.9") in network for network in found)
    assert "limit rate" not in text
    assert nft_rules(parse({**LEAST, "rate_mbps": 20}, "x")).count("limit rate over 2500000 bytes/second") == 2


def test_what_dnsmasq_is_told() -> None:
    lines = dnsmasq_options(parse({**LEAST, "dns": ["9.9.9.9", "2620:fe::fe"]}, "x"), PurePath("/run/g")).splitlines()
    assert {"interface=guest0", "bind-interfaces", "stop-dns-rebind", "no-resolv", "server=9.9.9.9",
            "server=2620:fe::fe", "dhcp-range=192.168.90.2,192.168.90.254,255.255.255.0,60m",
            "dhcp-leasefile=/run/g/leases"} <= set(lines)  # fmt: skip
    assert "no-resolv" not in dnsmasq_options(parse(LEAST, "x"), PurePath("/run/g"))


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "guest.json"
    file.write_text(json.dumps(LEAST))
    assert main(["guest-network", "--config", str(file), "--check"]) == 0
    assert capsys.readouterr().out == f"{file}: 192.168.90.0/24 at guest0, at most 250 guests\n"
    assert main(["guest-network", "--config", str(file), "--show"]) == 0
    shown = capsys.readouterr().out
    assert "table inet hyroads_guest {" in shown and "dhcp-authoritative" in shown
    file.write_text(json.dumps({**LEAST, "network": "no"}))
    assert main(["guest-network", "--config", str(file)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_emulated_network_needs_a_gateway_and_names_that_are_free() -> None:
    def network(gateway: str, role: str) -> Any:
        text = f"""
nodes: {{{gateway}: {{role: {role}}}, b: {{role: ap}}}}
links: [{{id: ab, from: {gateway}, to: b, technology: plc, capacity_mbps: 10, both: true}}]
interference: {{rule: technology}}
"""
        return load_text(text, "network.yaml")

    assert gateway_of(network("a", "gateway")) == "a"
    with pytest.raises(EmulationError, match="no node with the role gateway"):
        gateway_of(network("a", "ap"))
    with pytest.raises(EmulationError, match="not with a node guest"):
        gateway_of(network("guest", "gateway"))
