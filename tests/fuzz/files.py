"""Files: the network, slices, a client's policy, what a controller has saved; and what plugins answer.

Whoever writes them may have made a mistake, a disk may have; the first three come over REST, too.
"""

from __future__ import annotations

from typing import Any

from targets import target

from hyroads.controller.client import policy
from hyroads.controller.core import strict_json
from hyroads.controller.core.errors import ConfigError, HyroadsError
from hyroads.controller.core.netfile import load_text, parse
from hyroads.controller.core.services.mobility import Handover
from hyroads.controller.core.services.view import ClientView
from hyroads.controller.core.strict_json import JsonError
from hyroads.controller.files import state
from hyroads.controller.runtime import persistence
from hyroads.plugins.codec import CodecError, decode, encode
from hyroads.slices.core import slicefile

_NETWORK = parse(
    {
        "nodes": {"a": {"role": "gateway"}, "b": {"role": "ap"}, "c": {"role": "client"}},
        "links": [
            {"id": "ab", "from": "a", "to": "b", "technology": "plc", "capacity_mbps": 20, "both": True},
            {"id": "bc", "from": "b", "to": "c", "technology": "wifi", "capacity_mbps": 20, "both": True},
        ],
        "interference": {"rule": "technology"},
    },
    "fuzz",
)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@target("network-file", "controller.core.document", "controller.core.netfile", "controller.core.checking", longest=1500)
def network_file(data: bytes) -> None:
    """YAML, or JSON where the first byte is a brace. A mistake is named with its place, in one line each."""
    name = "fuzz.json" if data[:1] == b"{" else "fuzz.yaml"
    for load in (load_text, slicefile.load_text, policy.load_text):
        try:
            load(_text(data), name)
        except ConfigError as error:
            assert error.document == name and error.problem and "\n" not in error.problem


@target("slice-file", "slices.core", "controller.core.checking", longest=1500)
def slice_file(data: bytes) -> None:
    """The file of slices, and a flowspace and a slice as they come over REST."""
    try:
        slicefile.load_text(_text(data), "fuzz.yaml")
    except ConfigError as error:
        assert error.problem
    try:
        document = strict_json.parse(data)
    except JsonError:
        return
    for read in (slicefile.parse_slice, slicefile.parse_matches):
        try:
            read(document, "fuzz")
        except HyroadsError:
            continue


@target("state-file", "controller.files.state", "controller.runtime.persistence", longest=1500)
def state_file(data: bytes) -> None:
    """A state file of a controller: whatever it holds, the controller starts with what is left of it.

    An input without a checksum gets the right one, so that the fuzzer comes behind it.
    """
    text = _text(data)
    state.parse(text, "fuzz", persistence.FORMAT)
    try:
        document = strict_json.parse(text)
    except JsonError:
        return
    if not isinstance(document, dict):
        return
    found = state.parse(state.text_of(persistence.FORMAT, {**document, "version": 2}), "fuzz", persistence.FORMAT)
    for left in (found.document, document):
        if isinstance(left, dict) and all(isinstance(left.get(name, kind()), kind) for name, kind in _KINDS.items()):
            persistence.decode(left, "fuzz", _NETWORK)


_KINDS: dict[str, Any] = dict(persistence.FORMAT.sections)


@target("plugin-answers", "plugins.codec", longest=1200)
def plugin_answers(data: bytes) -> None:
    """What a plugin's process answers; what is taken comes back as it was."""
    try:
        document = strict_json.parse(data)
    except JsonError:
        return
    for hint in (Handover, ClientView):
        try:
            value = decode(hint, document)
        except CodecError:
            continue
        assert decode(hint, encode(value)) == value
