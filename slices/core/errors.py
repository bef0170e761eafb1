"""Errors of slicing. A refusal of the proxy is an OpenFlow error for the guest instead of a message for the switch.

Numbers: OpenFlow Switch Specification 1.3.5, section 7.4.4. What the virtual switch can't do gets the error that a
switch without the feature would send, so that guests need not know about slicing.
"""

from __future__ import annotations

from struct import Struct

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.ofp import wire


class SliceError(HyroadsError):
    """Base of the errors of slicing."""


class MatchError(SliceError):
    """A match that OpenFlow 1.3 does not allow; ``code`` is the code of the OpenFlow error OFPET_BAD_MATCH."""

    BAD_LEN, BAD_WILDCARDS, BAD_FIELD, BAD_VALUE, BAD_MASK, BAD_PREREQ, DUP_FIELD = 1, 5, 6, 7, 8, 9, 10

    def __init__(self, code: int, problem: str) -> None:
        self.code = code
        self.problem = problem
        super().__init__(problem)


class ConflictError(SliceError):
    """A change of the slices that must not be carried out: two slices would own the same packets."""


class AllocationError(SliceError):
    """A switch has no room for the tables of all its slices."""


class NotAllowedError(SliceError):
    """The owner of a slice may not do this; the operator may."""


BAD_REQUEST, BAD_ACTION, BAD_INSTRUCTION, BAD_MATCH, FLOW_MOD_FAILED, GROUP_MOD_FAILED = 1, 2, 3, 4, 5, 6
PORT_MOD_FAILED, TABLE_MOD_FAILED, ROLE_REQUEST_FAILED, METER_MOD_FAILED, TABLE_FEATURES_FAILED = 7, 8, 11, 12, 13

_ERROR = Struct("!HH")
_QUOTED = 64


class Refused(SliceError):
    """The guest gets an OpenFlow error with this type and code."""

    def __init__(self, kind: int, code: int, reason: str) -> None:
        self.kind = kind
        self.code = code
        self.reason = reason
        super().__init__(reason)

    def message(self, request: bytes) -> bytes:
        """The error about a request, under its transaction id and quoting its first bytes."""
        xid = int.from_bytes(request[4:8], "big")
        return wire.message(_ERROR.pack(self.kind, self.code) + request[:_QUOTED], xid, wire.ERROR)


def bad_request(code: int, reason: str) -> Refused:
    """OFPET_BAD_REQUEST: multipart 2, experimenter 3, permission 5, length 6, buffer unknown 8, slave 10, port 11."""
    return Refused(BAD_REQUEST, code, reason)


def bad_action(code: int, reason: str) -> Refused:
    """OFPET_BAD_ACTION: type 0, length 1, out port 4, permission 6, queue 8, out group 9, set type 13."""
    return Refused(BAD_ACTION, code, reason)
