"""The Jobs of a JobSet: their names, labels and specs.

Differs: pods have no subdomain and there is no headless Service, and volumes that a JobSet claims
are not there; neither changes where pods are placed.

Source: sigs.k8s.io/jobset of 2026-08-18, pkg/controllers/jobset_controller.go,
pkg/webhooks/jobset_webhook.go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from hashlib import sha1

from stowplan.controller_runtime.object_fields import controller_reference
from stowplan.controllers.job_sets.job_set_kinds import JOB_SET_VERSION
from stowplan.objects.encoding.tree import Tree

PREFIX = "jobset.sigs.k8s.io"
REPLICATED_JOB, JOB_INDEX = f"{PREFIX}/replicatedjob-name", f"{PREFIX}/job-index"
JOB_SET_LABEL = f"{PREFIX}/jobset-name"
RESTART_ATTEMPT = f"{PREFIX}/restart-attempt"
_GROUP_DEFAULT = "default"
_SCHEDULING_FIELDS = ("nodeSelector", "tolerations", "schedulingGates")


def replicas_of(replicated: Tree) -> int:
    """How many Jobs a replicated job has."""
    return int(replicated.get("replicas", 1))


def job_name(job_set: Tree, replicated: Tree, index: int) -> str:
    """Name of a Job of a JobSet."""
    return f"{job_set['metadata']['name']}-{replicated['name']}-{index}"


def child_job(job_set: Tree, replicated: Tree, index: int) -> Tree:
    """A Job of a replicated job, suspended if the JobSet is."""
    meta = job_set["metadata"]
    outer = replicated.get("template") or {}
    spec = copy.deepcopy(outer.get("spec") or {})
    spec.setdefault("completionMode", "Indexed")
    spec["suspend"] = bool(job_set["spec"].get("suspend"))
    template = spec.setdefault("template", {})
    template.setdefault("spec", {}).setdefault("restartPolicy", "OnFailure")
    marks = _marks(job_set, replicated, index)
    template["metadata"] = _marked(template.get("metadata"), marks)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            **_marked(outer.get("metadata"), marks),
            "name": job_name(job_set, replicated, index),
            "namespace": meta["namespace"],
            "ownerReferences": [controller_reference(job_set, "JobSet", JOB_SET_VERSION)],
        },
        "spec": spec,
    }


def resume(job: Tree, replicated: Tree) -> None:
    """Let a suspended Job run where the JobSet's template says, which may have changed.

    Differs: selectors, tolerations and gates become those of the template. The original adds them
    to those of the Job, which keeps the flavor of an earlier admission so.
    """
    wanted = (replicated["template"].get("spec") or {}).get("template") or {}
    template = job["spec"]["template"]
    for field in _SCHEDULING_FIELDS:
        value = (wanted.get("spec") or {}).get(field)
        if value:
            template["spec"][field] = copy.deepcopy(value)
        else:
            template["spec"].pop(field, None)
    meta = template.setdefault("metadata", {})
    for field in ("labels", "annotations"):
        more = (wanted.get("metadata") or {}).get(field)
        if more:
            meta[field] = {**(meta.get(field) or {}), **more}
    job["spec"]["suspend"] = False


def _marked(metadata: Tree | None, marks: dict[str, str]) -> Tree:
    given = metadata or {}
    return {
        "labels": {**(given.get("labels") or {}), **marks},
        "annotations": {**(given.get("annotations") or {}), **marks},
    }


def _marks(job_set: Tree, replicated: Tree, index: int) -> dict[str, str]:
    """Labels and annotations of a Job and its pods."""
    meta, jobs = job_set["metadata"], job_set["spec"]["replicatedJobs"]
    group = _group(replicated)
    before = jobs[: next(i for i, one in enumerate(jobs) if one["name"] == replicated["name"])]
    key = f"{meta['namespace']}/{job_name(job_set, replicated, index)}"
    return {
        JOB_SET_LABEL: meta["name"],
        f"{PREFIX}/jobset-uid": meta["uid"],
        REPLICATED_JOB: replicated["name"],
        f"{PREFIX}/replicatedjob-replicas": str(replicas_of(replicated)),
        f"{PREFIX}/global-replicas": str(_sum(jobs)),
        JOB_INDEX: str(index),
        f"{PREFIX}/job-global-index": str(_sum(before) + index),
        # The hash is a label and protects nothing.
        f"{PREFIX}/job-key": sha1(key.encode(), usedforsecurity=False).hexdigest(),
        RESTART_ATTEMPT: str(int((job_set.get("status") or {}).get("restarts") or 0)),
        f"{PREFIX}/group-name": group,
        f"{PREFIX}/group-replicas": str(_sum(one for one in jobs if _group(one) == group)),
        f"{PREFIX}/job-group-index": str(
            _sum(one for one in before if _group(one) == group) + index
        ),
    }


def _group(replicated: Tree) -> str:
    return str(replicated.get("groupName") or _GROUP_DEFAULT)


def _sum(jobs: Iterable[Tree]) -> int:
    return sum(map(replicas_of, jobs))
