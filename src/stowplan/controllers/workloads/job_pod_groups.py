"""Pod groups of Jobs: a Workload and a PodGroup for each Job whose pods run all at the same time.

A new Job with `completionMode: Indexed`, as many completions as parallelism and more than one of
them is a gang (gate WorkloadWithJob). Its pods name the PodGroup, and are all placed or none.

Source: kube-controller-manager v1.36, pkg/controller/job/job_scheduling_manager.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import (
    controller_of,
    controller_reference,
    find_condition,
)
from stowplan.controller_runtime.object_index import Key, split_key
from stowplan.controller_runtime.resource_paths import POD_GROUPS, WORKLOADS
from stowplan.controllers.workloads.deployment_revision import name_hash
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.scheduling_group import SCHEDULING_API_VERSION
from stowplan.objects.store import Store, WatchEvent

COMPONENT = "job-controller"
NAME_MAX = 253
"""Characters of the name of an object."""


class _JobReference(msgspec.Struct, frozen=True, rename="camel"):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class _TemplateReference(msgspec.Struct, frozen=True, rename="camel"):
    workload_name: str = ""


class _GroupReference(msgspec.Struct, frozen=True):
    workload: _TemplateReference | None = None


class _ReferringSpec(msgspec.Struct, frozen=True, rename="camel"):
    controller_ref: _JobReference | None = None
    pod_group_template_ref: _GroupReference | None = None


class _ReferringObject(msgspec.Struct, frozen=True):
    """What a Workload or a PodGroup says about the object that it belongs to."""

    spec: _ReferringSpec = _ReferringSpec()

    @property
    def job(self) -> str:
        """The Job of a Workload, "" for none."""
        found = self.spec.controller_ref
        is_job = found is not None and (found.api_group, found.kind) == ("batch", "Job")
        return found.name if found is not None and is_job else ""

    @property
    def workload(self) -> str:
        """The Workload of a PodGroup, "" for none."""
        found = self.spec.pod_group_template_ref
        return "" if found is None or found.workload is None else found.workload.workload_name


_REFERRING = msgspec.json.Decoder(_ReferringObject)


class JobPodGroups:
    """Finds or creates the Workload and the PodGroup of a Job."""

    def __init__(self, api: Store, recorder: EventRecorder) -> None:
        self._api = api
        self._recorder = recorder
        self._names: dict[str, dict[Key, dict[str, None]]] = {WORKLOADS: {}, POD_GROUPS: {}}

    def observe(self, change: WatchEvent) -> None:
        """Note which Workloads name a Job, and which PodGroups name a Workload."""
        names = self._names.get(change.path)
        if names is None:
            return
        refers = _REFERRING.decode(change.value)
        namespace, name = split_key(change)
        owner = refers.job if change.path == WORKLOADS else refers.workload
        if not owner:
            return
        held = names.setdefault((namespace, owner), {})
        if change.type == "DELETED":
            held.pop(name, None)
            if not held:
                del names[namespace, owner]
        else:
            held[name] = None

    def group_of(self, job: Tree, *, has_pods: bool) -> Tree | None:
        """The PodGroup of a Job; None for one that is no gang, that had pods before its Workload,
        or whose Workload or PodGroup it does not control. Raises ApiError."""
        if not is_gang(job["spec"]):
            return None
        workload = self._workload(job, has_pods=has_pods)
        if workload is None or len(workload["spec"]["podGroupTemplates"]) != 1:
            return None
        found = self._named(POD_GROUPS, workload)
        if not found:
            return self._api.create(POD_GROUPS, pod_group_of(job, workload))
        return _of_job(found, job)

    def _workload(self, job: Tree, *, has_pods: bool) -> Tree | None:
        found = self._named(WORKLOADS, job)
        if found:
            return _of_job(found, job)
        if has_pods or not _is_new(job):
            return None
        made = self._api.create(WORKLOADS, workload_of(job))
        text = f"Created Workload {made['metadata']['name']} for Job {job['metadata']['name']}"
        self._recorder.record(job, COMPONENT, "WorkloadCreated", text)
        return made

    def _named(self, path: str, owner: Tree) -> list[Tree]:
        """The objects that name a Job or a Workload."""
        meta = owner["metadata"]
        names = self._names[path].get((meta["namespace"], meta["name"]), ())
        found = (self._api.get(path, meta["namespace"], name) for name in names)
        return [one for one in found if one is not None]


def is_gang(spec: Mapping[str, Any]) -> bool:
    """True for a Job whose pods run all at the same time, and name no group themselves."""
    parallelism = spec.get("parallelism") or 0
    return bool(
        parallelism > 1
        and spec.get("completionMode") == "Indexed"
        and spec.get("completions") == parallelism
        and not spec["template"]["spec"].get("schedulingGroup")
    )


def _is_new(job: Tree) -> bool:
    """True for a Job that has never started: others go on as they began."""
    status = job.get("status") or {}
    if any(status.get(name) for name in ("startTime", "succeeded", "failed")):
        return False
    return find_condition(status.get("conditions") or (), "Suspended") is None


def _of_job(found: list[Tree], job: Tree) -> Tree | None:
    """The only one, if the Job controls it."""
    if len(found) != 1:
        return None
    owner = controller_of(found[0])
    return found[0] if owner is not None and owner["uid"] == job["metadata"]["uid"] else None


def workload_of(job: Tree) -> Tree:
    """The Workload of a Job, with one template for all of its pods."""
    meta = job["metadata"]
    template = {
        "name": f"{meta['name']}-pgt-0",
        "schedulingPolicy": {"gang": {"minCount": job["spec"]["parallelism"]}},
    }
    return {
        "apiVersion": SCHEDULING_API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": workload_name(meta["name"], meta["uid"]),
            "namespace": meta["namespace"],
            "ownerReferences": [controller_reference(job, "Job", "batch/v1")],
        },
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": meta["name"]},
            "podGroupTemplates": [template],
        },
    }


def pod_group_of(job: Tree, workload: Tree) -> Tree:
    """The PodGroup of the template of a Workload."""
    meta, template = workload["metadata"], workload["spec"]["podGroupTemplates"][0]
    of_workload = {
        "apiVersion": SCHEDULING_API_VERSION,
        "kind": "Workload",
        "name": meta["name"],
        "uid": meta["uid"],
    }
    reference = {"workloadName": meta["name"], "podGroupTemplateName": template["name"]}
    return {
        "apiVersion": SCHEDULING_API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": pod_group_name(meta["name"], template["name"]),
            "namespace": meta["namespace"],
            "ownerReferences": [controller_reference(job, "Job", "batch/v1"), of_workload],
        },
        "spec": {
            "podGroupTemplateRef": {"workload": reference},
            "schedulingPolicy": template["schedulingPolicy"],
        },
    }


def workload_name(job: str, uid: str) -> str:
    """`JOB-HASH`, the hash of the Job's uid."""
    # The original hashes the uid as its debug output prints it, with its type.
    hashed = name_hash(f"(types.UID){uid}".encode())
    return f"{job[: NAME_MAX - len(hashed) - 1]}-{hashed}"


def pod_group_name(workload: str, template: str) -> str:
    """`WORKLOAD-TEMPLATE-HASH`, both shortened where that is too long."""
    hashed = name_hash(f"{workload}{template}".encode())
    room = NAME_MAX - len(hashed) - 2
    half = room // 2
    if len(workload) + len(template) > room:
        if len(workload) <= half:
            template = template[: room - len(workload)]
        elif len(template) <= half:
            workload = workload[: room - len(template)]
        else:
            workload, template = workload[: room - half], template[:half]
    return f"{workload}-{template}-{hashed}"
