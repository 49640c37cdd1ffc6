"""What a recording costs: runs with and without one in turn, in one process."""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from stowplan.benchmarks.benchmark_workload import BenchmarkCase, WorkloadSizes
from stowplan.benchmarks.measurement import RecordingCost, prepare_run
from stowplan.driver.storage.recording_writer import RecordingOptions, RecordingWriter
from stowplan.recording.recording_header import SIMULATION, SchedulerSetup
from stowplan.simulation.scheduler_configuration import read_deciders


class _Times(NamedTuple):
    """Seconds of a run. decision: CPU time of the deciding thread. process: of all threads.
    elapsed: in `handle`. n_bytes: of the recording."""

    decision: float
    process: float
    elapsed: float
    n_bytes: int


def measure_recording(
    shape: BenchmarkCase, sizes: WorkloadSizes, repeat: int, engine: str | None = None
) -> RecordingCost:
    """The cost of a recording in the measured part of a case. Writes to a temporary directory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.rec"
        # The first pair is a warm-up.
        pairs = [
            (_run(shape, sizes, engine, None), _run(shape, sizes, engine, path))
            for _ in range(repeat + 1)
        ][1:]

    def percent(field: str) -> float:
        ratios: list[float] = [getattr(b, field) / getattr(a, field) for a, b in pairs]
        return round(100 * (float(median(ratios)) - 1), 2)

    per_pod = median(b.n_bytes for _, b in pairs) / sizes.pods
    return RecordingCost(
        percent("decision"), percent("process"), percent("elapsed"), round(per_pod, 2)
    )


def _run(
    shape: BenchmarkCase, sizes: WorkloadSizes, engine: str | None, path: Path | None
) -> _Times:
    play, _ = prepare_run(shape, sizes, engine)
    writer = None
    if path is not None:
        writer = RecordingWriter(RecordingOptions(path, kept=0, waits=True))
        setup = SchedulerSetup("bench", None, SIMULATION)
        writer.attach(read_deciders(), play.scheduler, setup)
    try:
        decision, process = time.thread_time(), time.process_time()
        play.run()
        decision = time.thread_time() - decision
        if writer is not None:
            writer.close()
        process = time.process_time() - process
    finally:
        gc.unfreeze()
    return _Times(decision, process, play.seconds, 0 if writer is None else writer.n_bytes)
