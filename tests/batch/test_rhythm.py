"""When sessions are held, and what of pods that have gone is left to them."""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.batch.bind_failure_policy import RELEASE, BindFailurePolicy
from stowplan.messages import events as happened
from stowplan.objects.encoding.duration import SECOND
from tests.batch.test_decider import Yard, binds, member
from tests.scenarios import gangs


def test_a_period_is_what_the_configuration_says() -> None:
    text = gangs.configured(["schedulePeriod=10s", "bindFailures=2", "bindFailurePolicy=Release"])
    yard = Yard(text=text)
    assert yard.decider.plan.upkeep == BindFailurePolicy(2, RELEASE)
    assert binds(yard.told(*yard.gang("a", 1))) == {}
    yard.now += 9 * SECOND
    assert binds(yard.told()) == {"a-0": "n1"}


def test_the_next_session_is_held_a_period_after_the_end_of_the_last() -> None:
    yard = Yard()
    assert binds(yard.told(*yard.gang("a", 1))) == {"a-0": "n1"}
    # It took a second, in which others have come.
    assert binds(yard.told(happened.SessionEnded(), *yard.gang("b", 1))) == {}
    assert binds(yard.told()) == {"b-0": "n1"}


def test_a_pod_that_is_gone_is_not_kept_though_its_end_was_not_shown_before() -> None:
    yard = Yard()
    alone = member("a-0", "a")
    yard.told(*yard.gang("a", 1))
    ended = replace(alone, status=replace(alone.status, phase="Succeeded"))
    yard.told(happened.PodDeleted(ended))
    assert list(yard.decider.inventory.pods) == []
