"""Starts the manager of Ryu, or of os-ken, under a current eventlet.

``HYROADS_FRAMEWORK`` (``ryu`` or ``os_ken``) chooses between them; by default it is Ryu where that is installed.

``ryu.cmd.manager`` imports ``ryu.app.wsgi``, which wants ``eventlet.wsgi.ALREADY_HANDLED``; eventlet dropped that name.
It is restored here before any of Ryu is imported. The console script ``ryu-manager`` of this package is
:func:`ryu_manager`; ``hyroads controller`` is :func:`run_controller`.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec

from hyroads.controller.core.errors import ConfigError, HyroadsError

APP = "hyroads.controller.app"
FRAMEWORKS = ("ryu", "os_ken")


def chosen_framework(wanted: str | None, is_installed: Callable[[str], object] = find_spec) -> str:
    """The package that speaks OpenFlow: the ``wanted`` one, else the first of :data:`FRAMEWORKS` that is installed.
    Raises ConfigError if that is not installed.
    """
    names = FRAMEWORKS if not wanted else (wanted.replace("-", "_"),)
    found = next((name for name in names if name in FRAMEWORKS and is_installed(name)), None)
    if found is None:
        if wanted:
            raise ConfigError("HYROADS_FRAMEWORK", "", f"expected ryu or os_ken, installed, got {wanted[:40]!a}")
        raise ConfigError("controller", "", "needs Ryu or os-ken: pip install 'hyroads[controller-osken]'")
    return found


FRAMEWORK = chosen_framework(os.environ.get("HYROADS_FRAMEWORK"))
DESCRIPTORS = 65536


def prepare_eventlet() -> None:
    """Choose green threads, and give ``eventlet.wsgi`` the name that Ryu 4.34 imports (an empty response body)."""
    # Everything of ours runs in green threads; newer os-ken would otherwise use those of the operating system.
    os.environ.setdefault("OSKEN_HUB_TYPE", "eventlet")
    # Its resolver of names has locks of green threads, and threads of the system resolve names, too.
    os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")
    with warnings.catch_warnings():
        # It advises every program against itself, on its terminal. Ryu has no other green threads.
        warnings.filterwarnings("ignore", r"\s*Eventlet is deprecated")
        wsgi = import_module("eventlet.wsgi")
    if not hasattr(wsgi, "ALREADY_HANDLED"):
        wsgi.ALREADY_HANDLED = ()  # type: ignore[attr-defined]


def ryu_manager(arguments: Sequence[str] | None = None) -> int:
    """``ryu-manager``: the framework's own command line. A HyRoads error ends it: status 2, one line on stderr."""
    prepare_eventlet()
    # Eventlet comes too late for a lock that ``platform`` made and nobody shares, and says so. Until the framework has
    # set up its log, the handler of last resort is the only one.
    if logging.lastResort is not None:
        logging.lastResort.setLevel(logging.CRITICAL)
    # The bounds on connections are ours; the usual limit of 1024 descriptors is below them in large networks.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    # A terminal that closes ends no controller. The application takes it as a wish to reload, once it is there.
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    try:
        if find_spec(FRAMEWORK + ".cmd"):
            manager = import_module(f"{FRAMEWORK}.cmd.manager")
            manager.main(args=None if arguments is None else list(arguments), prog="ryu-manager")
        else:
            _run_os_ken(arguments)
    except HyroadsError as error:
        os.write(2, f"hyroads: {error}\n".encode())
        return 2
    return 0


def _run_os_ken(arguments: Sequence[str] | None) -> None:
    """os-ken from 4.0 on has no command line of its own: this is that of ``ryu-manager``, over os-ken's options."""
    import_module("os_ken.lib.hub").patch(thread=False)
    # Options are defined by the modules that use them, so those come before the options are read.
    log = import_module("os_ken.log")
    log.early_init_log(logging.DEBUG)
    manager = import_module("os_ken.base.app_manager")
    import_module("os_ken.controller.controller")
    conf, options = import_module("os_ken.cfg").CONF, import_module("oslo_config.cfg")
    conf.register_cli_opts(
        [
            options.ListOpt("app-lists", default=[], help="application module name to run"),
            options.MultiStrOpt("app", positional=True, default=[], help="application module name to run"),
        ]
    )
    conf(args=None if arguments is None else list(arguments), prog="ryu-manager", project="os_ken")
    log.init_log()
    manager.AppManager.run_apps([*conf.app_lists, *conf.app] or ["os_ken.controller.ofp_handler"])


def run_controller(
    config: str | None = None, network: str | None = None, *, verbose: bool = False, log_format: str | None = None
) -> int:
    """The controller with sane defaults: warnings of the framework only, our events, settings from the given files.
    ``log_format`` is ``text`` (the default) or ``json``.
    """
    given = {"HYROADS_CONFIG": config, "HYROADS_NETWORK": network, "HYROADS_LOG_FORMAT": log_format}
    for name, value in given.items():
        if value is not None:
            os.environ[name] = value
    return ryu_manager(["--verbose" if verbose else "--default-log-level=30", APP])
