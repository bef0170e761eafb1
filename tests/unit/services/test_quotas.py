"""How much each token may have: counted as long as it is there, by requests that come together, and after a restart."""

from __future__ import annotations

import random
from contextlib import ExitStack

import pytest

from hyroads.controller.services.quotas import QuotaService
from hyroads.rest.contract import QUOTAS, ConflictError, NotFoundError, QuotaError, Token

APP = Token("app", "t" * 16, "application", quotas=(("flows", 2), ("ncasts", 0)))
OTHER = Token("other", "o" * 16, "application", quotas=(("flows", 1),))
ADMIN = Token("ops", "a" * 16, "admin")
NOBODY = Token("", "", "admin")


class Rig:
    """Things that are there, by kind."""

    def __init__(self) -> None:
        self.there: dict[str, set[str]] = {kind: set() for kind in QUOTAS}
        self.service = self.new()

    def new(self) -> QuotaService:
        exists = {kind: there.__contains__ for kind, there in self.there.items()}
        return QuotaService([APP, OTHER, ADMIN], exists)

    def make(self, kind: str, name: str, who: Token) -> None:
        with self.service.claim(kind, name, who):
            self.there[kind].add(name)

    def used(self, kind: str, who: Token) -> int:
        quotas = self.service.document(who.name)["quotas"]
        return int(next(one["used"] for one in quotas if one["quota"] == kind))


def test_a_token_has_as_many_as_it_may_and_no_more() -> None:
    rig = Rig()
    rig.make("flows", "f1", APP)
    rig.make("flows", "f2", APP)
    with pytest.raises(QuotaError, match=r"token app: quota flows: all 2 are in use") as raised:
        rig.make("flows", "f3", APP)
    assert raised.value.details == {"quota": "flows", "limit": 2, "used": 2}
    assert "f3" not in rig.there["flows"]
    # What is there already costs nothing; neither do other kinds, nor what others have.
    rig.make("flows", "f1", APP)
    rig.make("sessions", "s", APP)
    rig.make("flows", "o1", OTHER)
    for number in range(50):
        rig.make("flows", f"a{number}", ADMIN)
        rig.make("flows", f"n{number}", NOBODY)
    with pytest.raises(QuotaError, match="ncasts: all 0"):
        rig.make("ncasts", "f1", APP)
    assert [rig.used("flows", who) for who in (APP, OTHER, ADMIN)] == [2, 1, 50]
    with pytest.raises(NotFoundError):
        rig.service.document("nobody")


def test_whoever_removes_a_thing_there_is_room_again() -> None:
    rig = Rig()
    for name in ("f1", "f2"):
        rig.make("flows", name, APP)
    rig.there["flows"].remove("f1")
    rig.make("flows", "f3", APP)
    # An id that others use later is theirs.
    rig.there["flows"].remove("f2")
    rig.make("flows", "f2", OTHER)
    assert (rig.used("flows", APP), rig.used("flows", OTHER)) == (1, 1)


def test_requests_that_come_together_have_no_more() -> None:
    """Each makes its thing later, in any order, or fails."""
    for seed in range(200):
        rng, rig = random.Random(seed), Rig()
        open_claims: list[tuple[ExitStack, str, bool]] = []
        for number in range(40):
            if open_claims and rng.random() < 0.5:
                stack, name, succeeds = open_claims.pop(rng.randrange(len(open_claims)))
                if succeeds:
                    rig.there["flows"].add(name)
                stack.close()
            stack = ExitStack()
            try:
                stack.enter_context(
                    rig.service.claim("flows", f"f{rng.randrange(6) if rng.random() < 0.3 else number}", APP)
                )
            except QuotaError:
                continue
            open_claims.append((stack, f"f{number}", rng.random() < 0.6))
            assert rig.used("flows", APP) <= 2
        for stack, _, _ in open_claims:
            stack.close()
        assert rig.used("flows", APP) <= 2


def test_what_fails_costs_nothing() -> None:
    rig = Rig()
    for _ in range(10):
        with pytest.raises(ConflictError), rig.service.claim("flows", "f1", APP):
            raise ConflictError("no such node")
    assert rig.used("flows", APP) == 0 and not rig.service.to_save()


def test_of_two_who_make_the_same_the_one_that_succeeds_has_it() -> None:
    rig = Rig()
    with pytest.raises(ConflictError), rig.service.claim("flows", "f1", APP):
        with rig.service.claim("flows", "f1", OTHER):
            rig.there["flows"].add("f1")
        raise ConflictError("there is one with other content")
    assert rig.used("flows", APP) + rig.used("flows", OTHER) == 1


def test_a_restart_and_a_takeover_forget_nothing() -> None:
    rig = Rig()
    for name in ("f1", "f/2"):
        rig.make("flows", name, APP)
    rig.make("flows", "gone", OTHER)
    rig.there["flows"].remove("gone")
    saved = rig.service.to_save()
    assert len({one["id"] for one in saved}) == 2
    rig.service = rig.new()
    assert rig.service.restore(saved) == []
    with pytest.raises(QuotaError):
        rig.make("flows", "f3", APP)
    rig.service.become([])
    assert rig.used("flows", APP) == 0
    assert rig.service.become(saved) == [] and rig.used("flows", APP) == 2


@pytest.mark.parametrize("wrong", [None, 7, {}, [{}], [7], [{"kind": "x", "name": "a", "owner": "b"}]])
def test_what_is_wrong_in_the_state_file_is_left_out(wrong: object) -> None:
    rig = Rig()
    problems = rig.service.restore(wrong)
    assert len(problems) == (len(wrong) if isinstance(wrong, list) else 0) and not rig.service.to_save()
