"""Errors of slicing."""

from __future__ import annotations

from hyroads.controller.core.errors import HyroadsError


class SliceError(HyroadsError):
    """Base of the errors of slicing."""


class MatchError(SliceError):
    """A match that OpenFlow 1.3 does not allow; ``code`` is the code of the OpenFlow error OFPET_BAD_MATCH."""

    BAD_LEN, BAD_WILDCARDS, BAD_FIELD, BAD_VALUE, BAD_MASK, BAD_PREREQ, DUP_FIELD = 1, 5, 6, 7, 8, 9, 10

    def __init__(self, code: int, problem: str) -> None:
        self.code = code
        self.problem = problem
        super().__init__(problem)

    def __reduce__(self) -> tuple[type[MatchError], tuple[int, str]]:
        """Pickle by the arguments of the constructor."""
        return type(self), (self.code, self.problem)


class ConflictError(SliceError):
    """A change of the slices that must not be carried out: two slices would own the same packets."""


class AllocationError(SliceError):
    """A switch has no room for the tables of all its slices."""


class NotAllowedError(SliceError):
    """The owner of a slice may not do this; the operator may."""
