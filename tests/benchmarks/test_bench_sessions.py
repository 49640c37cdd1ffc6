"""Session benchmarks run at any size."""

from __future__ import annotations

import pytest

from stowplan.benchmarks.sessions.kai_benchmarks import (
    kai_consolidation,
    kai_crowded,
    kai_division,
    kai_scale,
    scale_shapes,
)
from stowplan.benchmarks.sessions.kueue_benchmarks import BASELINE, kueue_shape
from stowplan.benchmarks.sessions.session_benchmarks import (
    SessionBenchmark,
    crowded_seconds,
    session_seconds,
    small_gangs,
)
from stowplan.benchmarks.sessions.volcano_benchmarks import volcano_crowded, volcano_shape
from stowplan.messages import events as happened


def test_every_figure_is_there() -> None:
    found = session_seconds(16)
    assert set(found) == {"first", "100 changed", "4 of 3", "1 of 20"}
    assert all(seconds >= 0 for seconds in found.values())


def test_the_workload_has_the_stated_sizes() -> None:
    assert set(crowded_seconds(16)) == {"first", "100 changed"}
    benchmark = SessionBenchmark(4)
    benchmark.show([benchmark.queue("q")])
    benchmark.show(list(benchmark.gang("g", "q", 3, ("1", "1Gi"))))
    benchmark.session(happened.Synced())
    assert benchmark.settle() == 3
    assert all(pod.node_name for pod in benchmark.pods.values())
    benchmark.scheduler.validate()


def test_a_gang_that_does_not_fit_is_no_figure() -> None:
    with pytest.raises(RuntimeError, match="0 of 3000 pods were bound"):
        small_gangs(1, 1, 3_000)


@pytest.mark.parametrize(("n_jobs", "size"), [(6, 1), (2, 3), (1, 6)])
def test_every_pod_of_volcano_s_shapes_is_bound(n_jobs: int, size: int) -> None:
    # It raises where a pod is not bound.
    assert volcano_shape(n_jobs, size, n_nodes=3) > 0


def test_every_workload_of_kueue_s_shapes_is_admitted_and_ends() -> None:
    # It raises where one is not.
    one_cohort = BASELINE._replace(n_queues=2)
    classes = tuple(one._replace(n_workloads=one.n_workloads // 25) for one in one_cohort.classes)
    assert kueue_shape(one_cohort._replace(classes=classes)) > 0
    too_large = classes[-1]._replace(cpu=10_000)
    with pytest.raises(RuntimeError, match="36 of 38 workloads"):
        kueue_shape(one_cohort._replace(classes=(*classes[:-1], too_large._replace(n_workloads=1))))


def test_sessions_of_volcano_on_a_crowded_cluster_have_two_figures() -> None:
    assert set(volcano_crowded(n_nodes=20)) == {"first", "100 changed"}


def test_sessions_of_kai_on_a_crowded_cluster_have_two_figures() -> None:
    assert set(kai_crowded(n_nodes=20)) == {"first", "100 changed"}


def test_pods_of_kai_s_shapes_are_bound_and_moved() -> None:
    # They raise where a pod is not.
    assert kai_consolidation(4) > 0
    assert kai_division(100) > 0
    for shape in scale_shapes(4).values():
        assert kai_scale(shape, 4)[0] > 0
