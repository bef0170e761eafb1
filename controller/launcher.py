"""Starts Ryu's manager under a current eventlet.

``ryu.cmd.manager`` imports ``ryu.app.wsgi``, which wants ``eventlet.wsgi.ALREADY_HANDLED``; eventlet dropped that name.
It is restored here before any of Ryu is imported. The console script ``ryu-manager`` of this package is
:func:`ryu_manager`; ``hyroads controller`` is :func:`run_controller`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from importlib import import_module

from hyroads.controller.core.errors import HyroadsError

APP = "hyroads.controller.app"


def restore_eventlet_names() -> None:
    """Give ``eventlet.wsgi`` the name that Ryu 4.34 imports (an empty, already finished response body)."""
    wsgi = import_module("eventlet.wsgi")
    if not hasattr(wsgi, "ALREADY_HANDLED"):
        wsgi.ALREADY_HANDLED = ()  # type: ignore[attr-defined]


def _quiet_eventlet() -> None:
    """No word of locks that eventlet comes too late for: it says so of one that ``platform`` made and nobody shares.

    Until the framework has set up its log, the handler of last resort is the only one.
    """
    if logging.lastResort is not None:
        logging.lastResort.setLevel(logging.CRITICAL)


def ryu_manager(arguments: Sequence[str] | None = None) -> int:
    """``ryu-manager``: Ryu's own command line. A HyRoads error ends it with status 2 and one line on stderr."""
    restore_eventlet_names()
    _quiet_eventlet()
    manager = import_module("ryu.cmd.manager")
    try:
        manager.main(args=None if arguments is None else list(arguments), prog="ryu-manager")
    except HyroadsError as error:
        os.write(2, f"hyroads: {error}\n".encode())
        return 2
    return 0


def run_controller(config: str | None = None, network: str | None = None, *, verbose: bool = False) -> int:
    """The controller with sane defaults: warnings of the framework only, our events, settings from the given files."""
    for name, value in (("HYROADS_CONFIG", config), ("HYROADS_NETWORK", network)):
        if value is not None:
            os.environ[name] = value
    return ryu_manager(["--verbose" if verbose else "--default-log-level=30", APP])
