"""Google 2019: samples of the Borg cluster traces, version 3, as CSV or JSON Lines.

| field | becomes |
|---|---|
| instance_events: SUBMIT, else its first event | arrival of a pod |
| time between SCHEDULE and the next EVICT, FAIL, FINISH, KILL or LOST, added up | run time |
| resource_request.cpus, .memory | requests: 1.0, the largest machine, is 100 CPUs and 1,024 GiB |
| priority | priority |
| collection_events: user | namespace and queue |
| machine_events: machine_id, capacity | nodes |

`type` is a number or a name. A table in BigQuery's CSV has `resource_request.cpus`,
`resource_request_cpus`, or `resource_request` with a mapping as text.

Source: Tirmazi et al., "Borg: the Next Generation" (EuroSys 2020), and
`clusterdata_trace_format_v3.proto`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from stowplan.inputs.files import InputFile
from stowplan.inputs.traces.trace_jobs import TraceJob, TraceMachine, TraceObjects, counted
from stowplan.inputs.traces.trace_rows import TraceRow, csv_rows, json_rows
from stowplan.objects.meta import Object

EVENTS = (
    "SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST",
    "UPDATE_PENDING", "UPDATE_RUNNING",
)  # fmt: skip
"""Types of collection and instance events, by number."""
MACHINE_EVENTS = ("EVENT_TYPE_UNKNOWN", "ADD", "REMOVE", "UPDATE")
STOPS = frozenset({"EVICT", "FAIL", "FINISH", "KILL", "LOST"})
ENDS = STOPS - {"EVICT"}
ALLOC_SETS = ("1", "ALLOC_SET")
CPUS = 100
"""CPUs of a machine with capacity 1.0."""
MEMORY_MIB = 2**20
"""Memory of a machine with capacity 1.0."""
AFTER_THE_END_US = 2**63 - 1
MICROSECOND = 1e-6
LOST = (
    "alloc sets: their instances are left out, and jobs inside them take from machines directly",
    "evictions that really happened: an instance runs once, as long as all its runs together",
    "machines that left or changed: the last capacity counts, from the start",
    "constraints, scheduling class, start-after and parent collections, vertical scaling, usage",
    "real units: requests and capacities are published in parts of the largest machine",
)
_AMOUNT = r"['\"]?{}['\"]?\s*:\s*([0-9.eE+-]+)"


class _Instance(msgspec.Struct):
    """An instance of a collection while its events are read. since: of the run in progress."""

    submit_s: float
    row: TraceRow
    since: float | None = None
    run_s: float = 0.0
    has_run: bool = False
    is_over: bool = False


class _Event(NamedTuple):
    at_s: float
    number: int
    row: TraceRow


class GoogleImporter:
    """Reads tables of the trace."""

    def __init__(self) -> None:
        self._objects = TraceObjects()
        self._left_out: Counter[str] = Counter()
        self._machines: dict[str, TraceRow] = {}
        self._users: dict[str, str] = {}
        self._events: list[_Event] = []

    def read(self, file: InputFile) -> None:
        """Read a table; raises InputError."""
        is_json = file.data.lstrip()[:1] in (b"{", b"[")
        for row in json_rows(file) if is_json else csv_rows(file, ("time",)):
            if "instance_index" in row.cells:
                at_us = row.number("time", most=float(AFTER_THE_END_US))
                self._events.append(_Event(at_us * MICROSECOND, len(self._events), row))
            elif "collection_id" in row.cells:
                self._users[row.text("collection_id")] = row.text("user", "")
            elif "machine_id" in row.cells:
                self._machine(row)
            else:
                raise row.refused(
                    "collection_id", "a row of machine, collection or instance events"
                )

    def objects(self) -> Iterator[tuple[str, Object]]:
        """(place, object) of all files."""
        for row in self._machines.values():
            machine = TraceMachine(f"m-{row.text('machine_id')}", *_capacity(row))
            yield row.place, self._objects.node(machine)
        for key, instance in self._instances().items():
            if not instance.has_run and instance.is_over:
                self._left_out["instances that ended without running"] += 1
                continue
            yield from (
                (instance.row.place, one) for one in self._objects.job(self._job(key, instance))
            )

    def notes(self) -> list[str]:
        """What was left out of these files."""
        return counted(self._left_out)

    def _machine(self, row: TraceRow) -> None:
        kind = _kind(row, MACHINE_EVENTS)
        if kind in ("ADD", "UPDATE") and any(_capacity(row)):
            self._machines[row.text("machine_id")] = row

    def _instances(self) -> dict[tuple[str, str], _Instance]:
        found: dict[tuple[str, str], _Instance] = {}
        for event in sorted(self._events, key=lambda one: (one.at_s, one.number)):
            row = event.row
            if row.text("collection_type", "0") in ALLOC_SETS:
                self._left_out["events of alloc instances"] += 1
                continue
            key = row.text("collection_id"), row.text("instance_index")
            instance = found.get(key)
            if instance is None:
                instance = found[key] = _Instance(event.at_s, row)
            if not _has_request(instance.row) and _has_request(row):
                instance.row = row
            _apply(instance, _kind(row, EVENTS), event.at_s)
        return found

    def _job(self, key: tuple[str, str], instance: _Instance) -> TraceJob:
        row, user = instance.row, self._users.get(key[0], "")
        cpus, memory = _request(row)
        is_open = instance.since is not None or not instance.is_over
        return TraceJob(
            f"{key[0]}-{key[1]}",
            instance.submit_s,
            None if is_open else instance.run_s,
            1,
            f"user-{user}" if user else "",
            round(cpus * CPUS * 1000),
            round(memory * MEMORY_MIB),
            priority=row.count("priority", 0),
        )


def _apply(instance: _Instance, kind: str, at_s: float) -> None:
    if kind == "SCHEDULE":
        instance.since, instance.has_run = at_s, True
    elif kind in STOPS:
        if instance.since is not None:
            instance.run_s += at_s - instance.since
        instance.since = None
        instance.is_over = kind in ENDS


def _kind(row: TraceRow, names: tuple[str, ...]) -> str:
    """The type of an event, by name or number."""
    column = next((name for name in ("type", "instance_events_type") if row.has(name)), "type")
    text = row.text(column)
    if text.upper() in names:
        return text.upper()
    if not (text.isascii() and text.isdigit() and len(text) < 3 and int(text) < len(names)):
        raise row.refused(column, f"0 to {len(names) - 1} or one of {', '.join(names)}")
    return names[int(text)]


def _has_request(row: TraceRow) -> bool:
    return _request(row) != (0.0, 0.0)


def _request(row: TraceRow) -> tuple[float, float]:
    return _amount(row, "resource_request", "cpus"), _amount(row, "resource_request", "memory")


def _capacity(row: TraceRow) -> tuple[int, int]:
    """Milli-CPUs and MiB of a machine event."""
    cpus, memory = _amount(row, "capacity", "cpus"), _amount(row, "capacity", "memory")
    return round(cpus * CPUS * 1000), round(memory * MEMORY_MIB)


def _amount(row: TraceRow, column: str, name: str) -> float:
    """A part of a record: nested, in a column of its own, or in the text of a mapping."""
    nested = row.cells.get(column)
    if isinstance(nested, dict):
        return TraceRow(row.source, f"{row.place}, {column}", nested).number(name, 0.0)
    for own in (f"{column}.{name}", f"{column}_{name}"):
        if row.has(own):
            return row.number(own)
    found = re.search(_AMOUNT.format(name), str(nested or ""))
    return float(found[1]) if found else 0.0
