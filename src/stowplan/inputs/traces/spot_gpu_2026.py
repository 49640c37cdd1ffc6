"""Alibaba spot GPU 2026: high-priority and spot jobs (cluster-trace-v2026-spot-gpu).

| column | becomes |
|---|---|
| `job_info_df.csv`: worker_num | that many pods |
| cpu_request, gpu_request | CPUs and whole cards of every pod |
| gpu_model | required model, by node affinity |
| submit_time, duration | arrival, run time |
| organization | namespace and queue |
| job_type | priority: `HP` 1000, `Spot` 0 and never preempting |
| `node_info_df.csv`: node_name, cpu_num, gpu_capacity_num, gpu_model | nodes |

Unproved: that requests are per worker; the description says "by the job", and its own example (1
GPU for 94 workers) is only possible per worker.

Source: Duan et al., "GFS: A Preemptive Scheduling Framework for GPU Clusters with Predictive Spot
Management" (ASPLOS 2026), and the README of the trace.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.inputs.files import InputFile
from stowplan.inputs.traces.trace_jobs import TraceJob, TraceMachine, TraceObjects, label_value
from stowplan.inputs.traces.trace_rows import TraceRow, csv_rows
from stowplan.objects.meta import Object

NODE_COLUMNS = ("node_name", "gpu_model", "gpu_capacity_num", "cpu_num")
JOB_COLUMNS = (
    "job_name", "organization", "gpu_model", "cpu_request", "gpu_request", "worker_num",
    "submit_time", "duration", "job_type",
)  # fmt: skip
PRIORITIES = {"HP": 1000, "Spot": 0}
WORKERS_MAX = 100_000
LOST = (
    "memory: neither jobs nor nodes have it",
    "whether the workers of a job need each other: they are single pods, no gangs",
    "evictions that really happened: durations are what a job ran in all",
    "the grace period and the price of spot jobs",
)


class SpotGpuImporter:
    """Reads the two files of the spot GPU trace."""

    def __init__(self) -> None:
        self._objects = TraceObjects()
        self._found: list[tuple[str, Object]] = []

    def read(self, file: InputFile) -> None:
        """Read a file; raises InputError."""
        first = file.data[:2000].decode("utf-8-sig", "replace").partition("\n")[0]
        if "node_name" in first:
            for row in csv_rows(file, NODE_COLUMNS):
                self._found.append((row.place, self._objects.node(_machine(row))))
            return
        for row in csv_rows(file, JOB_COLUMNS):
            self._found += [(row.place, one) for one in self._objects.job(_job(row))]

    def objects(self) -> Iterator[tuple[str, Object]]:
        """(place, object) of all files."""
        yield from self._found

    def notes(self) -> list[str]:
        """What was left out of these files: nothing."""
        return []


def _machine(row: TraceRow) -> TraceMachine:
    return TraceMachine(
        f"node-{row.text('node_name')}",
        round(row.number("cpu_num") * 1000),
        None,
        row.count("gpu_capacity_num"),
        row.text("gpu_model", ""),
    )


def _job(row: TraceRow) -> TraceJob:
    kind = row.text("job_type")
    if kind not in PRIORITIES:
        raise row.refused("job_type", f"one of {', '.join(PRIORITIES)}")
    n_pods = row.count("worker_num", least=1)
    if n_pods > WORKERS_MAX:
        raise row.refused("worker_num", f"at most {WORKERS_MAX}")
    cards = row.count("gpu_request", 0)
    model = label_value(row.text("gpu_model", ""))
    return TraceJob(
        f"job-{row.text('job_name')}",
        row.number("submit_time"),
        row.number("duration"),
        n_pods,
        f"org-{row.text('organization')}",
        round(row.number("cpu_request", 0.0) * 1000),
        cards=cards,
        models=(model,) if model and cards else (),
        priority=PRIORITIES[kind],
        preempts=kind == "HP",
    )
