"""Philly: deep learning jobs of Microsoft's clusters, 2017 (philly-traces).

| field | becomes |
|---|---|
| `cluster_job_log`: attempts[0].detail | a pod per server, with as many cards as GPUs there |
| submitted_time | arrival |
| attempts: sum of end_time less start_time | run time |
| vc | namespace and queue |
| jobid | name |
| `cluster_machine_list`: machineId, number of GPUs | nodes |

Source: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads"
(ATC 2019), and the README of the trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from stowplan.inputs.files import InputFile
from stowplan.inputs.input_error import InputError
from stowplan.inputs.traces.trace_jobs import TraceJob, TraceMachine, TraceObjects, counted
from stowplan.inputs.traces.trace_rows import TraceRow, csv_rows, json_rows
from stowplan.objects.meta import Object

MACHINE_COLUMNS = ("machineId", "number of GPUs")
LOST = (
    "CPU and memory: jobs do not request them, and nodes do not offer them",
    "the attempts of a job: one pod runs as long as all of them did",
    "the memory of GPUs, and the logs of utilisation",
    "user and status",
    "times are as written, without the change to winter time",
)


class PhillyImporter:
    """Reads the job log and the machine list."""

    def __init__(self) -> None:
        self._objects = TraceObjects()
        self._left_out: Counter[str] = Counter()
        self._found: list[tuple[str, Object]] = []

    def read(self, file: InputFile) -> None:
        """Read a file; raises InputError."""
        if file.data.lstrip()[:1] == b"[":
            for row in json_rows(file):
                for job in self._jobs(row):
                    self._found += [(row.place, one) for one in self._objects.job(job)]
            return
        for row in csv_rows(file, MACHINE_COLUMNS):
            machine = TraceMachine(row.text("machineId"), cards=row.count("number of GPUs"))
            self._found.append((row.place, self._objects.node(machine)))

    def objects(self) -> Iterator[tuple[str, Object]]:
        """(place, object) of all files."""
        yield from self._found
        yield from (("queues", queue) for queue in self._objects.queues())

    def notes(self) -> list[str]:
        """What was left out of these files."""
        return counted(self._left_out)

    def _jobs(self, row: TraceRow) -> Iterator[TraceJob]:
        """The job of an entry: servers with different numbers of GPUs make a job each."""
        submitted_s = row.clock_s("submitted_time")
        servers = next(filter(None, map(_cards_by_server, _attempts(row))), [])
        if submitted_s is None or not servers:
            self._left_out["jobs without a submission time or a recorded attempt"] += 1
            return
        run_s = _run_s(row)
        counts = Counter(servers)
        for cards, n_pods in sorted(counts.items()):
            suffix = f"-{cards}gpu" if len(counts) > 1 else ""
            yield TraceJob(
                row.text("jobid") + suffix,
                submitted_s,
                run_s,
                n_pods,
                f"vc-{row.text('vc')}",
                cards=cards,
                is_gang=True,
            )


def _attempts(row: TraceRow) -> list[TraceRow]:
    found = row.cells.get("attempts") or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InputError(
            row.source, f"{row.place}, attempts", repr(found)[:40], "a list of objects"
        )
    return [
        TraceRow(row.source, f"{row.place}, attempts[{index}]", one)
        for index, one in enumerate(found)
    ]


def _cards_by_server(attempt: TraceRow) -> list[int]:
    detail: Any = attempt.cells.get("detail") or []
    try:
        return [len(server["gpus"]) for server in detail if server["gpus"]]
    except (TypeError, KeyError):
        got = repr(detail)[:60]
        raise InputError(
            attempt.source, f"{attempt.place}, detail", got, "a list of {ip, gpus}"
        ) from None


def _run_s(row: TraceRow) -> float | None:
    """Seconds of all attempts; None for a job whose last attempt has not ended."""
    total, is_open = 0.0, False
    for attempt in _attempts(row):
        start_s, end_s = attempt.clock_s("start_time"), attempt.clock_s("end_time")
        is_open = end_s is None
        if start_s is not None and end_s is not None:
            total += max(end_s - start_s, 0.0)
    return None if is_open else total
