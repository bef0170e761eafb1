"""What goes between controller and plugin comes back as it was, and nothing else comes in."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.network import Place
from hyroads.controller.core.services.mobility import (
    Associated,
    Confirmed,
    DesiredState,
    Event,
    Handover,
    Passed,
    Phase,
    Refused,
    Request,
    Timings,
)
from hyroads.controller.core.services.view import ClientView, FlowView, LinkView, NetworkView, Option
from hyroads.plugins.codec import CodecError, decode, encode

places = st.builds(Place, st.text(max_size=5), st.text(max_size=5))
some = st.lists(places, max_size=3).map(tuple)
wanted = st.builds(
    DesiredState, some, some, st.booleans(), st.none() | st.floats(0, 10), st.none() | places, st.none() | places
)
names = st.frozensets(st.text(max_size=5), max_size=3)
requests = st.builds(
    Request, st.text(), st.text(), st.none() | places, places, names, st.builds(Timings, st.floats(0, 100))
)
handovers = st.builds(
    Handover, requests, st.sampled_from(Phase), st.floats(0, 1e9), st.none() | st.text(), names, names, st.booleans()
)
events = st.one_of(
    st.builds(Associated, places), st.builds(Confirmed, wanted), st.builds(Passed, st.text(), places),
    st.builds(Refused, st.text()),
)  # fmt: skip


def there_and_back(hint, value):
    return decode(hint, json.loads(json.dumps(encode(value))))


@given(handovers, events)
def test_values_come_back_as_they_were(handover, event):
    assert there_and_back(Handover, handover) == handover
    assert there_and_back(Event, event) == event and type(there_and_back(Event, event)) is type(event)


def test_a_view_comes_back_read_only():
    place = Place("a", "wifi")
    client = ClientView("c", place, 1.0, (Option(place, "wifi", 3.0, -60.0), Option(Place("b", "plc"), "plc", 1.0)))
    link, flow = LinkView("l", "a", "b", "wifi", True, 1.0, 0.5), FlowView("f", "a", "b", None, (("l",),))
    view = NetworkView(1.5, {"a": "ap"}, {"l": link}, {"f": flow}, {"c": client})
    again = there_and_back(NetworkView, view)
    assert again == view and math.isinf(again.clients["c"].demand_mbps)
    with pytest.raises(TypeError):
        again.links["l"] = None


@pytest.mark.parametrize(
    ("hint", "document"),
    [
        (Place, {"is": "Place", "node": "a"}),
        (Place, {"is": "Option", "node": "a", "technology": "b"}),
        (Place, {"is": "Place", "node": "a", "technology": "b", "more": 1}),
        (Place, {"is": "Place", "node": 1, "technology": "b"}),
        (Place, "a/b"),
        (Event, {"is": "Place", "node": "a", "technology": "b"}),
        (Phase, "sleeping"),
        (int, True),
        (float, "1"),
        (float, math.nan),
        (tuple[int, ...], {"0": 1}),
        (tuple[int, str], [1]),
        (frozenset[tuple[str, ...]], [{}]),
        (dict[str, int], [1]),
    ],
)
def test_what_does_not_fit_is_refused(hint, document):
    with pytest.raises(CodecError):
        decode(hint, document)


@pytest.mark.parametrize("value", [object(), {1: 2}, print, {1, 2}])
def test_what_has_no_json_is_not_sent(value):
    with pytest.raises(CodecError):
        encode(value)
