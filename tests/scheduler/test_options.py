"""SchedulerOptions, and that `scheduler_for` passes them on."""

from __future__ import annotations

import json

import pytest

from stowplan.assembly.build import configuration_of, scheduler_for
from stowplan.framework import ConfigError
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.objects.encoding.duration import SECOND
from stowplan.queue import QueueOptions, SubQueue
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.testing import node, pod

SLOW = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "podInitialBackoffSeconds": 3,
    "podMaxBackoffSeconds": 30,
}


def scheduler(options: SchedulerOptions | None = None, tree: object = None) -> Scheduler:
    text = None if tree is None else json.dumps(tree)
    return scheduler_for(*configuration_of(text, "test"), options=options)


def queue(**chosen: float | bool) -> SchedulerOptions:
    return SchedulerOptions(queue=QueueOptions(**chosen))


def backoff_ends(made: Scheduler) -> int:
    """When, in seconds, a pod is retried whose first binding is refused at once."""
    effects = made.handle([happened.NodeAdded(node("n1")), happened.PodAdded(pod("web"))], 0)
    (bind,) = (effect for effect in effects if isinstance(effect, to_do.Bind))
    effects = made.handle([happened.BindFailed(bind.effect, bind.uid, 409)], 0)
    return woken(effects) // SECOND


def woken(effects: list[Effect]) -> int:
    return next(effect.at for effect in effects if isinstance(effect, to_do.Wake))


@pytest.mark.parametrize(
    ("options", "tree", "wanted_s"),
    [
        (None, None, 2),
        (None, SLOW, 4),
        (queue(initial_backoff_s=5), SLOW, 6),
        (queue(max_backoff_s=2), SLOW, 3),
        (queue(initial_backoff_s=50), None, 11),
        (queue(initial_backoff_s=5, flush_backoff_s=20), None, 20),
    ],
)
def test_backoff_is_of_the_options_then_the_configuration_then_the_default(
    options: SchedulerOptions | None, tree: object, wanted_s: int
) -> None:
    assert backoff_ends(scheduler(options, tree)) == wanted_s


def park(made: Scheduler) -> list[Effect]:
    """A pod that is too large for the only node."""
    return made.handle([happened.NodeAdded(node("n1")), happened.PodAdded(pod("web", cpu="99"))], 0)


@pytest.mark.parametrize(
    ("options", "swept_s", "over_s"),
    [
        (None, 30, 330),
        (queue(hints=False), 30, 90),
        (queue(max_in_unschedulable_pods_s=40, flush_unschedulable_s=7), 7, 42),
    ],
)
def test_unschedulable_pods_are_flushed(
    options: SchedulerOptions | None, swept_s: int, over_s: int
) -> None:
    made = scheduler(options)
    assert woken(park(made)) == over_s * SECOND
    for at in range(swept_s, over_s + 1, swept_s):
        assert made.queue.place_of("default/web") is SubQueue.UNSCHEDULABLE
        assert made.queue.get("default/web").attempts == 1
        made.handle([], at * SECOND)
    assert made.queue.get("default/web").attempts == 2


@pytest.mark.parametrize(("hints", "attempts"), [(True, 1), (False, 2)])
def test_hints_may_be_turned_off(hints: bool, attempts: int) -> None:
    made = scheduler(queue(hints=hints))
    park(made)
    # No hint expects so small a node to help.
    made.handle([happened.NodeAdded(node("n2", cpu="0", pods=0))], 9 * SECOND)
    assert made.queue.get("default/web").attempts == attempts


def test_leadership_and_term() -> None:
    made = scheduler(SchedulerOptions(leads=False, term=7))
    events = [happened.NodeAdded(node("n1")), happened.PodAdded(pod("web"))]
    assert made.handle(events, 0) == []
    assert made.handle([happened.LeaderElected(7)], 0)[0].term == 7
    assert scheduler(SchedulerOptions(term=7)).handle(events, 0)[0].term == 7


def test_limits_of_time_and_size() -> None:
    made = scheduler(SchedulerOptions(read_again_s=3, assume_limit_s=20, heads_max=1))
    events = [happened.NodeAdded(node("n1")), *(happened.PodAdded(pod(name)) for name in "ab")]
    bind, wake = made.handle(events, 0)
    assert isinstance(bind, to_do.Bind)
    assert (wake.at, made.options.heads_max) == (0, 1)
    effects = made.handle([happened.BindFailed(bind.effect, bind.uid, 0)], 0)
    assert woken(effects) == 3 * SECOND
    (read,) = (effect for effect in effects if isinstance(effect, to_do.ReadPod))
    there = pod("a", on="n1")
    effects = made.handle([happened.PodRead(read.effect, bind.uid, there)], 0)
    assert woken(effects) == 20 * SECOND


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            queue(max_backoff_s=-1),
            "options.queue.max_backoff_s: Invalid value: -1: expected 0 or more",
        ),
        (
            queue(flush_unschedulable_s=0),
            "options.queue.flush_unschedulable_s: Invalid value: 0: expected more than 0",
        ),
        (
            SchedulerOptions(assume_limit_s=-2),
            "options.assume_limit_s: Invalid value: -2: expected 0 or more",
        ),
        (
            SchedulerOptions(read_again_s=0),
            "options.read_again_s: Invalid value: 0: expected more than 0",
        ),
        (SchedulerOptions(heads_max=0), "options.heads_max: Invalid value: 0: expected 1 or more"),
        (SchedulerOptions(term=0), "options.term: Invalid value: 0: expected 1 or more"),
    ],
)
def test_what_is_out_of_range(options: SchedulerOptions, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        scheduler(options)
    assert message in str(caught.value)
