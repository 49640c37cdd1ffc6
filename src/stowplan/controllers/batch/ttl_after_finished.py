"""TTL-after-finished controller: deletes finished Jobs after `ttlSecondsAfterFinished`.

Source: kube-controller-manager v1.36, pkg/controller/ttlafterfinished.
"""

from __future__ import annotations

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_fields import is_deleting
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controller_runtime.resource_paths import JOBS
from stowplan.controllers.workloads.job_sync_state import finished_condition
from stowplan.objects.store import DeleteOptions, WatchEvent

_FIELD = b'"ttlSecondsAfterFinished"'


class TtlAfterFinishedController(Controller):
    """Deletes finished Jobs, with their pods, when their time to live has ended."""

    name = "ttl-after-finished"
    path = JOBS
    observed = (JOBS,)

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed Job that has a time to live."""
        if change.path == JOBS and change.type != "DELETED" and _FIELD in change.value:
            self.queue.add(split_key(change))

    def sync(self, key: Key) -> None:
        """Delete the Job if its time to live has ended, else queue it for that time."""
        job = self.api.get(JOBS, *key)
        end = None if job is None else finished_condition(job)
        if job is None or end is None or is_deleting(job):
            return
        wait = job["spec"].get("ttlSecondsAfterFinished")
        if wait is None:
            return
        due = unix_seconds(end.get("lastTransitionTime")) + wait
        if due > self.api.now:
            self.queue.add(key, due)
            return
        uid, version = job["metadata"]["uid"], job["metadata"]["resourceVersion"]
        how = DeleteOptions(propagation="Foreground", uid=uid, version=version)
        self.api.delete(JOBS, *key, how)
