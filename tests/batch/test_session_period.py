"""When sessions run, and what is left to them of deleted pods."""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.batch.bind_failure_policy import RELEASE, BindFailurePolicy
from stowplan.messages import events as happened
from stowplan.objects.encoding.duration import SECOND
from tests.batch.session_driver import SessionDriver, binds, member
from tests.scenarios import group_commands


def test_the_session_period_is_of_the_configuration() -> None:
    text = group_commands.configured(
        ["schedulePeriod=10s", "bindFailures=2", "bindFailurePolicy=Release"]
    )
    driver = SessionDriver(text=text)
    assert driver.decider.plan.upkeep == BindFailurePolicy(2, RELEASE)
    assert binds(driver.handle(*driver.gang("a", 1))) == {}
    driver.now += 9 * SECOND
    assert binds(driver.handle()) == {"a-0": "n1"}


def test_sessions_are_a_period_apart() -> None:
    driver = SessionDriver()
    assert binds(driver.handle(*driver.gang("a", 1))) == {"a-0": "n1"}
    # It took a second, in which other pods arrived.
    assert binds(driver.handle(happened.SessionEnded(), *driver.gang("b", 1))) == {}
    assert binds(driver.handle()) == {"b-0": "n1"}


def test_a_deleted_pod_is_forgotten_even_if_its_end_was_not_observed() -> None:
    driver = SessionDriver()
    alone = member("a-0", "a")
    driver.handle(*driver.gang("a", 1))
    ended = replace(alone, status=replace(alone.status, phase="Succeeded"))
    driver.handle(happened.PodDeleted(ended))
    assert list(driver.decider.inventory.pods) == []
