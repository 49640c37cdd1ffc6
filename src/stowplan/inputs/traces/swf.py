"""SWF, the Standard Workload Format of the Parallel Workloads Archive.

| field | becomes |
|---|---|
| 2 submit time | arrival |
| 4 run time | run time after the start |
| 8 requested processors, else 5 allocated ones | CPUs, in pods of at most one node's processors |
| 9 requested time | `activeDeadlineSeconds`, the declared limit |
| 10 requested memory per processor, else 7 used | memory, where the header has `MaxMemory` |
| 12 user | namespace and queue |
| header `MaxNodes`, `MaxProcs` | nodes of equal size |

Source: Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers"
(1999), and the archive's description of version 2.2.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from stowplan.inputs.document_reader import decoded
from stowplan.inputs.files import InputFile
from stowplan.inputs.input_error import InputError
from stowplan.inputs.traces.trace_jobs import (
    TraceJob,
    TraceMachine,
    TraceObjects,
    counted,
    split_evenly,
)
from stowplan.inputs.traces.trace_rows import TraceRow
from stowplan.objects.meta import Object

FIELDS = (
    "job", "submit", "wait", "run", "processors", "cpu_time", "used_memory", "requested_processors",
    "requested_time", "requested_memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding_job", "think_time",
)  # fmt: skip
KIB_PER_MIB = 1024
NODES_MAX = 100_000
_HEADER = re.compile(r";\s*(MaxNodes|MaxProcs|MaxMemory)\s*:\s*([0-9]+)")
LOST = (
    "the order of dependent jobs and think times (fields 17, 18)",
    "queue, partition, group and executable (fields 13 to 16)",
    "where and when a job really ran: wait time (field 3) is what a replay computes",
    "CPU time used (field 6)",
)


class SwfImporter:
    """Reads SWF files."""

    def __init__(self) -> None:
        self._objects = TraceObjects()
        self._left_out: Counter[str] = Counter()
        self._found: list[tuple[str, Object]] = []
        self._has_memory = True

    def read(self, file: InputFile) -> None:
        """Read a file; raises InputError."""
        header: dict[str, int] = {}
        rows = []
        for number, line in enumerate(decoded(file.data, file.source).splitlines(), start=1):
            if line.lstrip().startswith(";"):
                found = _HEADER.match(line.strip())
                header |= {found[1]: int(found[2])} if found else {}
            elif line.strip():
                rows.append(_row(file.source, number, line.split()))
        size = self._machines(header, file.source)
        memory = "MaxMemory" in header
        self._has_memory &= memory
        for row in rows:
            job = self._job(row, size, memory)
            if job is not None:
                self._found += [(row.place, one) for one in self._objects.job(job)]

    def objects(self) -> Iterator[tuple[str, Object]]:
        """(place, object) of all files."""
        yield from self._found
        yield from (("queues", queue) for queue in self._objects.queues())

    def notes(self) -> list[str]:
        """What was left out of these files."""
        found = counted(self._left_out)
        if not self._has_memory:
            found.append("memory is not requested: the header has no MaxMemory")
        return found

    def _machines(self, header: dict[str, int], source: str) -> int:
        """Add the nodes of the header; returns the processors of one, 0 if it does not say."""
        n_nodes, n_processors = header.get("MaxNodes", 0), header.get("MaxProcs", 0)
        if not n_nodes or not n_processors:
            return 0
        if n_nodes > NODES_MAX:
            raise InputError(source, "MaxNodes", str(n_nodes), f"at most {NODES_MAX}")
        size = -(-n_processors // n_nodes)
        memory = header["MaxMemory"] // KIB_PER_MIB if "MaxMemory" in header else None
        for index in range(n_nodes):
            machine = TraceMachine(f"node-{index}", size * 1000, memory)
            self._found.append(("header", self._objects.node(machine)))
        return size

    def _job(self, row: TraceRow, size: int, memory: bool) -> TraceJob | None:
        processors = _known(row, "requested_processors") or _known(row, "processors")
        run_s = _known(row, "run")
        if not processors:
            self._left_out["jobs without processors"] += 1
            return None
        if run_s is None:
            self._left_out["jobs without a run time"] += 1
            return None
        n_pods, per_pod = split_evenly(int(processors), size or int(processors))
        kib = _known(row, "requested_memory") or _known(row, "used_memory") or 0.0
        user, limit_s = _known(row, "user"), _known(row, "requested_time")
        return TraceJob(
            f"job-{row.text('job')}",
            row.number("submit"),
            run_s,
            n_pods,
            "" if user is None else f"user-{int(user)}",
            per_pod * 1000,
            int(kib) * per_pod // KIB_PER_MIB if memory else 0,
            limit_s=int(limit_s) if limit_s else None,
            is_gang=True,
        )


def _known(row: TraceRow, field: str) -> float | None:
    """A field, None for -1: not known."""
    number = row.number(field, least=-1.0)
    return None if number < 0 else number


def _row(source: str, number: int, cells: list[str]) -> TraceRow:
    if len(cells) != len(FIELDS):
        expected = f"{len(FIELDS)} fields"
        raise InputError(source, f"line {number}", f"{len(cells)} fields", expected)
    return TraceRow(source, f"line {number}", dict(zip(FIELDS, cells, strict=True)))
