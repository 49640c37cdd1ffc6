"""RecordingSource: the page of a flight recording, any moment of it."""

from __future__ import annotations

import asyncio

import numpy as np

from stowplan.forecast.recorded_history import cluster_of, restore
from stowplan.objects.encoding.tree import Tree
from stowplan.recording.frames import RecordingError
from stowplan.recording.recording_files import Recording
from stowplan.web.model.page_frames import FrameBody
from stowplan.web.model.pending_rows import QueuedCopy
from stowplan.web.model.recorded_run import recorded_run
from stowplan.web.model.replay_intervals import replay_body
from stowplan.web.serving.cluster_questions import ObjectsAtOnce
from stowplan.web.serving.page_source import Unavailable
from stowplan.web.serving.simulation_source import FinishedRun, FinishedSource

S = 1_000_000_000
"""Nanoseconds of a second."""
MS = 1000.0


class RecordingSource(FinishedSource):
    """See `PageSource`. A pod is explained as it was at a moment, by the recorded configuration."""

    has_evictions = True

    def __init__(self, recording: Recording, plugins: tuple[str, ...], epoch: int) -> None:
        """plugins: files, see `recorded_deciders`. Raises RecordingError, ConfigError and
        ContractError."""
        restored = restore(recording, None, plugins)
        cluster = cluster_of(restored, recording)
        at_end = ObjectsAtOnce(cluster.nodes, cluster.pods, cluster.objects)
        recorded = recorded_run(recording, at_end.others)
        waiting = [
            QueuedCopy(one.pod, "unschedulable", None, 1, one.created * MS, None, ())
            for one in recorded.run.pods
            if not one.node and one.ended > recorded.run.end
        ]
        finished = FinishedRun(recorded.run, recorded.ring, at_end, waiting)
        super().__init__(finished, restored.deciders, epoch)
        self._recording, self._plugins = recording, plugins
        self._presence = recorded.presence
        self._restored: tuple[float, ObjectsAtOnce] = (recorded.run.end, at_end)
        self._restoring = asyncio.Lock()

    async def cluster(self) -> Tree:
        """See `PageSource`."""
        tree = await super().cluster()
        began = self._recording.wall_time(self._recording.began).timestamp() * MS
        return {**tree, "began": began, "can": {**tree["can"], "whyAt": True}}

    async def why(self, pod: str, at: float | None = None, *, quickly: bool = False) -> Tree:
        """See `PageSource`."""
        objects = self._at_end if at is None else await self._objects_at(at)
        tree = await self._questions.why(pod, objects, quickly=quickly)
        until = float("inf") if at is None else at * MS
        attempts = [
            {"time": one.time, "outcome": one.outcome, "node": one.node, "message": one.message}
            for one in self.ring.newest_first()
            if one.pod == pod and one.time <= until
        ]
        return {
            **tree,
            "time": until if at is not None else self.run.end * MS,
            "attempts": attempts[:20],
        }

    async def _objects_at(self, at: float) -> ObjectsAtOnce:
        """The cluster at a moment; that of the last question is kept."""
        async with self._restoring:
            if self._restored[0] != at:
                try:
                    objects = await asyncio.to_thread(self._restore, at)
                except RecordingError as problem:
                    raise Unavailable(str(problem)) from None
                self._restored = at, objects
            return self._restored[1]

    def _restore(self, at: float) -> ObjectsAtOnce:
        until = self._recording.began + round(at * S)
        cluster = cluster_of(restore(self._recording, until, self._plugins), self._recording)
        return ObjectsAtOnce(cluster.nodes, cluster.pods, cluster.objects)

    async def replay(self) -> FrameBody:
        """See `PageSource`."""
        added = np.array([one.added for one in self._presence])
        removed = np.array([one.removed for one in self._presence], dtype=float)
        return replay_body(self.run, {"nodeAdded": added, "nodeRemoved": removed})
