"""What the controller tells each access point of the others, for stations that ask where they could go (802.11k)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hyroads.controller.agents.telemetry import Bss
from hyroads.controller.services.steering.stations import MAX_NEIGHBOURS, Steering


class Radio:
    """The channel to an access point's agent; ``told`` is what each of its technologies was told last."""

    may_change = True

    def __init__(self) -> None:
        self.messages = 0
        self.told: dict[str, list[tuple[str, str]]] = {}

    def send(self, message: dict[str, Any]) -> None:
        assert message["type"] == "neighbours"
        self.messages += 1
        self.told[message["technology"]] = [(entry["neighbour"], entry["ssid"]) for entry in message["neighbours"]]


class Lab:
    """Access points ``a``, ``b``, ``c``, whose agents are all connected."""

    def __init__(self) -> None:
        self.radios = {node: Radio() for node in "abc"}
        untold: list[str] = []
        service: Any = SimpleNamespace(
            knows=lambda place: place.node != "x", tells=lambda place: None, untold=untold.append, listeners=[]
        )
        self.steering = Steering(service, lambda: self.radios, lambda *_: None, lambda: 0.0)  # type: ignore[arg-type, return-value]

    def bss(self, node: str, ssid: str, technology: str = "wifi", channel: int = 1) -> None:
        self.steering.bss(node, Bss(technology, entry(node, channel), ssid))

    def told(self, node: str, technology: str = "wifi") -> list[tuple[str, str]]:
        return self.radios[node].told.get(technology, [])


def entry(node: str, channel: int = 1) -> str:
    return f"02:00:00:00:{ord(node):02x}:{channel:02x},0x3,81,{channel},7"


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_each_is_told_of_the_others_with_its_ssid(lab: Lab) -> None:
    for node, ssid in (("a", "lab"), ("b", "lab"), ("c", "guests")):
        lab.bss(node, ssid)
    assert lab.told("a") == [(entry("b"), "lab")] and lab.told("b") == [(entry("a"), "lab")]
    assert lab.told("c") == []


def test_an_access_point_has_a_neighbour_on_its_own_other_radio_and_those_of_its_channel_come_first(lab: Lab) -> None:
    lab.bss("a", "lab", "wifi5", 36)
    lab.bss("b", "lab", "wifi5", 36)
    lab.bss("a", "lab", "wifi", 1)
    assert [neighbour for neighbour, _ in lab.told("a", "wifi5")] == [entry("b", 36), entry("a", 1)]


def test_who_has_gone_or_has_another_ssid_is_no_neighbour_any_more(lab: Lab) -> None:
    for node in "abc":
        lab.bss(node, "lab")
    lab.steering.gone("b")
    assert lab.told("a") == [(entry("c"), "lab")] and lab.told("c") == [(entry("a"), "lab")]
    lab.bss("c", "guests")
    assert lab.told("a") == [] and lab.told("c") == []
    lab.bss("c", "lab")
    lab.bss("a", "")
    assert lab.told("a") == [] and lab.told("c") == []


def test_a_new_agent_is_told_again_and_nobody_else(lab: Lab) -> None:
    lab.bss("a", "lab")
    lab.bss("b", "lab")
    lab.radios["a"] = Radio()
    told_b = lab.radios["b"].messages
    lab.bss("a", "lab")
    assert lab.told("a") == [(entry("b"), "lab")] and lab.radios["b"].messages == told_b


def test_a_new_channel_is_told_to_the_others(lab: Lab) -> None:
    lab.bss("a", "lab")
    lab.bss("b", "lab")
    lab.bss("b", "lab", channel=6)
    assert lab.told("a") == [(entry("b", 6), "lab")]


def test_hidden_and_unknown_places_are_no_neighbours_and_there_are_at_most_so_many(lab: Lab) -> None:
    lab.bss("a", "")
    lab.bss("b", "")
    lab.bss("x", "lab")
    lab.bss("c", "lab")
    assert not any(radio.told.get("wifi") for radio in lab.radios.values())
    for number in range(MAX_NEIGHBOURS + 5):
        lab.bss("b", "lab", f"wifi{number}", number)
    assert len(lab.told("c")) == MAX_NEIGHBOURS
