"""Settings: what is allowed, what is refused and where, and that secrets stay secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hyroads.controller.core.checking import Endpoint
from hyroads.controller.core.errors import ConfigError
from hyroads.controller.settings.controller import load, parse

TOKEN = "0123456789abcdef"


def test_defaults_are_loopback_and_paths_are_relative_to_the_file() -> None:
    settings = parse({"network": "net.yaml", "state_file": "/var/x.json"}, "/etc/hyroads/hyroads.yaml", {})
    assert settings.network == "/etc/hyroads/net.yaml" and settings.state_file == "/var/x.json"
    assert (settings.openflow, settings.agents, settings.rest) == (
        Endpoint("127.0.0.1", 6653),
        Endpoint("127.0.0.1", 6654),
        Endpoint("127.0.0.1", 8080),
    )
    assert settings.openflow.is_loopback and settings.margin is None


def test_environment_names_network_and_ports(tmp_path: Path) -> None:
    settings = load({"HYROADS_NETWORK": "/n.yaml", "HYROADS_REST_PORT": "8081"})
    assert settings.network == "/n.yaml" and settings.rest.port == 8081
    (tmp_path / "h.yaml").write_text("network: other.yaml\nmargin: 0.1\n")
    settings = load({"HYROADS_CONFIG": str(tmp_path / "h.yaml"), "HYROADS_NETWORK": "/n.yaml"})
    assert settings.network == "/n.yaml" and settings.margin == 0.1


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({}, "network"),
        ({"network": "n", "colour": 1}, "colour"),
        ({"network": "n", "margin": 2}, "margin"),
        ({"network": "n", "listen": {"rest": {"port": 0}}}, "listen.rest.port"),
        ({"network": "n", "listen": {"rest": {"host": "example.org"}}}, "listen.rest.host"),
        ({"network": "n", "listen": {"rest": {"host": "0.0.0.0"}}}, "listen.rest"),
        ({"network": "n", "listen": {"agents": {"host": "::"}}}, "listen.agents"),
        ({"network": "n", "listen": {"openflow": {"host": "10.0.0.1"}}}, "listen.openflow"),
        ({"network": "n", "listen": {"agents": {"allow_plaintext": True}}}, "listen.agents.allow_plaintext"),
        ({"network": "n", "agent_token": "short"}, "agent_token"),
        ({"network": "n", "api_tokens": {"me": {"token": TOKEN, "role": "king"}}}, "api_tokens.me.role"),
        ({"network": "n", "api_tokens": {"operator": {"token": TOKEN, "role": "application"}}}, "api_tokens.operator"),
        ({"network": "n", "api_tokens": {"plugin x": {"token": TOKEN}}}, "api_tokens.'plugin x'"),
        ({"network": "n", "api_tokens": {"me": {"token": TOKEN, "may_change": ["b"]}}}, "api_tokens.me.may_change"),
        (
            {"network": "n", "api_tokens": {"me": {"token": TOKEN, "quotas": {"reserved_airtime": 1.5}}}},
            "api_tokens.me.quotas.reserved_airtime",
        ),
        ({"network": "n", "timings": {"agent_dead_ms": 300, "ping_ms": 250}}, "timings.agent_dead_ms"),
        ({"network": "n", "timings": {"hello_interval_ms": 1.5}}, "timings.hello_interval_ms"),
        ({"network": "n", "tls": {"key": "k"}}, "tls.certificate"),
        ({"network": "n", "pair_tests": "always", "capacities": "measured"}, "pair_tests"),
        ({"network": "n", "seal_frames": "some"}, "seal_frames"),
        ({"network": "n", "seal_frames": "all", "slicer": {"url": "http://127.0.0.1:8090"}}, "seal_frames"),
        ({"network": "n", "pair_tests": "idle"}, "pair_tests"),
        ([], ""),
    ],
)
def test_errors_name_file_and_place(document: Any, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(document, "h.yaml", {})
    assert caught.value.document == "h.yaml" and caught.value.place == place


def test_bad_port_in_the_environment() -> None:
    with pytest.raises(ConfigError, match="HYROADS_REST_PORT"):
        parse({"network": "n"}, "h.yaml", {"HYROADS_REST_PORT": "70000"})


def test_beyond_loopback_with_credentials() -> None:
    document = {
        "network": "n",
        "agent_token": TOKEN,
        "api_tokens": {"ops": {"token": TOKEN + "x"}, "wall": {"token": TOKEN + "y", "role": "viewer"}},
        "listen": {
            "rest": {"host": "0.0.0.0"},
            "agents": {"host": "0.0.0.0"},
            "openflow": {"host": "0.0.0.0", "allow_plaintext": True},
        },
    }
    settings = parse(document, "h.yaml", {})
    assert [token.role for token in settings.api_tokens] == ["admin", "viewer"]
    assert TOKEN not in repr(settings)


def test_application_has_leave_and_quotas_of_reservations() -> None:
    token = {"token": TOKEN, "role": "application", "may_change": ["video", "plugin x", "operator"]}
    quotas = {"flows": 3, "reserved_mbps": 12.5, "reserved_airtime": 0.25}
    document = {
        "network": "n",
        "api_tokens": {"night": {**token, "quotas": quotas}, "operator": {"token": TOKEN + "x"}},
    }
    night, operator = parse(document, "h.yaml", {}).api_tokens
    assert night.may_change == {"video", "plugin x", "operator"} and dict(night.quotas) == quotas
    assert operator.role == "admin" and not operator.may_change


def test_token_never_shows_in_an_error(tmp_path: Path) -> None:
    secret = "geheim\x01"
    with pytest.raises(ConfigError) as caught:
        parse({"network": "n", "agent_token": secret}, "h.yaml", {})
    assert "geheim" not in str(caught.value)
    (tmp_path / "token").write_text(TOKEN + "\n")
    (tmp_path / "token").chmod(0o600)
    assert parse({"network": "n", "agent_token_file": str(tmp_path / "token")}, "h.yaml", {}).agent_token == TOKEN


def test_clients_have_tokens_of_their_own(tmp_path: Path) -> None:
    secret = tmp_path / "b.token"
    secret.write_text("token-of-b-0123456789\n")
    secret.chmod(0o600)
    given = {"a": {"token": "token-of-a-0123456789"}, "b": {"token_file": "b.token"}}
    document = {"network": "n.yaml", "clients": given}
    settings = parse(document, str(tmp_path / "hyroads.yaml"), {})
    assert settings.clients == {"a": "token-of-a-0123456789", "b": "token-of-b-0123456789"}
    assert "token-of" not in repr(settings)


@pytest.mark.parametrize(
    ("clients", "place"),
    [
        ({"a": {}}, "clients.a"),
        ({"a": "token-of-a-0123456789"}, "clients.a"),
        ({"a": {"token": "short"}}, "clients.a.token"),
        ({"a": {"token": "token-of-a-0123456789", "token_file": "x"}}, "clients.a"),
        ({"a": {"token_file": 5}}, "clients.a.token_file"),
        ({"a": {"secret": "token-of-a-0123456789"}}, "clients.a.secret"),
        ({"a": {"token": "token-of-a-0123456789"}, "b": {"token": "token-of-a-0123456789"}}, "clients.b"),
        (["a"], "clients"),
    ],
)
def test_wrong_clients_are_named(clients: object, place: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse({"network": "n.yaml", "clients": clients}, "settings.yaml", {})
    assert error.value.place == place and "0123456789" not in str(error.value)
