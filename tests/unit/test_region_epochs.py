"""Which controller of a neighbouring region is heard."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller.core.region_epochs import HeardEpochs

EPOCH = st.integers(0, 5) | st.just(2**63 - 1)


@given(EPOCH, EPOCH, EPOCH)
def test_claim_displaces_a_living_one_only_if_a_dialled_controller_leads_with_it(
    shown: int, living: int, epoch: int
) -> None:
    is_heard = HeardEpochs(shown, living).refusal("north", epoch) == ""
    assert is_heard == (epoch == shown != living)


@given(EPOCH, EPOCH)
def test_claim_is_heard_while_none_lives_unless_its_epoch_is_over(shown: int, epoch: int) -> None:
    assert (HeardEpochs(shown, None).refusal("north", epoch) == "") == (epoch >= shown)


@given(EPOCH, st.none() | EPOCH)
def test_leader_at_its_address_is_never_kept_out_by_claims(shown: int, living: int | None) -> None:
    problem = HeardEpochs(shown, living).refusal("north", shown)
    assert problem == "" or (living == shown and "connected already" in problem)
