"""Errors of the emulation."""

from __future__ import annotations

from hyroads.controller.core.errors import HyroadsError


class EmulationError(HyroadsError):
    """The emulated network could not be set up or broke while it ran."""
