"""Where an interface of a client can be."""

from __future__ import annotations

from dataclasses import dataclass

WIRED = "host"
"""Stands for a technology at a wired access port."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The port of a node's switch on a technology (an access point, a power-line port), or its wired access port."""

    node: str
    technology: str

    def __str__(self) -> str:
        return f"{self.node}/{self.technology}"
