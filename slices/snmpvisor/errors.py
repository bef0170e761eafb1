"""Errors of the SNMP proxy."""

from __future__ import annotations

from hyroads.slices.errors import SliceError


class SnmpError(SliceError):
    """A message that can't be read, or must not be answered."""
