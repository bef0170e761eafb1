"""What is fuzzed: every decoder that reads bytes of strangers, one function each.

A target takes any bytes. It lets through no exception but those by which its decoder refuses, checks what the decoder
promises beside that, and keeps nothing from one input to the next. Whatever else it raises is a finding.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

EXTRA = Path(__file__).resolve().parents[2] / ".venv" / "fuzz"
"""Atheris and os-ken (requirements-fuzz.txt). Behind all else, for os-ken names versions that Ryu does not go with."""
if str(EXTRA) not in sys.path:
    sys.path.append(str(EXTRA))

Function = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}


@dataclass(frozen=True, slots=True)
class Target:
    """``watched`` are the packages whose coverage guides the fuzzer."""

    name: str
    function: Function
    watched: tuple[str, ...]
    longest: int


def target(name: str, *watched: str, longest: int = 2048) -> Callable[[Function], Function]:
    """Register a function under a name; inputs have ``longest`` bytes at most."""

    def register(function: Function) -> Function:
        TARGETS[name] = Target(name, function, tuple(f"hyroads.{each}" for each in watched), longest)
        return function

    return register


HOMES = {
    "openflow-messages": "openflow", "openflow-parsers": "openflow", "openflow-handshake": "openflow",
    "agent-lines": "devices", "hostapd-answers": "devices", "agentx": "devices", "homeplug": "devices",
    "nl80211": "devices",
    "ieee1905": "devices", "discovery": "devices",
    "frames": "frames",
    "slicer-guests": "slicing", "slicer-switches": "slicing", "slicer-frames": "slicing",
    "snmp-managers": "snmp", "snmp-devices": "snmp",
    "http-heads": "web", "http-servers": "web", "rest-bodies": "web", "sfnet-messages": "web",
    "peer-lines": "controllers", "region-messages": "controllers",
    "network-file": "files", "state-file": "files", "slice-file": "files", "plugin-answers": "files",
}  # fmt: skip
"""In which module each target is: a fuzzer loads that one alone."""


def load(name: str) -> Target:
    """A target by its name; KeyError."""
    importlib.import_module(HOMES[name])
    return TARGETS[name]
