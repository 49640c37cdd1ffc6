"""Pod groups: their priority, their finalizer, the workload that they name, and their Jobs.

Source: kube-apiserver v1.36, plugin/pkg/admission/priority, podgroup, job and
scheduling/podgroupprotection.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.scheduling.workload_groups import (
    POD_GROUP_PATH,
    POD_GROUP_PROTECTION,
    WORKLOAD_PATH,
)
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    admission_forbidden,
    stored_object,
    stored_objects,
    targets,
)
from stowplan.apiserver.admission.priority import PriorityAdmission
from stowplan.controller_runtime.object_fields import controller_of
from stowplan.objects.encoding.tree import Tree

_JOB_PATH = "batch/jobs"


class PodGroupAdmission(AdmissionPluginBase):
    """Completes pod groups, and refuses those whose workload has no such template."""

    repeatable = True
    paths = (POD_GROUP_PATH,)

    def __init__(self, priorities: PriorityAdmission) -> None:
        self._priorities = priorities

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403."""
        if obj is None or not targets(call, POD_GROUP_PATH):
            return
        if old is None:
            self._set_priority(call, obj)
        finalizers = obj["metadata"].get("finalizers") or []
        if POD_GROUP_PROTECTION not in finalizers and old is None:
            obj["metadata"]["finalizers"] = [*finalizers, POD_GROUP_PROTECTION]

    def _set_priority(self, call: ApiCall, obj: Tree) -> None:
        spec = obj["spec"]
        asked = spec.get("priorityClassName") or ""
        name, value, _ = self._priorities.established(call, obj, asked)
        given = spec.get("priority")
        if given is not None and given != value:
            why = (
                f"priority set in the pod group ({given}) must match the priority computed"
                f" ({value}) based on the priority class set in the spec"
            )
            raise admission_forbidden(call, obj, why)
        spec["priority"] = value
        if name:
            spec["priorityClassName"] = name

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403."""
        if obj is None or old is not None or not targets(call, POD_GROUP_PATH):
            return
        reference = (obj["spec"].get("podGroupTemplateRef") or {}).get("workload")
        if reference is None:
            return
        name, template = reference["workloadName"], reference["podGroupTemplateName"]
        workload = stored_object(call, WORKLOAD_PATH, call.namespace, name)
        why = ""
        if workload is None:
            why = f'Workload "{name}" not found'
        elif workload["metadata"].get("deletionTimestamp"):
            why = f'Workload "{name}" is being deleted'
        elif all(one["name"] != template for one in workload["spec"]["podGroupTemplates"]):
            why = f'PodGroupTemplate "{template}" not found in Workload "{name}"'
        if why:
            raise admission_forbidden(call, obj, f"PodGroup rejected: {why}")


class JobGangAdmission(AdmissionPluginBase):
    """Refuses another parallelism for a Job whose pods are a gang: `minCount` would not follow."""

    repeatable = True
    paths = (_JOB_PATH,)

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403."""
        if obj is None or old is None or not targets(call, _JOB_PATH):
            return
        if obj["spec"].get("parallelism") == old["spec"].get("parallelism"):
            return
        for group in self._groups(call, old):
            if group["spec"]["schedulingPolicy"].get("gang") is not None:
                name = group["metadata"]["name"]
                why = (
                    "cannot change parallelism for a Job referencing gang-scheduled"
                    f' PodGroup "{name}"'
                )
                raise admission_forbidden(call, obj, why)

    def _groups(self, call: ApiCall, job: Tree) -> Iterator[Tree]:
        """The PodGroup that the template names, or those that the Job controls."""
        named = job["spec"]["template"]["spec"].get("schedulingGroup") or {}
        if named.get("podGroupName"):
            found = stored_object(call, POD_GROUP_PATH, call.namespace, named["podGroupName"])
            yield from () if found is None else (found,)
            return
        for group in stored_objects(call, POD_GROUP_PATH):
            owner = controller_of(group)
            if owner is not None and owner["uid"] == job["metadata"]["uid"]:
                yield group
