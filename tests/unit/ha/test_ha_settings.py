"""The part ``ha`` of the settings: what is wrong in it is named, and where."""

from __future__ import annotations

from typing import Any

import pytest

from hyroads.controller.core.errors import ConfigError
from hyroads.controller.settings.controller import parse

HA: dict[str, Any] = {
    "etcd": ["http://127.0.0.1:2379"],
    "name": "a",
    "advertise": {"rest": "http://127.0.0.1:8080", "peer": "127.0.0.1:6655"},
}
TLS = {"key": "a.key", "certificate": "a.pem", "ca": "ca.pem"}


@pytest.mark.parametrize(
    ("changed", "place", "problem"),
    [
        ({"advertise": None}, "ha.advertise", "missing"),
        ({"advertise": {"rest": "http://127.0.0.1:8080"}}, "ha.advertise.peer", "missing"),
        ({"advertise": {**HA["advertise"], "rest": "a:8080"}}, "ha.advertise.rest", "http://HOST:PORT"),
        ({"advertise": {**HA["advertise"], "peer": "a"}}, "ha.advertise.peer", "HOST:PORT"),
        ({"advertise": {**HA["advertise"], "peer": "a:6655"}}, "ha.tls", "beyond loopback"),
        ({"name": "a b"}, "ha.name", "letters"),
        ({"name": None}, "ha.name", "missing"),
        ({"etcd": "http://127.0.0.1:2379"}, "ha.etcd", "a list"),
        ({"etcd": []}, "ha.etcd", "1 to 9"),
        ({"etcd": ["127.0.0.1:2379"]}, "ha.etcd[0]", "https://HOST:PORT"),
        ({"etcd": ["http://192.0.2.1:2379"]}, "ha.etcd[0]", "https://HOST:PORT"),
        ({"etcd": ["http://127.0.0.1:2379", "http://127.0.0.1:2379/"]}, "ha.etcd", "once"),
        ({"peer_token": "short"}, "ha.peer_token", "16"),
        ({"timings": {"silence_ms": 60}}, "ha.timings.silence_ms", "three times"),
        ({"tls": {"key": "a.key", "certificate": "a.pem"}}, "ha.tls", "ca"),
        ({"etc": 1}, "ha.etc", "unknown"),
    ],
)
def test_what_is_wrong_is_named(changed: dict[str, Any], place: str, problem: str) -> None:
    ha = {key: value for key, value in {**HA, **changed}.items() if value is not None}
    with pytest.raises(ConfigError) as error:
        parse({"network": "n.yaml", "ha": ha}, "h.yaml", {})
    assert error.value.place.startswith(place) and problem in str(error.value)


def test_the_member_of_etcd_on_the_own_machine_is_asked_first() -> None:
    members = [f"https://{host}:2379" for host in ("a", "b", "c")]
    for name in ("a", "b", "c"):
        advertise = {"rest": f"https://{name}:8443", "peer": f"{name}:6655"}
        ha = parse({"network": "n.yaml", "ha": {**HA, "etcd": members, "advertise": advertise, "tls": TLS}}, "h", {}).ha
        assert ha is not None and ha.nearest_first[0] == f"https://{name}:2379"
        assert sorted(ha.nearest_first) == members
