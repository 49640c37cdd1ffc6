"""Benchmark cases: each can be run and has the described content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from stowplan.benchmarks.baselines import BASELINES
from stowplan.benchmarks.benchmark_objects import BenchmarkClient
from stowplan.benchmarks.benchmark_workload import (
    BATCH,
    BenchmarkWorkload,
    WorkloadSizes,
    arriving_pods,
)
from stowplan.benchmarks.cases.scheduler_perf_churn import CHURN
from stowplan.benchmarks.cases.stowplan_cases import INFEASIBLE_TEMPLATES
from stowplan.benchmarks.catalog import CASES, NAMES, check_case_name
from stowplan.benchmarks.measurement import prepare_run
from stowplan.benchmarks.playback import Playback
from stowplan.inputs.input_error import InputError
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.testing import builders

SMALL = WorkloadSizes(nodes=40, pods=30)


def workload(name: str, sizes: WorkloadSizes = SMALL) -> BenchmarkWorkload:
    return CASES[name].make(BenchmarkClient(), sizes)


def all_events(found: BenchmarkWorkload) -> Iterator[Event]:
    return (event for call in found.calls for event in call.events)


def awaited(found: BenchmarkWorkload) -> list[Pod]:
    pods = (event.pod for event in all_events(found) if isinstance(event, happened.PodAdded))
    return [pod for pod in pods if pod.uid in found.awaited]


def finished(name: str, sizes: WorkloadSizes = SMALL) -> Playback:
    play, _ = prepare_run(CASES[name], sizes)
    play.run()
    return play


@pytest.mark.parametrize("name", CASES)
def test_every_pod_of_a_shape_meets_its_end(name: str) -> None:
    play = finished(name)
    assert set(play.waits) == play.workload.awaited
    assert len(play.workload.awaited) in (0, SMALL.pods)
    assert play.seconds > 0
    play.scheduler.validate()
    play.confirm()
    play.scheduler.validate()
    assert not play.scheduler.cache.assumed()


def test_floors_are_of_shapes() -> None:
    assert BASELINES.keys() <= CASES.keys()
    assert {shape.name for shape in CHURN} & BASELINES.keys()


def test_pods_are_decoded_one_by_one_and_interned() -> None:
    pods = awaited(workload("basic"))
    assert len({id(pod.spec) for pod in pods}) == 1
    assert len({id(pod.metadata) for pod in pods}) == len(pods)


def test_templates_are_interleaved() -> None:
    pods = awaited(workload("templates", WorkloadSizes(nodes=40, pods=500)))
    assert len({id(pod.spec) for pod in pods}) == 200
    assert pods[0].spec is pods[200].spec
    assert len({tuple(requested(pod).items()) for pod in pods}) == 200


def test_templates_can_be_as_many_as_one_asks_for() -> None:
    pods = awaited(workload("templates", SMALL._replace(templates=7)))
    assert len({id(pod.spec) for pod in pods}) == 7


def test_every_pod_is_different() -> None:
    pods = awaited(workload("different", WorkloadSizes(nodes=40, pods=500)))
    assert len({tuple(requested(pod).items()) for pod in pods}) == 500
    assert len({tuple(pod.labels.items()) for pod in pods}) == 500


def test_infeasible_pods_are_of_twenty_templates_and_refused_for_three_reasons() -> None:
    play = finished("unfit", WorkloadSizes(nodes=8, pods=40))
    assert len({id(pod.spec) for pod in awaited(play.workload)}) == INFEASIBLE_TEMPLATES
    messages = {e.message for e in play.effects if isinstance(e, to_do.PatchStatus)}
    for part in ("8 Insufficient cpu", "node affinity/selector", "No preemption victims found"):
        assert any(part in message for message in messages), messages


@pytest.mark.parametrize(("name", "n_each"), [("preemption", 1), ("PreemptionBasic", 3)])
def test_each_high_pod_takes_the_place_of_others(name: str, n_each: int) -> None:
    play = finished(name)
    evicted = [e.uid for e in play.effects if isinstance(e, to_do.Evict)]
    assert len(evicted) == len(set(evicted)) == n_each * SMALL.pods


def test_events_are_four_fifths_updates_of_pods() -> None:
    found = workload("events", WorkloadSizes(nodes=5, pods=100))
    kinds = Counter(type(event) for event in all_events(found))
    assert kinds == {happened.PodUpdated: 80, happened.NodeUpdated: 20}


def test_no_update_is_one_that_is_known_already() -> None:
    found = workload("events", WorkloadSizes(nodes=2, pods=100))
    seen = set()
    for event in [*found.before, *all_events(found)]:
        value = getattr(event, "pod", None) or getattr(event, "node", None)
        assert value is not None
        seen.add((value.metadata.uid, value.metadata.resource_version))
    assert len(seen) == len(found.before) + 100


def test_pods_that_are_there_already_are_placed_beforehand() -> None:
    found = workload("basic", WorkloadSizes(nodes=4, pods=1, existing=10))
    placed = [event.pod for event in found.before if isinstance(event, happened.PodAdded)]
    assert Counter(pod.node_name for pod in placed) == {
        "node-0": 3,
        "node-1": 3,
        "node-2": 2,
        "node-3": 2,
    }


def test_what_happens_meanwhile_is_spread_over_the_calls() -> None:
    pods = [builders.pod(f"p{i}") for i in range(2 * BATCH)]
    others = [happened.Tick()] * 10
    found = arriving_pods([], pods, others, rate=100)
    assert [call.at for call in found.calls] == [SECOND, SECOND + BATCH * SECOND // 100]
    for call in found.calls:
        places = [i for i, event in enumerate(call.events) if isinstance(event, happened.Tick)]
        assert len(places) == 5
        assert max(b - a for a, b in pairwise(places)) == BATCH // 5 + 1


def test_a_call_brings_a_thousand_pods_at_most() -> None:
    found = arriving_pods([], [builders.pod(f"p{i}") for i in range(BATCH + 1)])
    assert [len(call.events) for call in found.calls] == [BATCH, 1]


def test_an_unknown_shape_is_guessed() -> None:
    assert all(check_case_name(name) == name for name in NAMES)
    with pytest.raises(InputError, match="did you mean 'SchedulingBasic'"):
        check_case_name("schedulingbasic")
