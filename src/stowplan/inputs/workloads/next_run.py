"""The next run of a CronJob: the Job that its controller would create now.

A CronJob has no pods between its runs, so that only a command that names it reads one.

Source: Kubernetes v1.36, CronJob controller.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from stowplan.inputs.manifests import decode_object, full_kind
from stowplan.objects.pod import Pod
from stowplan.objects.workload import CronJob

CRON_JOB = "CronJob.batch"
NAME_SUFFIX = "-00000000"
"""In place of the scheduled minute, which the controller appends to the names of Jobs."""

_SCHEDULED = re.compile(r"(.+)-\d{8,}")

Tree = dict[str, Any]


class NextRun:
    """The CronJob with a key, and its next Job.

    cron_job: once it was read. place, path: where it is in the files.
    """

    def __init__(self, key: str) -> None:
        """key: NAMESPACE/NAME, or /NAME for any namespace."""
        self._namespace, _, self._name = key.rpartition("/")
        self.cron_job: CronJob | None = None
        self.place = self.path = ""
        self._tree: Tree = {}

    def takes(self, item: Tree, path: str, place: str) -> bool:
        """True if an object is the CronJob, which is kept. Raises DecodeError."""
        if item.get("kind") != "CronJob" or full_kind(item, path) != CRON_JOB:
            return False
        found: CronJob = decode_object(item, CronJob, path)
        if found.name != self._name or self._namespace not in ("", found.namespace):
            return False
        self.cron_job, self._tree, self.place, self.path = found, item, place, path
        return True

    def has_pods(self, pods: Iterable[Pod]) -> bool:
        """True if a run of the CronJob has pods that are not finished."""
        own = self.cron_job
        return own is not None and any(
            pod.namespace == own.namespace and scheduling_cron_job(pod) == own.name
            for pod in pods
            if not pod.is_finished
        )

    def job(self) -> Tree:
        """The Job of the next run."""
        own = self.cron_job
        assert own is not None
        template = self._tree["spec"]["jobTemplate"]
        owner = {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "name": own.name,
            "uid": own.metadata.uid,
            "controller": True,
        }
        metadata = {
            **(template.get("metadata") or {}),
            "name": own.name + NAME_SUFFIX,
            "namespace": own.namespace,
            "ownerReferences": [owner],
        }
        spec: Mapping[str, Any] = template.get("spec") or {}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def scheduling_cron_job(pod: Pod) -> str:
    """Name of the CronJob of a pod, by that of its Job; "" without one."""
    owner = pod.controller
    if owner is None or owner.kind != "Job":
        return ""
    found = _SCHEDULED.fullmatch(owner.name)
    return found[1] if found else ""
