"""Alibaba PAI 2020: tasks of a machine learning platform (cluster-trace-gpu-v2020).

| column | becomes |
|---|---|
| `pai_task_table`: inst_num | that many pods |
| plan_cpu, in percent of a CPU | CPU request |
| plan_mem, GiB | memory request |
| plan_gpu, in percent of a card | part of one card below 100, else whole cards, rounded up |
| start_time; of the job in `pai_job_table` where given | arrival |
| end_time less start_time | run time |
| `pai_job_table`: user | namespace and queue |
| `pai_machine_spec`: machine, cap_cpu, cap_mem, cap_gpu, gpu_type | nodes |

The published files have no header line; their names or a header tell the tables apart.

Source: Weng et al., "MLaaS in the Wild" (NSDI 2022), and the README of the trace.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from stowplan.inputs.files import InputFile
from stowplan.inputs.input_error import InputError
from stowplan.inputs.traces.trace_jobs import TraceJob, TraceMachine, TraceObjects, counted
from stowplan.inputs.traces.trace_rows import TraceRow, csv_rows
from stowplan.objects.meta import Object

TASKS = "pai_task_table"
JOBS = "pai_job_table"
MACHINES = "pai_machine_spec"
TABLES: dict[str, tuple[str, ...]] = {
    TASKS: (
        "job_name", "task_name", "inst_num", "status", "start_time", "end_time",
        "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
    ),
    JOBS: ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    MACHINES: ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"),
}  # fmt: skip
"""Table -> its columns."""
TIME_MAX = 10.0**11
INSTANCES_MAX = 100_000
LOST = (
    "the other tables: instances (where each ran), sensors and metrics (what was used), group tags",
    "gpu_type of a task: it is what the task got, not what it asked for",
    "status: failed tasks run as long as they ran",
    "that the tasks of a job depend on each other (ps, worker, evaluator): they arrive together",
)


def table_of(columns: list[str]) -> str:
    """The table that a header line is of, "" for none."""
    return next((name for name, known in TABLES.items() if set(known) <= set(columns)), "")


class PaiImporter:
    """Reads tables of the PAI trace."""

    def __init__(self) -> None:
        self._objects = TraceObjects()
        self._left_out: Counter[str] = Counter()
        self._nodes: list[tuple[str, Object]] = []
        self._tasks: list[TraceRow] = []
        self._jobs: dict[str, TraceRow] = {}

    def read(self, file: InputFile) -> None:
        """Read a table; raises InputError."""
        first = file.data[:2000].decode("utf-8-sig", "replace").partition("\n")[0]
        columns = [cell.strip() for cell in first.split(",")]
        by_name = (name for name in TABLES if name in file.source)
        table = table_of(columns) or next(by_name, "") or _table_by_width(len(columns))
        if not table:
            wanted = f"one of the tables {', '.join(TABLES)}"
            raise InputError(file.source, "line 1", repr(first[:80]), wanted)
        rows = csv_rows(file, TABLES[table], TABLES[table])
        if table == TASKS:
            self._tasks += rows
        elif table == JOBS:
            self._jobs |= {row.text("job_name"): row for row in rows}
        else:
            self._nodes += ((row.place, self._objects.node(_machine(row))) for row in rows)

    def objects(self) -> Iterator[tuple[str, Object]]:
        """(place, object) of all files."""
        yield from self._nodes
        for row in self._tasks:
            job = self._job(row)
            if job is not None:
                yield from ((row.place, one) for one in self._objects.job(job))

    def notes(self) -> list[str]:
        """What was left out of these files."""
        return counted(self._left_out)

    def _job(self, row: TraceRow) -> TraceJob | None:
        if not row.has("start_time"):
            self._left_out["tasks that never started"] += 1
            return None
        start_s = row.number("start_time", most=TIME_MAX)
        run_s = None
        if row.has("end_time"):
            run_s = max(row.number("end_time", most=TIME_MAX) - start_s, 0.0)
        of_job = self._jobs.get(row.text("job_name"))
        submit_s, tenant = start_s, ""
        if of_job is not None:
            submit_s = min(of_job.number("start_time", start_s, most=TIME_MAX), start_s)
            tenant = of_job.text("user", "")
        n_pods = row.count("inst_num", 1, least=1)
        if n_pods > INSTANCES_MAX:
            raise row.refused("inst_num", f"at most {INSTANCES_MAX}")
        percent = row.number("plan_gpu", 0.0, most=10**6)
        return TraceJob(
            f"{row.text('job_name')}-{row.text('task_name')}",
            submit_s,
            run_s,
            n_pods,
            f"user-{tenant}" if tenant else "",
            round(row.number("plan_cpu", 0.0, most=10**9) * 10),
            round(row.number("plan_mem", 0.0, most=10**9) * 1024),
            math.ceil(percent / 100),
            round(percent * 10) if percent < 100 else 1000,
        )


def _table_by_width(n_columns: int) -> str:
    """The table of a file without header and usual name: each has another number of columns."""
    return next((name for name, known in TABLES.items() if len(known) == n_columns), "")


def _machine(row: TraceRow) -> TraceMachine:
    return TraceMachine(
        row.text("machine"),
        round(row.number("cap_cpu") * 1000),
        round(row.number("cap_mem") * 1024),
        row.count("cap_gpu", 0),
        row.text("gpu_type", ""),
    )
