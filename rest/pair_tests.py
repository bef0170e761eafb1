"""The resource ``pair-tests``: which links were tested for taking turns, and what was found."""

from __future__ import annotations

from typing import Protocol

from marshmallow import Schema, fields

from .contract import PREFIX, Document
from .resource import Resource, reply
from .schemas import about


class PairTests(Protocol):
    """Pair tests (``controller.services.pair_tests``)."""

    def tests(self) -> Document:
        """What was tested, what is being tested, and whether that changed the domains."""


class PairSchema(Schema):
    """What a pair test says."""

    links = fields.List(fields.String())
    verdict = fields.String(**about("conflict, independent or undecided"))
    ratio = fields.Float(allow_none=True, **about("5/8: they take turns, 1: they do not"))
    half_width = fields.Float(allow_none=True, **about("of the ratio's confidence interval"))
    age_s = fields.Float()


class RunningSchema(Schema):
    """The test of now."""

    links = fields.List(fields.String())
    sending = fields.List(fields.String())


class PairTestsSchema(Schema):
    """Pair tests since the controller's start."""

    mode = fields.String(**about("off or idle"))
    count = fields.Integer()
    running = fields.Nested(RunningSchema, allow_none=True)
    pairs = fields.List(fields.Nested(PairSchema))


def blueprint(tests: PairTests) -> Resource:
    """The resource."""
    found = Resource("pair tests", url_prefix=f"{PREFIX}/pair-tests", description="Which links take turns, measured")

    text = "What was tested and found, and what is being tested; the domains: /interference-domains."
    found.serves("", PairTestsSchema, text, lambda: reply(tests.tests()))
    return found
