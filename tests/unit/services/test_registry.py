"""Which plugin serves a request."""

import pytest
from hyroads.plugins.host import Fault, Kind
from hyroads.plugins.mobility import bicast, hard, hoolock
from hyroads.plugins.registry import MAX_PLUGINS, PluginError, Registry, Selection

PARTS = frozenset({"start", "on", "tick", "due_s", "wanted"})
BUILT_IN = {m.name: m for m in (hard.MANAGER, hoolock.MANAGER, bicast.MANAGER)}


def registry() -> Registry:
    return Registry(BUILT_IN, "hard").with_plugin("mine", bicast.MANAGER, PARTS)


def test_request_before_flow_before_client_before_default():
    selection = Selection("hoolock", by_client={"c": "bicast"}, by_flow={"f": "vertical"})
    assert selection.name(asked="hard", client="c", flow="f") == "hard"
    assert selection.name(client="c", flow="f") == "vertical"
    assert selection.name(client="c", flow="g") == selection.name(client="c") == "bicast"
    assert selection.name(client="d") == selection.name() == "hoolock"


def test_a_disabled_plugin_gives_way_until_its_rest_is_over_or_somebody_enables_it():
    plugins = registry()
    assert plugins.chosen("mine", 0.0) == ("mine", bicast.MANAGER)
    for at_s in (0.0, 1.0, 2.0):
        plugins = plugins.after("mine", Fault(Kind.RAISED, "x", at_s))
    assert plugins.chosen("mine", 3.0) == ("hard", hard.MANAGER)
    assert plugins.chosen("hoolock", 3.0) == ("hoolock", hoolock.MANAGER)
    assert plugins.chosen("mine", 62.0)[0] == "mine"
    assert plugins.enabled("mine").chosen("mine", 3.0)[0] == "mine"


@pytest.mark.parametrize("name", ["hard", "mine", "", "Big", "a b", "x" * 50, "../x", None, 7])
def test_names_that_cannot_be_taken(name):
    with pytest.raises(PluginError, match="plugin"):
        registry().with_plugin(name, bicast.MANAGER, PARTS)


def test_what_is_missing_is_named_and_tables_are_bounded():
    with pytest.raises(PluginError, match="expected due_s, on, start, tick, wanted"):
        registry().with_plugin("empty", object(), PARTS)
    with pytest.raises(PluginError, match="no plugin 'other'; there are bicast, hard, hoolock, mine"):
        registry().chosen("other", 0.0)
    with pytest.raises(PluginError, match="built-in"):
        Registry(BUILT_IN, "mine")
    full = Registry(BUILT_IN, "hard", {f"p{i}": bicast.MANAGER for i in range(MAX_PLUGINS)})
    with pytest.raises(PluginError, match="at most"):
        full.with_plugin("more", bicast.MANAGER, PARTS)
