"""Failure reports: only what the pod's status does not show yet."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.pod import Pod, PodCondition
from stowplan.scheduler.failure_handler import is_condition_new
from stowplan.scheduler.outbox import Outbox
from stowplan.testing import node, pod
from tests.scheduler.scheduler_driver import SchedulerDriver

CONDITION = PodCondition("PodScheduled", "False", "Unschedulable", "no room")


def pod_with_status(nominated: str = "", *conditions: PodCondition) -> Pod:
    """A pod with this status."""
    made = pod("web", nominated=nominated)
    return replace(made, status=replace(made.status, conditions=conditions))


@pytest.mark.parametrize(
    ("of", "nominated", "news"),
    [
        (pod_with_status(), None, True),
        (pod_with_status("", CONDITION), None, False),
        (pod_with_status("", CONDITION), "", False),
        (pod_with_status("", CONDITION), "n1", True),
        (pod_with_status("n1", CONDITION), "n1", False),
        (pod_with_status("n1", CONDITION), "", True),
        (pod_with_status("n1", CONDITION), None, False),
        (pod_with_status("", replace(CONDITION, status="True")), None, True),
        (pod_with_status("", replace(CONDITION, reason="SchedulerError")), None, True),
        (pod_with_status("", replace(CONDITION, message="no cpu")), None, True),
        (pod_with_status("", replace(CONDITION, type="Ready")), None, True),
    ],
)
def test_a_condition_is_new_if_the_status_differs(
    of: Pod, nominated: str | None, news: bool
) -> None:
    assert is_condition_new(of, "Unschedulable", "no room", nominated) is news


def test_a_pod_that_fails_for_the_same_reason_again_is_not_patched_again() -> None:
    driver = SchedulerDriver(cpu="1")
    web = driver.add("web", cpu="2")
    patch = driver.last(to_do.PatchStatus)
    requested_status = PodCondition("PodScheduled", "False", patch.reason, patch.message)
    seen = replace(web, status=replace(web.status, conditions=(requested_status,)))
    driver.handle(happened.PodUpdated(seen))
    effects = [type(effect) for effect in driver.after(330)]
    assert (to_do.RecordEvent in effects, to_do.PatchStatus in effects) == (True, False)
    # The message counts the nodes, so another node changes it.
    driver.handle(happened.NodeAdded(node("n2", cpu="1")))
    assert to_do.PatchStatus in [type(effect) for effect in driver.after(331)]


def test_a_refusal_after_permit_is_unschedulable_and_retried_like_an_error() -> None:
    """No event can resolve it, so the pod is not added to the unschedulable pods."""
    driver = SchedulerDriver(plugins="PreBindRefusal")
    driver.add("web", labels={"prebind": "no"})
    assert driver.last(to_do.PatchStatus).reason == "Unschedulable"
    assert driver.last(to_do.PatchStatus).message == "prebind refused"
    entry = driver.scheduler.queue.get("default/web")
    assert entry is not None
    assert (entry.errors, entry.refusals, entry.refusers) == (1, 0, frozenset())


def test_a_nomination_is_cleared_even_if_the_watch_has_not_reported_it() -> None:
    driver = SchedulerDriver(plugins="PermitByLabel")
    web = driver.add("web", labels={"permit": "60"})
    driver.handle(happened.Rejected(web.uid, "PermitByLabel", "no"))
    patch = driver.last(to_do.PatchStatus)
    requested_status = PodCondition("PodScheduled", "False", patch.reason, patch.message)
    driver.handle(
        happened.PodUpdated(
            replace(web, status=replace(web.status, conditions=(requested_status,)))
        ),
        happened.NodeAdded(node("n2")),
    )
    assert driver.last(to_do.PatchStatus).nominated_node == "n1"
    effects = driver.handle(happened.Rejected(web.uid, "PermitByLabel", "no"))
    patches = [effect for effect in effects if isinstance(effect, to_do.PatchStatus)]
    assert [patch.nominated_node for patch in patches] == [""]


# Requested statuses count before they are observed.


def patches(driver: SchedulerDriver) -> list[to_do.PatchStatus]:
    return [one for one in driver.effects if isinstance(one, to_do.PatchStatus)]


def test_a_requested_status_is_replaced_even_if_the_watch_shows_the_old_one_again() -> None:
    """The pod is refused for CPU, which is observed; for a taint, which is not; for CPU again."""
    driver = SchedulerDriver(cpu="1")
    big = driver.add("big", cpu="2")
    (first,) = patches(driver)
    requested_status = PodCondition("PodScheduled", "False", first.reason, first.message)
    driver.handle(
        happened.PodUpdated(
            replace(big, status=replace(big.status, conditions=(requested_status,)))
        )
    )
    driver.handle(happened.NodeUpdated(node("n1", cpu="1", taints=("x=y:NoSchedule",))))
    driver.after(400)
    driver.handle(happened.NodeUpdated(node("n1", cpu="1")))
    driver.after(400)
    assert patches(driver)[1].message != first.message
    assert patches(driver)[-1].message == first.message


def test_a_nomination_that_is_being_cleared_is_written_again() -> None:
    """The status that the watch has shown still says so."""
    outbox, pod_observed = Outbox(), pod_with_status("n1", CONDITION)
    outbox.patch_status(pod_observed, "", "Unschedulable", "no room")
    requested_status = outbox.requested_status[pod_observed.uid]
    assert is_condition_new(pod_observed, "Unschedulable", "no room", "n1", requested_status)
    assert not is_condition_new(pod_observed, "Unschedulable", "no room", "n1")
    outbox.pod_observed(pod_observed)
    assert outbox.requested_status, "an older version says nothing of it"
    outbox.pod_observed(pod_with_status("", CONDITION))
    assert not outbox.requested_status


def test_the_requested_status_of_a_deleted_pod_is_forgotten() -> None:
    driver = SchedulerDriver(cpu="1")
    big = driver.add("big", cpu="2")
    assert driver.scheduler._context.outbox.requested_status
    driver.handle(happened.PodDeleted(big))
    assert not driver.scheduler._context.outbox.requested_status
