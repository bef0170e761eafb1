"""Options of ``hyroads demo``: what a demo does not know is refused in one line, before anything is started."""

import pytest

from hyroads.controller.cli.main import main
from hyroads.mininet.demos import ALONE, DEFAULTS, DEMOS, LEAST_SECONDS, ONLY
from hyroads.mininet.demos.checks import DemoOptions
from hyroads.mininet.demos.verdict import network_of

WRONG = [
    (["two-flow"], "no demo 'two-flow' (did you mean"),
    ([], "no demo named; there are: triangle, "),
    (["external", "--faults"], "--faults: not for the demo external (only for triangle)"),
    (["competing", "--minutes", "2"], "--minutes: not for the demo competing (only for office)"),
    (["fair", "--margin", "0.1"], "--margin: not for the demo fair (only for "),
    (["office", "--seconds", "9"], "--seconds: not for the demo office"),
    (["office", "--minutes", "0"], "--minutes 0: expected 0.2 to 1440"),
    (["office", "--minutes", "nan"], "--minutes nan: expected 0.2 to 1440"),
    (["office", "--scale", "2"], "--scale 2: expected 0.05 to 1"),
    (["external", "--seconds", "3"], "--seconds 3: expected 4 to 600"),
    (["competing", "--seconds", "1"], "--seconds 1: expected 2 to 600"),
    (["competing", "--discover"], "--discover: only with --measured"),
    (["competing", "--noise", "0.1"], "--noise: only with --measured, --radios or --snmp"),
    (["external", "--noise", "2"], "--noise 2: expected a share from 0 to 1"),
    (["external", "--margin", "1"], "--margin 1.0: expected a share from 0 to below 1"),
    (["external", "--publish", "-1"], "--publish -1: expected a port number, or 0"),
]


@pytest.mark.parametrize(("arguments", "error"), WRONG)
def test_wrong_options_give_one_line(arguments, error, capsys):
    assert main(["demo", *arguments]) == 2
    said = capsys.readouterr().err
    assert error in said
    assert said.strip().count("\n") == 0


def test_tables_of_options_name_demos_that_exist():
    assert {*DEFAULTS, *LEAST_SECONDS, *(demo for demos in ONLY.values() for demo in demos)} <= DEMOS.keys()


@pytest.mark.parametrize("name", sorted(DEMOS.keys() - ALONE))
def test_every_listed_demo_has_a_network(name):
    network = network_of(name, DemoOptions(seconds=8.0))
    assert network.links
    assert network.flows or name in ("triangle", "session")
