"""A recorded history with another configuration: which pods would have been placed otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.inputs.counts import count_of
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.html_summary import html_summary, html_table, html_text
from stowplan.recording.frames import RecordingError
from stowplan.recording.recorded_workload import RecordedWorkload, workload_of
from stowplan.recording.recording_files import Recording
from stowplan.recording.recording_header import (
    RecordingHeader,
    recorded_deciders,
    scheduler_of,
)
from stowplan.simulation.recorded_replay import RecordedReplay
from stowplan.simulation.replay import PodHistory, ReplayOptions

SHIFT_MIN_S = 1.0
"""A smaller difference of waiting times is not shown: it is that of the API's latency."""
MOVED, UNPLACED, PLACED, LATER, EARLIER = "moved", "unplaced", "placed", "later", "earlier"


class PlacementDifference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod that fares otherwise. change: moved, unplaced, placed, later or earlier. node, other:
    nodes with the recorded and with the other configuration, "" for none. seconds: by which it is
    bound later (negative: earlier). reason: why it has no node with the other configuration."""

    pod: str
    change: str
    node: str
    other: str
    seconds: float = 0.0
    reason: str = ""


class ConfigurationComparison(msgspec.Struct, frozen=True, rename="camel"):
    """Result of deciding a history with two configurations in the same model.

    pods: that arrived. counts: of differences, by change. evictions: with either. unlike_recorded:
    pods that the model places elsewhere than the recording, with the recorded configuration: the
    noise below which differences mean nothing.
    """

    pods: int
    counts: dict[str, int]
    evictions: tuple[int, int]
    unlike_recorded: int
    differences: list[PlacementDifference]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        found = ", ".join(f"{n} {change}" for change, n in self.counts.items() if n)
        pods = count_of(self.pods, "pod")
        return f"ConfigurationComparison({pods}, {found or 'no difference'})"

    def _repr_html_(self) -> str:
        """For notebooks: the pods that fare otherwise."""
        rows = ((d.pod, d.change, d.node, d.other, d.seconds) for d in self.differences)
        columns = ("Pod", "Change", "Node", "Node with the other", "Later by (s)")
        return html_summary(repr(self), html_table(columns, rows), *map(html_text, self.notes))

    def to_frame(self, library: str = "") -> Any:
        """The differences as a DataFrame, one row each."""
        names = [field.name for field in msgspec.structs.fields(PlacementDifference)]
        return to_dataframe({n: [getattr(d, n) for d in self.differences] for n in names}, library)


def compare_configuration(
    recording: Recording, other: Deciders, plugins: Iterable[str] = ()
) -> ConfigurationComparison:
    """Decide the history of a recording with its own and another configuration.

    Raises RecordingError (also for a placement run, in which no time passes), ConfigError and
    ContractError.
    """
    header = recording.header
    if header.setup.command == "simulate" and header.options.queue.by_arrival:
        raise RecordingError(
            f"{recording.source}: a recording of `stowplan simulate` without --replay, in which no "
            "time passes: run `stowplan simulate --config` on its cluster instead"
        )
    own = recorded_deciders(header, recording.source, plugins)
    workload = workload_of(recording)
    first = _decided(workload, own, header)
    second = _decided(workload, other, header)
    differences = [
        found
        for uid, history in first.histories.items()
        if (found := _difference(history, second.histories[uid])) is not None
    ]
    counts = dict.fromkeys((MOVED, UNPLACED, PLACED, LATER, EARLIER), 0)
    for one in differences:
        counts[one.change] += 1
    recorded = workload.pods
    unlike = sum(
        history.node != recorded[uid].node
        for uid, history in first.histories.items()
        if not history.bound_at_start
    )
    n_pods = sum(not history.bound_at_start for history in first.histories.values())
    notes = []
    if unlike:
        notes.append(
            f"with its own configuration {count_of(unlike, 'pod')} of {n_pods:,} would be placed "
            "otherwise than recorded: the model has its own latencies"
        )
    evictions = first.evicted, second.evicted
    return ConfigurationComparison(n_pods, counts, evictions, unlike, differences, tuple(notes))


def _decided(
    workload: RecordedWorkload, deciders: Deciders, header: RecordingHeader
) -> RecordedReplay:
    """The workload, decided by a new scheduler that leads from the start."""
    options = header.options
    # What the recorded configuration set must not hold for the other one.
    queue = replace(options.queue, initial_backoff_s=None, max_backoff_s=None)
    options = replace(options, queue=queue, leads=True, term=1, synced=False, counts_repeats=False)
    scheduler = scheduler_of(replace(header, options=options), deciders)
    run = RecordedReplay(workload, scheduler, ReplayOptions())
    run.run_to_end()
    return run


def _difference(own: PodHistory, other: PodHistory) -> PlacementDifference | None:
    if own.bound_at_start:
        return None
    key = own.pod.key
    if own.node and not other.node:
        return PlacementDifference(key, UNPLACED, own.node, "", reason=other.note)
    if other.node and not own.node:
        return PlacementDifference(key, PLACED, "", other.node)
    if not own.node:
        return None
    shift_s = round(((other.waited or 0) - (own.waited or 0)) / SECOND, 3)
    if own.node != other.node:
        return PlacementDifference(key, MOVED, own.node, other.node, shift_s)
    if abs(shift_s) < SHIFT_MIN_S:
        return None
    return PlacementDifference(
        key, LATER if shift_s > 0 else EARLIER, own.node, other.node, shift_s
    )
