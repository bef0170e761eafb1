"""The exceptions of HyRoads that more than one module raises or handles."""

from __future__ import annotations

from collections.abc import Sequence


class HyroadsError(Exception):
    """Base of every error that a user may see; its text is one clear line."""


class ConfigError(HyroadsError):
    """A file or request is wrong: names the document, the place in it and what was expected.

    ``more`` holds the further errors of the same document, for a command that lists them all.
    """

    def __init__(self, document: str, place: str, problem: str, more: Sequence[ConfigError] = ()) -> None:
        self.document = document
        self.place = place
        self.problem = problem
        self.more = tuple(more)
        super().__init__(f"{document}: {place}: {problem}" if place else f"{document}: {problem}")

    def __reduce__(self) -> tuple[type[ConfigError], tuple[object, ...]]:
        """Pickle by the arguments of the constructor, so that the error survives the way between processes."""
        return type(self), (self.document, self.place, self.problem, self.more)


class PlanningError(HyroadsError):
    """A path, multipath or rate could not be computed for the given network."""


class NoRouteError(PlanningError):
    """No path leads from one node to the other."""


class OpenFlowError(HyroadsError):
    """A rule can't be encoded, or an OpenFlow message can't be understood."""


class GuardError(OpenFlowError):
    """A message from a switch is malformed in a way that would harm the parser behind the guard."""


class ReadbackError(OpenFlowError):
    """A flow-stats reply can't be read."""
