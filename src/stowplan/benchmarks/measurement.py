"""measure(): figures of a benchmark case, each run with a new scheduler."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stowplan._version import __version__
from stowplan.assembly import configuration_of
from stowplan.assembly.build import scheduler_for
from stowplan.benchmarks.baselines import BASELINES
from stowplan.benchmarks.benchmark_objects import BenchmarkClient
from stowplan.benchmarks.benchmark_workload import BenchmarkCase, WorkloadSizes
from stowplan.benchmarks.playback import Playback
from stowplan.benchmarks.stage_times import stage_times, watch_stages
from stowplan.cycle import CycleDecider
from stowplan.cycle.engine.kernel_loading import load_preemption_kernel, warm_preemption_kernel
from stowplan.framework.feature_gates import FeatureGates
from stowplan.scheduler import Scheduler

ENGINES: tuple[str, ...] = ("compiled", "walk")
"""Values of `engine` for `scheduler_for`, fastest first."""

REPEATING_S_MAX = 60.0
"""Time after which no further run is started, in seconds."""

SMALL = WorkloadSizes(nodes=40, pods=40)
"""Warm-up sizes: large enough that all one-time initialization happens."""

MIB = 2**20


class RecordingCost(msgspec.Struct, frozen=True):
    """Cost of a recording in percent of runs without one, medians of pairs of runs.

    decision_percent: CPU time of the thread that decides. process_percent: of all threads.
    elapsed_percent: of the time in `handle`. mb_per_million: size per million measured pods.
    """

    decision_percent: float
    process_percent: float
    elapsed_percent: float
    mb_per_million: float


class BenchmarkResult(msgspec.Struct, frozen=True):
    """Figures of one benchmark case.

    done: pods that ended within the measurement; all, unless the cluster is too small. pods_per_s:
    median of `runs` (events, if the unit says so). p50_ms, p99_ms: of the median run, from the call
    that delivered a pod to the end of the call that bound or rejected it. memory_mb: peak of the
    process. loading_s: time to take in the cluster, without decoding. walked: attempts of the
    median run that no kernel and no cached refusal has answered.
    floor, factor: kube-scheduler's rate, and our rate divided by it. decode_per_s: pods
    decoded from JSON. confirm_per_s: bindings confirmed by the watch. stages_us: per pod. seconds:
    times of `start`. recording: its cost. old_pods_per_s, ratio: rate of an earlier run, and our
    rate divided by it.
    """

    shape: str
    nodes: int
    pods: int
    unit: str = "pods"
    done: int = 0
    pods_per_s: float | None = None
    runs: tuple[float, ...] = ()
    p50_ms: float | None = None
    p99_ms: float | None = None
    memory_mb: float | None = None
    loading_s: float | None = None
    walked: int | None = None
    floor: float | None = None
    floor_source: str = ""
    factor: float | None = None
    decode_per_s: float | None = None
    confirm_per_s: float | None = None
    stages_us: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    seconds: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    recording: RecordingCost | msgspec.UnsetType = msgspec.UNSET
    old_pods_per_s: float | msgspec.UnsetType | None = msgspec.UNSET
    ratio: float | msgspec.UnsetType | None = msgspec.UNSET


def new_machine(
    engine: str | None = None, configuration_text: str = "", gates: FeatureGates | None = None
) -> Scheduler:
    """A scheduler with the default profile, or another configuration. engine: as for
    `scheduler_for`; None: its default. gates: None for the defaults."""
    configuration, registry = configuration_of(configuration_text or None, "default", (), gates)
    chosen: dict[str, Any] = {} if engine is None else {"engine": engine}
    return scheduler_for(configuration, registry, gates, **chosen)


def prepare_run(
    shape: BenchmarkCase, sizes: WorkloadSizes, engine: str | None = None
) -> tuple[Playback, BenchmarkClient]:
    """A playback of the case on a new scheduler, prepared."""
    client = BenchmarkClient()
    machine = new_machine(engine, shape.configuration, shape.gates)
    play = Playback(machine, shape.make(client, sizes), client)
    play.prepare()
    return play, client


class BenchmarkRun(msgspec.Struct, frozen=True):
    """Figures of one run. walked: see `BenchmarkResult`."""

    done: int
    rate: float
    p50_ms: float
    p99_ms: float
    decode_per_s: float
    confirm_per_s: float
    walked: int = 0
    loading_s: float = 0.0


def n_walked(machine: Scheduler) -> int:
    """Attempts so far that no kernel and no cached refusal has answered."""
    decider = machine.pod_lane.decider
    return decider.n_walked if isinstance(decider, CycleDecider) else 0


def run_once(shape: BenchmarkCase, sizes: WorkloadSizes, engine: str | None = None) -> BenchmarkRun:
    """Run a case on a new scheduler."""
    play, client = prepare_run(shape, sizes, engine)
    decode_per_s = client.decoded / client.seconds if client.decoded else 0.0
    before = n_walked(play.scheduler)
    try:
        play.run()
    finally:
        gc.unfreeze()
    walked = n_walked(play.scheduler) - before
    if play.workload.awaited:
        done, waits = len(play.waits), list(play.waits.values())
    else:
        done = sum(n_events for _, n_events in play.calls)
        waits = [took for took, n_events in play.calls for _ in range(n_events)]
    p50, p99 = np.percentile(waits, (50, 99)) * 1e3 if waits else (0.0, 0.0)
    rate = done / play.seconds if play.seconds else 0.0
    return BenchmarkRun(
        done, rate, float(p50), float(p99), decode_per_s, play.confirm(), walked, play.loading_s
    )


def measure(
    shape: BenchmarkCase,
    sizes: WorkloadSizes,
    repeat: int = 1,
    *,
    stages: bool = False,
    engine: str | None = None,
) -> BenchmarkResult:
    """Warm up, run at most `repeat` times, and return the figures of the median run."""
    # The warm-up also loads compiled kernels, whichever engine is measured.
    run_once(shape, warmup_sizes(sizes), next(iter(ENGINES), engine))
    if load_preemption_kernel() is not None:
        # `stowplan run` loads it after its first decisions. Few pods may plan nothing.
        warm_preemption_kernel()
    began = time.monotonic()
    runs = [run_once(shape, sizes, engine)]
    while len(runs) < repeat and time.monotonic() - began < REPEATING_S_MAX:
        runs.append(run_once(shape, sizes, engine))
    median = sorted(runs, key=lambda run: run.rate)[(len(runs) - 1) // 2]
    rate = median.rate
    memory_mb = peak_mb()
    floor = BASELINES.get(shape.name)
    return BenchmarkResult(
        shape=shape.name,
        nodes=sizes.nodes,
        pods=sizes.pods,
        unit=shape.unit,
        done=median.done,
        pods_per_s=round(rate, 1),
        runs=tuple(round(run.rate, 1) for run in runs),
        p50_ms=round(median.p50_ms, 3),
        p99_ms=round(median.p99_ms, 3),
        memory_mb=memory_mb,
        loading_s=round(median.loading_s, 3),
        walked=median.walked,
        floor=None if floor is None else floor.pods_per_s,
        floor_source="" if floor is None else floor.source,
        factor=None if floor is None else round(rate / floor.pods_per_s, 2),
        decode_per_s=round(median.decode_per_s),
        confirm_per_s=round(median.confirm_per_s) or None,
        stages_us=stages_of(shape, sizes, engine) if stages else msgspec.UNSET,
    )


def warmup_sizes(sizes: WorkloadSizes) -> WorkloadSizes:
    """Sizes of the warm-up."""
    return sizes._replace(
        nodes=min(sizes.nodes, SMALL.nodes),
        pods=min(sizes.pods, SMALL.pods),
        existing=min(sizes.existing, SMALL.pods),
    )


def stages_of(
    shape: BenchmarkCase, sizes: WorkloadSizes, engine: str | None = None
) -> dict[str, float]:
    """Microseconds per pod by stage, from a separate run, which the timers slow down a little."""
    play, _ = prepare_run(shape, sizes, engine)
    watch = watch_stages(play.scheduler)
    try:
        play.run()
    finally:
        gc.unfreeze()
    return stage_times(watch, sum(took for took, _ in play.calls), sizes.pods)


def peak_mb() -> float:
    """Peak resident set of this process, in MiB."""
    status = Path("/proc/self/status")
    # The value of getrusage may be inherited from the parent process.
    if status.exists():
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"), re.MULTILINE)
        if found is not None:
            return round(int(found[1]) * 1024 / MIB, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak * (1 if sys.platform == "darwin" else 1024) / MIB, 1)


def environment_facts() -> dict[str, Any]:
    """Properties of the environment that affect figures."""
    affinity = getattr(os, "sched_getaffinity", None)
    versions = {name: _version(name) for name in ("numpy", "numba", "msgspec")}
    return {
        "stowplan": __version__,
        "python": platform.python_version(),
        **versions,
        "cpus": os.cpu_count() if affinity is None else len(affinity(0)),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
