"""Whose things are, and how much each token may have: also for requests that come together, and after a restart."""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from hyroads.controller.services import owners
from hyroads.controller.services.owners import Kind, OwnerService, ReservedLoad
from hyroads.rest.contract import (
    COUNTED,
    OPERATOR,
    ConflictError,
    NotFoundError,
    NotOwnerError,
    QuotaError,
    Token,
)

APP = Token("app", "t" * 16, "application", quotas=(("flows", 2), ("ncasts", 0)))
OTHER = Token("other", "o" * 16, "application", quotas=(("flows", 1),))
ADMIN = Token("ops", "a" * 16, "admin")
NOBODY = Token("", "", "admin")
METERED = Token("metered", "m" * 16, "application", quotas=(("reserved_mbps", 20.0), ("reserved_airtime", 0.5)))


class Rig:
    """Things that are there, by kind."""

    def __init__(self) -> None:
        self.there: dict[str, set[str]] = {kind: set() for kind in COUNTED}
        self.files: set[str] = set()
        self.loads: dict[str, ReservedLoad] | None = {}
        self.service = self.new()

    def new(self) -> OwnerService:
        kinds = {kind: Kind(there.__contains__) for kind, there in self.there.items()}
        kinds["flows"] = Kind(self.there["flows"].__contains__, lambda name: OPERATOR if name in self.files else None)
        groups = {"groups": lambda group: [("flows", name) for name in self.there["flows"] if name.startswith(group)]}
        return OwnerService([APP, OTHER, ADMIN, METERED], kinds, groups, lambda: self.loads)

    def make(self, kind: str, name: str, who: Token) -> None:
        with self.service.claim((kind, name), who):
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
                    rig.service.claim(("flows", f"f{rng.randrange(6) if rng.random() < 0.3 else number}"), APP)
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
        with pytest.raises(ConflictError), rig.service.claim(("flows", "f1"), APP):
            raise ConflictError("no such node")
    assert rig.used("flows", APP) == 0 and not rig.service.to_save()


def test_thing_in_the_making_is_refused_to_another_token() -> None:
    """Else the owner would be a matter of which request ends first."""
    rig = Rig()
    with rig.service.claim(("flows", "f1"), APP):
        with pytest.raises(ConflictError), rig.service.claim(("flows", "f1"), OTHER):
            raise AssertionError
        with rig.service.claim(("flows", "f1"), APP):
            rig.there["flows"].add("f1")
    assert rig.service.owner(("flows", "f1")) == "app" and rig.used("flows", OTHER) == 0


def test_only_owner_admin_and_whom_it_gave_leave_may_change_a_thing() -> None:
    rig = Rig()
    rig.make("flows", "f1", APP)
    rig.make("flows", "of-nobody", NOBODY)
    rig.there["flows"].add("of-0.3")
    leave, other_leave = (replace(OTHER, may_change=frozenset({name})) for name in (APP.name, OPERATOR))
    allowed = {
        "f1": {APP, ADMIN, leave},
        "of-nobody": {ADMIN, NOBODY, other_leave},
        "of-0.3": {ADMIN, NOBODY, other_leave},
        "not-there": {APP, OTHER, ADMIN, NOBODY, leave, other_leave},
    }
    for name, may in allowed.items():
        for who in (APP, OTHER, ADMIN, leave, other_leave):
            try:
                rig.service.check(("flows", name), who)
            except NotOwnerError as error:
                assert who not in may, (name, who)
                # The refusal does not say whose it is: GET does.
                assert name != "f1" or APP.name not in str(error)
            else:
                assert who in may, (name, who)
    rig.service.check(("groups", "f"), APP)
    with pytest.raises(NotOwnerError):
        rig.service.check(("groups", "of-"), APP)


def test_what_a_file_declares_belongs_to_the_operator_whoever_has_made_it() -> None:
    rig = Rig()
    rig.make("flows", "f1", APP)
    rig.files.add("f1")
    assert rig.service.owner(("flows", "f1")) == OPERATOR and rig.used("flows", APP) == 0
    with pytest.raises(NotOwnerError):
        rig.service.check(("flows", "f1"), APP)


def test_removal_that_is_taken_back_leaves_the_owner() -> None:
    rig = Rig()
    rig.make("flows", "f1", APP)
    rig.there["flows"].remove("f1")
    assert rig.service.to_save() == [] and rig.used("flows", APP) == 0
    rig.make("flows", "f2", OTHER)
    rig.there["flows"].add("f1")
    assert rig.service.owner(("flows", "f1")) == "app"


def test_owners_of_things_that_are_gone_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "_FEW", 10)
    rig = Rig()
    for number in range(100):
        rig.make("flows", f"f{number}", ADMIN)
        rig.there["flows"].discard(f"f{number - 3}")
    assert len(rig.service._owners) <= 10


def test_reservations_of_a_token_share_its_rate_and_airtime() -> None:
    rig = Rig()
    rig.loads = {
        "r1": ReservedLoad(8.0, np.array([0.3, 0.0])),
        "r2": ReservedLoad(4.0, np.array([0.0, 0.4])),
        "of-ops": ReservedLoad(100.0, np.array([0.5, 0.5])),
    }
    for name, who in (("r1", METERED), ("r2", METERED), ("of-ops", ADMIN), ("r3", METERED)):
        rig.make("reservations", name, who)
    check = rig.service.check_reserved
    check("r3", ReservedLoad(8.0, np.array([0.2, 0.1])))
    with pytest.raises(QuotaError) as rate:
        check("r3", ReservedLoad(8.1, np.array([0.0, 0.0])))
    assert rate.value.details == {"quota": "reserved_mbps", "limit": 20.0, "used": 12.0}
    with pytest.raises(QuotaError, match=r"reserved_airtime: 0\.4 of 0\.5 are in use"):
        check("r3", ReservedLoad(1.0, np.array([0.0, 0.11])))
    # A change of one that is there counts in place of what it has.
    check("r1", ReservedLoad(16.0, np.array([0.5, 0.0])))
    with pytest.raises(QuotaError):
        check("r1", ReservedLoad(16.1, np.array([0.5, 0.0])))
    check("of-ops", ReservedLoad(1000.0, np.array([1.0, 1.0])))
    used = {one["quota"]: (one["limit"], one["used"]) for one in rig.service.document("metered")["quotas"]}
    assert used["reserved_mbps"] == (20.0, 12.0) and used["reserved_airtime"] == (0.5, 0.4)
    rig.loads = None
    assert rig.service.document("metered")["quotas"][-1]["used"] is None


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
