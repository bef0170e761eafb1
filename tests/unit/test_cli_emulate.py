"""What the options of ``hyroads emulate`` and ``demo`` make of the controller's settings."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from hyroads.controller.cli import emulate
from hyroads.controller.cli.main import add_all

pytest.importorskip("mininet")


def settings(*arguments: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_all(parser, emulate.RUN_ARGUMENTS)
    return dict(emulate.options(parser.parse_args(arguments)).emulation.settings)


def test_only_what_is_given_reaches_the_controller() -> None:
    assert settings() == {}
    assert settings("--mode", "controller", "--margin", "0") == {"mode": "controller", "margin": 0.0}


def test_an_unknown_mode_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        settings("--mode", "guess")
    assert "solver" in capsys.readouterr().err
