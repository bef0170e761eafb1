"""The one exception tree of HyRoads."""

from __future__ import annotations


class HyroadsError(Exception):
    """Base of every error that a user may see; its text is one clear line."""


class ConfigError(HyroadsError):
    """A file or request is wrong: names the document, the place in it and what was expected."""

    def __init__(self, document: str, place: str, problem: str) -> None:
        self.document = document
        self.place = place
        self.problem = problem
        super().__init__(f"{document}: {place}: {problem}" if place else f"{document}: {problem}")


class PlanningError(HyroadsError):
    """A path, multipath or rate could not be computed for the given network."""
