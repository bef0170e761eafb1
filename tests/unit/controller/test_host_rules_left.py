"""Rules of learned hosts that are left on a switch from before."""

from __future__ import annotations

from hyroads.controller.ofp.diff import as_installed
from hyroads.controller.ofp.hosts import Here, host_rules
from hyroads.controller.switches.host_layer import HostLayer

MAC = "02:aa:00:00:00:01"


def test_host_is_unconfirmed_while_rules_from_before_are_left() -> None:
    layer = HostLayer(lambda data: True, lambda count: 1, lambda: 0.0, print, may_send=lambda: False)
    layer.start(as_installed(host_rules((Here(MAC, "p1", False, ()),), {"p1": 1})))
    assert layer.rule_count and not layer.is_confirmed(MAC) and not layer.is_in_force
    layer.all_known(())
    assert not layer.is_confirmed(MAC), "they are yet to be removed"
    layer.want(MAC, ())
    assert not layer.is_confirmed(MAC)
