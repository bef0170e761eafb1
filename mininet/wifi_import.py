"""Finds the user's Mininet-WiFi and imports it, with stand-ins for what a current Python or Debian's Mininet lacks.

The stand-ins exist in this process only, and only while Mininet-WiFi is imported; no file of it is changed. What stays,
in this process, is that its mobility waits a little between two looks at the clock: its loops would take a processor.
Mininet-WiFi is looked for where Python looks, in the folder that ``HYROADS_MININET_WIFI`` names (a checkout will do),
and where its own installer puts it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import time
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .programs import EmulationError

PACKAGE = "mn_wifi"
FOLDER_VARIABLE = "HYROADS_MININET_WIFI"
HINT = (
    "Mininet-WiFi is not installed: git clone https://github.com/intrig-unicamp/mininet-wifi, and in it "
    "sudo util/install.sh -Wlnfv (its README); a checkout elsewhere: HYROADS_MININET_WIFI=FOLDER"
)
# What Mininet-WiFi imports for aircraft and satellites alone; nothing of a network file is either.
_FOR_AIRCRAFT = {"FlightRadar24": "FlightRadar24API", "bitstring": "BitArray", "requests": "get"}
MOBILITY_STEP_S = 0.02
_MODULES = ("net", "cli", "link", "mobility", "module", "node")


class MininetWifiError(EmulationError, ImportError):
    """Mininet-WiFi can't be imported: an ``ImportError`` for scripts, one line and status 2 for commands."""


def load() -> None:
    """Imports Mininet-WiFi once, so that ``from mn_wifi.net import Mininet_wifi`` works from then on."""
    if f"{PACKAGE}.net" in sys.modules:
        return
    _make_findable()
    try:
        with warnings.catch_warnings(), stand_ins():
            # Mininet 2.3 imports distutils, and Mininet-WiFi pkg_resources, which Python warns about.
            warnings.simplefilter("ignore")
            for module in _MODULES:
                importlib.import_module(f"{PACKAGE}.{module}")
    except ModuleNotFoundError as error:
        wanted = (error.name or "?").partition(".")[0]
        raise MininetWifiError(
            f"Mininet-WiFi needs the Python module {wanted}: {sys.executable} -m pip install {wanted}"
        ) from error
    _make_mobility_wait()


def _make_mobility_wait() -> None:
    """Mobility looks every 0.1 s whether somebody moves, and asks the clock all the time in between."""
    mobility = sys.modules[f"{PACKAGE}.mobility"]
    mobility.time = _patient_time  # type: ignore[attr-defined]
    mobility.sleep = _patient_sleep  # type: ignore[attr-defined]


def _patient_time() -> float:
    time.sleep(MOBILITY_STEP_S)
    return time.time()


def _patient_sleep(seconds: float) -> None:
    time.sleep(max(seconds, MOBILITY_STEP_S))


def _make_findable() -> None:
    """Sees to it that Python finds the package; a folder that must be added comes last, so that it hides nothing."""
    if importlib.util.find_spec(PACKAGE) is not None:
        return
    for folder in _folders():
        if (folder / PACKAGE / "net.py").is_file():
            sys.path.append(str(folder))
            return
    raise MininetWifiError(HINT)


def _folders() -> Iterator[Path]:
    """Where Mininet-WiFi may be: the user's word first, then what ``make install`` and pip use for system packages."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        yield Path(named)
        if not (Path(named) / PACKAGE / "net.py").is_file():
            raise MininetWifiError(f"{FOLDER_VARIABLE}={named}: expected a folder with {PACKAGE}/net.py")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for system in (Path(f"/usr/local/lib/{version}/dist-packages"), Path("/usr/lib/python3/dist-packages")):
        yield system
        yield from sorted(system.glob("mininet_wifi-*.egg"), reverse=True)


@contextmanager
def stand_ins() -> Iterator[None]:
    """What is missing exists inside of this context: modules that are not installed, and ``mininet.util.fmtBps``."""
    import mininet.util

    made = [_aircraft(name, member) for name, member in _FOR_AIRCRAFT.items() if importlib.util.find_spec(name) is None]
    if importlib.util.find_spec("pkg_resources") is None:
        made.append(_pkg_resources())
    lacks_format = not hasattr(mininet.util, "fmtBps")
    for module in made:
        sys.modules[module.__name__] = module
    if lacks_format:
        mininet.util.fmtBps = bits_per_second
    try:
        yield
    finally:
        for module in made:
            sys.modules.pop(module.__name__, None)
        if lacks_format:
            del mininet.util.fmtBps


def bits_per_second(rate: float, unit: str | None = None) -> str:
    """A rate in bit/s as iperf shows it; ``unit`` is k, m or g, by default what suits the rate. From Mininet 2.3.1."""
    units = {"g": ("Gbits", 1e9), "m": ("Mbits", 1e6), "k": ("Kbits", 1e3)}
    suits = next((key for key, (_, size) in units.items() if rate >= size), "k")
    name, size = units.get((unit or suits).lower(), units["m"])
    return f"{rate / size:.2f} {name}/sec"


def _aircraft(name: str, member: str) -> types.ModuleType:
    def missing(*_arguments: object, **_options: object) -> None:
        raise MininetWifiError(f"this part of Mininet-WiFi needs the Python module {name}, which is not installed")

    module = types.ModuleType(name)
    setattr(module, member, missing)
    return module


def _pkg_resources() -> types.ModuleType:
    """The one function of ``pkg_resources`` that is used; setuptools 81 has the module no more."""

    def resource_filename(package: str, name: str) -> str:
        spec = importlib.util.find_spec(package)
        origin = spec.origin if spec is not None else None
        if origin is None:
            raise MininetWifiError(f"there is no package {package}")
        return str(Path(origin).parent / name)

    module = types.ModuleType("pkg_resources")
    module.resource_filename = resource_filename  # type: ignore[attr-defined]
    return module
