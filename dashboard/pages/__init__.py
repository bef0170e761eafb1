"""The pages: one file each, which has a ``PAGE``. A new one is a file, and its name in ``NAMES``."""

from __future__ import annotations

from importlib import import_module

from .frame import Page

NAMES = ("network",)


def pages() -> list[Page]:
    """All, in the order of the menu."""
    return [import_module(f"{__name__}.{name}").PAGE for name in NAMES]
