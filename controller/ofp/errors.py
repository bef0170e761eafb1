"""Errors of the OpenFlow core."""

from __future__ import annotations

from hyroads.controller.core.errors import HyroadsError


class OpenFlowError(HyroadsError):
    """A rule can't be encoded, or an OpenFlow message can't be understood."""


class GuardError(OpenFlowError):
    """A message from a switch is malformed in a way that would harm the parser behind the guard."""


class ReadbackError(OpenFlowError):
    """A flow-stats reply can't be read."""
