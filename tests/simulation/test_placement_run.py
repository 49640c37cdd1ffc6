"""Placement runs by batches and kernels equal placement pod by pod."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.assembly import configuration_of
from stowplan.assembly.build import scheduler_for
from stowplan.columns.engine import kernels
from stowplan.framework import OK, Status
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.generated_workload import generate_workload
from stowplan.insight.pod_placement import Placement
from stowplan.objects.pod import Pod
from stowplan.queue import QueueOptions
from stowplan.scheduler import SchedulerOptions
from stowplan.simulation import kernel_cache
from stowplan.simulation import placement_run as module
from stowplan.simulation.placement_run import PlacementRun
from stowplan.simulation.simulate import without_post_filter
from stowplan.testing import builders
from tests.soak import examples

OPTIONS = SchedulerOptions(queue=QueueOptions(by_arrival=True))


def filling(
    cluster: Cluster, seed: int, engine: str, plugins: tuple[type, ...] = ()
) -> PlacementRun:
    configuration, registry = configuration_of(None, "test", plugins)
    rng = np.random.default_rng(seed)
    scheduler = scheduler_for(
        without_post_filter(configuration), registry, rng=rng, options=OPTIONS, engine=engine
    )
    return PlacementRun(cluster, scheduler)


def walked(cluster: Cluster, seed: int) -> list[Placement]:
    """Pod by pod, without kernels."""
    fill = filling(cluster, seed, "walk")
    return [fill.place(pod) for pod in cluster.pending()]


def batched(cluster: Cluster, seed: int, engine: str = "compiled") -> list[Placement]:
    return filling(cluster, seed, engine).place_all(cluster.pending(), None)


def with_priorities(cluster: Cluster, seed: int) -> Cluster:
    """Pods with random priorities, which placement runs ignore."""
    rng = np.random.default_rng(seed)
    pods = [
        replace(pod, spec=replace(pod.spec, priority=int(rng.integers(3)))) for pod in cluster.pods
    ]
    return replace(cluster, pods=pods)


def workload(n_nodes: int, n_pods: int, seed: int) -> Cluster:
    return with_priorities(generate_workload(n_nodes, n_pods, seed), seed)


@settings(max_examples=examples(6), deadline=None)
@given(st.integers(3, 30), st.integers(1, 260), st.integers(0, 10**6))
def test_batches_equal_placement_pod_by_pod(n_nodes: int, n_pods: int, seed: int) -> None:
    cluster = workload(n_nodes, n_pods, seed)
    expected = walked(cluster, seed)
    assert batched(cluster, seed) == expected
    assert batched(cluster, seed, "walk") == expected


def sorted_by_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "stowplan.queue.scheduling_queue.by_arrival", lambda entry: -entry.pod.priority
    )


def filter_at_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the reason of a failure is computed after the batch, on a changed cluster."""
    in_time = PlacementRun.place_batch

    def place_batch(self: PlacementRun, pods: list[Pod]) -> list[Placement]:
        return [
            place if place.node else module.refusal_of(pod, place.message, self.scheduler)
            for pod, place in zip(pods, in_time(self, pods), strict=True)
        ]

    monkeypatch.setattr(PlacementRun, "place_batch", place_batch)


@pytest.mark.parametrize("wrong", [sorted_by_priority, filter_at_end])
def test_a_wrong_placement_run_is_caught(
    wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second pod takes memory that the first needs, which lacks only cpu at its attempt.
    pods = [builders.pod("a", cpu="5", memory="4Gi"), builders.pod("b", cpu="1", memory="6Gi")]
    clusters = [workload(8, 260, 3), Cluster([builders.node("n", cpu="4", memory="8Gi")], pods)]
    expected = [walked(cluster, 3) for cluster in clusters]
    assert [batched(cluster, 3) for cluster in clusters] == expected
    wrong(monkeypatch)
    assert [batched(cluster, 3) for cluster in clusters] != expected


def test_pods_of_a_template_are_placed_by_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel is called once per batch, not per pod."""
    calls: list[int] = []
    run = kernels.run

    def counted(*arguments: object) -> int:
        calls.append(1)
        placed: int = run(*arguments)
        return placed

    pods = [builders.pod(f"p{index}", cpu="10m") for index in range(1200)]
    template = pods[0].spec
    cluster = Cluster(
        [builders.node(f"n{i}", cpu="64") for i in range(12)],
        [replace(pod, spec=template) for pod in pods],
    )
    monkeypatch.setattr(kernels, "run", counted)
    assert all(place.node for place in batched(cluster, 0))
    assert len(calls) <= 2 * len(pods) // module.BATCH_MAX


class Tally:
    """An out-of-tree plugin, which requires pods one by one."""

    name = "Tally"
    seen: list[str] = []

    def pre_enqueue(self, pod: Pod) -> Status:
        self.seen.append(f"enter {pod.name}")
        return OK

    def reserve(self, pod: Pod, node_name: str) -> Status:
        self.seen.append(f"reserve {pod.name}")
        return OK


def test_plugins_around_the_attempt_see_one_pod_after_the_other() -> None:
    Tally.seen.clear()
    cluster = Cluster([builders.node("n", cpu="9")], [builders.pod(name, cpu="1") for name in "ab"])
    filling(cluster, 0, "walk", (Tally,)).place_all(cluster.pending(), None)
    steps = [step for step in Tally.seen if step in ("reserve a", "enter b", "reserve b")]
    assert steps == ["reserve a", "enter b", "reserve b"]


def test_kernels_on_disk_are_known_by_version_and_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_cache.kernel_loading, "is_loaded", lambda: False)
    assert not kernel_cache.is_cached()
    source = Path(kernels.__file__)
    folder = kernel_cache._folder(source)
    folder.mkdir(parents=True)
    index = folder / kernel_cache._name(source).replace("*", "1")
    stamp = kernel_cache.hashlib.sha256(source.read_bytes()).digest()
    version = kernel_cache._version("numba")
    other = source.with_name("preemption_kernels.py")
    index_of_other = folder / kernel_cache._name(other).replace("*", "1")
    index.write_bytes(version + stamp)
    assert not kernel_cache.is_cached(), "the kernel of preemptors would be compiled by a pod"
    stamp_of_other = kernel_cache.hashlib.sha256(other.read_bytes()).digest()
    index_of_other.write_bytes(version + stamp_of_other)
    for data, is_there in (
        (version + stamp, True),
        (version + bytes(32), False),
        (b"0.1.2" + stamp, False),
    ):
        index.write_bytes(data)
        assert kernel_cache.is_cached() is is_there


class Process:
    """A background process that compiles."""

    code: int | None = None

    def poll(self) -> int | None:
        return self.code


@pytest.mark.parametrize("is_exported", [True, False])
def test_kernels_are_loaded_when_the_process_beside_has_compiled_them(
    is_exported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def load_exported() -> bool:
        loaded.append("exported")
        return is_exported

    monkeypatch.setattr(kernel_cache, "load_exported", load_exported)
    monkeypatch.setattr(kernel_cache.kernel_loading, "load_kernels", lambda: loaded.append("numba"))
    monkeypatch.setattr(kernel_cache, "is_cached", lambda: False)
    monkeypatch.setattr(kernel_cache.subprocess, "Popen", lambda *a, **k: Process())
    compiling = kernel_cache.KernelCompilation()
    compiling.begin()
    compiling.poll()
    assert compiling.is_under_way
    assert not loaded
    monkeypatch.setattr(Process, "code", 0)
    compiling.poll()
    compiling.poll()
    assert loaded == ["exported"] + ["numba"] * (not is_exported)
    assert not compiling.is_under_way


def test_what_is_compiled_beside_is_all_that_a_run_calls() -> None:
    kernel_cache.run_kernels_once()
    before = len(kernels.run.signatures)
    batched(workload(20, 200, 0), 0)
    assert len(kernels.run.signatures) == before
