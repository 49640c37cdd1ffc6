"""A recorded history, decided again: the scheduler at a moment, and whether it decides the same."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.encoding.duration import SECOND
from stowplan.queue.pod_record import PodState
from stowplan.recording.call_codec import RecordedCall
from stowplan.recording.cluster_snapshot import take_snapshot
from stowplan.recording.message_codec import RecordedEffect
from stowplan.recording.recording_files import Recording, open_recording
from stowplan.recording.recording_header import recorded_deciders, scheduler_of
from stowplan.scheduler import Scheduler


class RestoredScheduler(msgspec.Struct):
    """A scheduler as it was. now: time of its last call. n_calls: calls that were decided again.
    is_exact: from the start of the recorded scheduler, not from a snapshot."""

    scheduler: Scheduler
    deciders: Deciders
    now: int
    n_calls: int
    is_exact: bool


class Divergence(msgspec.Struct, frozen=True):
    """The first call whose effects are not the recorded ones. call: number, from 1."""

    call: int
    now: int
    recorded: tuple[str, ...]
    decided: tuple[str, ...]


class Verification(msgspec.Struct, frozen=True):
    """Result of deciding a recording again.

    n_bytes: of effects that were compared. divergence: None if all are equal. is_exact: effects
    were compared byte for byte; otherwise the recording begins with a snapshot, and what is
    compared is to which node pods were bound. n_bound, n_moved: bindings, and those to other nodes.
    """

    n_calls: int
    n_effects: int
    n_bytes: int
    divergence: Divergence | None
    is_exact: bool
    n_bound: int = 0
    n_moved: int = 0

    @property
    def is_equal(self) -> bool:
        """True if the same was decided."""
        return self.divergence is None and not self.n_moved


def begin(recording: Recording, plugins: Iterable[str] = ()) -> tuple[Scheduler, Deciders]:
    """The recorded scheduler before the first call of the recording. Raises RecordingError,
    ConfigError and ContractError."""
    header, snapshot = recording.header, recording.snapshot
    deciders = recorded_deciders(header, recording.source, plugins)
    scheduler = scheduler_of(header, deciders)
    if snapshot is not None:
        scheduler.handle(snapshot.events(), snapshot.now, 0)
    return scheduler, deciders


def restore(
    recording: Recording, until: int | None = None, plugins: Iterable[str] = ()
) -> RestoredScheduler:
    """The scheduler after all calls up to a time of the scheduler; None: at the end."""
    scheduler, deciders = begin(recording, plugins)
    now, n_calls = recording.began, 0
    for call in recording.calls(until):
        scheduler.handle(call.events(), call.now, call.heads_max)
        now, n_calls = call.now, n_calls + 1
    return RestoredScheduler(scheduler, deciders, now, n_calls, recording.snapshot is None)


def verify(recording: Recording, plugins: Iterable[str] = ()) -> Verification:
    """Decide the recording again and compare the effects."""
    scheduler, _ = begin(recording, plugins)
    is_exact = recording.snapshot is None
    n_calls = n_effects = n_bytes = 0
    recorded: dict[str, str] = {}
    decided: dict[str, str] = {}
    for call in recording.calls():
        effects = scheduler.handle(call.events(), call.now, call.heads_max)
        n_calls += 1
        n_effects += len(effects)
        n_bytes += len(call.effect_bytes())
        if not is_exact:
            recorded.update(_bindings(call.effects()))
            decided.update(_bindings(effects))
        elif not call.has_effects(effects):
            found = _divergence(n_calls, call, effects)
            return Verification(n_calls, n_effects, n_bytes, found, is_exact)
    # After a snapshot another scheduler tries all pods at once, so their order may differ.
    moved = sum(decided.get(uid) not in (None, node) for uid, node in recorded.items())
    return Verification(n_calls, n_effects, n_bytes, None, is_exact, len(recorded), moved)


def _bindings(effects: Iterable[Any]) -> dict[str, str]:
    return {one.uid: one.node for one in effects if type(one).__name__ == "Bind"}


def _divergence(number: int, call: RecordedCall, effects: list[Any]) -> Divergence:
    recorded: list[RecordedEffect] = call.effects()
    at = next(
        (k for k, (a, b) in enumerate(zip(recorded, effects, strict=False)) if a != b),
        min(len(recorded), len(effects)),
    )
    return Divergence(
        number,
        call.now,
        tuple(map(str, recorded[at : at + 1])),
        tuple(map(str, effects[at : at + 1])),
    )


def cluster_at(path: str | Path, time: str = "", plugins: Iterable[str] = ()) -> Cluster:
    """The cluster of a recording at a time, as the inputs of files give one.

    time: RFC 3339, or an offset from the start such as `+90s`; "" is the end. Pods that the
    scheduler had bound are on their nodes, also where the watch had not shown it yet. Raises
    RecordingError, ConfigError and ContractError.
    """
    recording = open_recording(path)
    until = recording.time(time) if time else None
    return cluster_of(restore(recording, until, plugins), recording)


def cluster_of(restored: RestoredScheduler, recording: Recording) -> Cluster:
    """The cluster that a restored scheduler knows."""
    snapshot = take_snapshot(restored.scheduler, restored.now)
    pods = []
    for pod in snapshot.pods:
        node = snapshot.assumed.get(pod.key)
        pods.append(pod if node is None else replace(pod, spec=replace(pod.spec, node_name=node)))
    notes = [] if restored.is_exact else ["the queue was restored from a snapshot"]
    return Cluster(
        list(snapshot.nodes),
        pods,
        [record.object() for record in snapshot.objects],
        notes=notes,
    )


# What `stowplan replay` prints.

WAITING = {
    PodState.GATED: "gated",
    PodState.ACTIVE: "active",
    PodState.BACKOFF: "backoff",
    PodState.UNSCHEDULABLE: "unschedulable",
    PodState.SKIPPED: "unschedulable",
    PodState.WAITING_ON_PERMIT: "waitingOnPermit",
}


def summary_of(restored: RestoredScheduler, recording: Recording) -> dict[str, Any]:
    """The state of a restored scheduler as a tree: counts of pods by state, nodes, the time."""
    scheduler = restored.scheduler
    counts = dict.fromkeys(("active", "backoff", "unschedulable", "gated", "waitingOnPermit"), 0)
    counts["binding"] = 0
    for record in scheduler.pods.records.values():
        counts[WAITING.get(record.state, "binding")] += 1
    for lane in scheduler.lanes.batch:
        counts["awaitingSession"] = lane.n_waiting
    pods = scheduler.pods.pods.values()
    header = recording.header
    return {
        "recording": {
            "file": recording.source,
            "files": len(recording.files),
            "command": header.setup.command,
            "stowplan": header.stowplan,
            "closed": recording.files[-1].is_closed,
            "exact": restored.is_exact,
        },
        "time": recording.wall_time(restored.now).isoformat().replace("+00:00", "Z"),
        "offsetSeconds": round((restored.now - recording.began) / SECOND, 9),
        "calls": restored.n_calls,
        "nodes": scheduler.cache.nodes.n_nodes,
        "bound": sum(1 for pod in pods if pod.node_name and not pod.is_finished),
        "assumed": len(scheduler.cache.assumed()),
        "pending": counts,
    }
