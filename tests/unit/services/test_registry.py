"""Which plugin serves a request."""

from hyroads.plugins.kinds import Selection


def test_request_before_flow_before_client_before_default():
    selection = Selection("hoolock", by_client={"c": "bicast"}, by_flow={"f": "vertical"})
    assert selection.name(asked="hard", client="c", flow="f") == "hard"
    assert selection.name(client="c", flow="f") == "vertical"
    assert selection.name(client="c", flow="g") == selection.name(client="c") == "bicast"
    assert selection.name(client="d") == selection.name() == "hoolock"
