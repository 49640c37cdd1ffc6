"""What would be admitted if queues or jobs of Kueue were different."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from stowplan.apis.custom.custom_kinds import custom_causes
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.batch.queue_models.kueue.reports.workload_reports import WorkloadReport
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.importers.imported_objects import QUEUE_LABEL, namespace_of
from stowplan.inputs.input_error import InputError
from stowplan.insight.what_if.requested_changes import RequestedChange
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.meta import OwnerReference
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import QuantityError, amount
from stowplan.simulation.kueue.job_admission import admit_jobs
from stowplan.simulation.kueue.queued_jobs import (
    POD_GROUP,
    OwnerKey,
    owner_of_pod,
    owner_of_tree,
)

SCHEMA = "stowplan.dev/kueue-what-if/v1"
LIMITS = ("nominalQuota", "borrowingLimit", "lendingLimit")
FIELDS = ("cohortName", "queueingStrategy", "stopPolicy", "weight")
POLICIES = ("withinClusterQueue", "reclaimWithinCohort")
FORM = (
    "NAME.FIELD=VALUE with a FIELD of " + ", ".join((*FIELDS, *POLICIES)) + ", or "
    "NAME.nominalQuota[FLAVOR/RESOURCE]=AMOUNT (likewise borrowingLimit, lendingLimit)"
)
_LIMIT = re.compile(
    rf"(?P<name>.+)\.(?P<field>{'|'.join(LIMITS)})\[(?P<flavor>[^/\]]+)/(?P<resource>[^\]]+)\]"
)
_FIELD = re.compile(rf"(?P<name>.+)\.(?P<field>{'|'.join((*FIELDS, *POLICIES))})")
KINDS = ("queue", "submit", "delete")
"""Kinds of changes that are answered; the files of `submit` are read with the cluster."""


class WorkloadDifference(msgspec.Struct, frozen=True):
    """A workload before and after. Either is None for one that is not there."""

    namespace: str
    job: str
    before: WorkloadReport | None
    after: WorkloadReport | None


class KueueWhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The answer. workloads: those that fare differently. admitted: number before and after."""

    schema: str = SCHEMA
    changes: list[str]
    admitted: tuple[int, int]
    pending: tuple[int, int]
    workloads: list[WorkloadDifference]


def kueue_what_if(
    before: Cluster, after: Cluster, changes: Iterable[RequestedChange], options: KueueOptions
) -> KueueWhatIf:
    """Compare a cluster with one in which objects were submitted, and changes made on top.

    Raises InputError.
    """
    given = list(changes)
    after = changed_cluster(after, given)
    reports = [admit_jobs(one, options).report for one in (before, after)]
    found = [
        {} if one is None else {(w.namespace, w.job): w for w in one.workloads} for one in reports
    ]
    differing = [
        WorkloadDifference(*key, found[0].get(key), found[1].get(key))
        for key in dict.fromkeys((*found[0], *found[1]))
        if _fate(found[0].get(key)) != _fate(found[1].get(key))
    ]
    admitted = [sum(w.status == "Admitted" for w in one.values()) for one in found]
    return KueueWhatIf(
        changes=[one.flag for one in given],
        admitted=(admitted[0], admitted[1]),
        pending=(len(found[0]) - admitted[0], len(found[1]) - admitted[1]),
        workloads=differing,
    )


def _fate(one: WorkloadReport | None) -> object:
    return None if one is None else (one.status, one.flavors, one.counts, one.reason)


def changed_cluster(cluster: Cluster, changes: Iterable[RequestedChange]) -> Cluster:
    """A cluster after changes of its queues and jobs; raises InputError."""
    for change in changes:
        if change.kind not in KINDS:
            kinds = ", ".join(f"--{kind}" for kind in KINDS)
            raise change.error(f"Kueue answers changes by {kinds} only")
        if change.kind == "queue":
            cluster = _with_queue(cluster, change)
        elif change.kind == "delete":
            cluster = _without_job(cluster, change)
    return cluster


def _with_queue(cluster: Cluster, change: RequestedChange) -> Cluster:
    place, sign, value = change.text.rpartition("=")
    found = _LIMIT.fullmatch(place) or _FIELD.fullmatch(place)
    if found is None or not sign:
        raise change.error(f"expected {FORM}")
    parts = found.groupdict()
    trees = copy.deepcopy(cluster.kueue_objects)
    queues = [one for one in trees if one["kind"] in ("ClusterQueue", "Cohort")]
    queue = next((one for one in queues if one["metadata"]["name"] == parts["name"]), None)
    if queue is None:
        names = [one["metadata"]["name"] for one in queues]
        hint = did_you_mean(parts["name"], names)
        text = f'ClusterQueue or Cohort "{parts["name"]}" not found'
        raise change.error(f"{text}; {hint}" if hint else text)
    known = {*custom_causes(queue)}
    spec = queue.setdefault("spec", {})
    if "flavor" in parts:
        _set_limit(spec, parts, value, change)
    elif parts["field"] in POLICIES:
        spec["preemption"] = {**(spec.get("preemption") or {}), parts["field"]: value}
    elif parts["field"] == "weight":
        spec["fairSharing"] = {"weight": value}
    else:
        spec[parts["field"]] = value
        if parts["field"] == "cohortName":
            spec.pop("cohort", None)
    # What was wrong before may be so still; as on a server, that was stored.
    for cause in custom_causes(queue):
        if cause not in known:
            raise change.error(f"{cause.field}: {cause.message}")
    return replace(cluster, kueue_objects=trees)


def _set_limit(spec: Tree, parts: dict[str, str], value: str, change: RequestedChange) -> None:
    try:
        amount(parts["resource"], value)
    except QuantityError:
        raise change.error(f'"{value}" is not a quantity') from None
    known = []
    for group in spec.get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                known.append(f"{flavor['name']}/{resource['name']}")
                if known[-1] == f"{parts['flavor']}/{parts['resource']}":
                    resource[parts["field"]] = value
                    return
    raise change.error(
        f'no quota of "{parts["flavor"]}/{parts["resource"]}": expected one of {", ".join(known)}'
    )


def _without_job(cluster: Cluster, change: RequestedChange) -> Cluster:
    """A cluster without a job and its Workload; of a live cluster the Workload names the job."""
    kind, _, name = change.text.partition("/")
    owners = {owner_of_tree(tree): tree for tree in cluster.queued}
    known = {*owners, *(key for tree in cluster.kueue_objects for key in _owners(tree))}
    known |= {key for pod in cluster.pods if (key := owner_of_pod(pod, owners)) is not None}
    gone = [key for key in known if (key[0].lower(), key[2]) == (kind.lower(), name)]
    if not gone:
        raise change.error(f'no {kind} "{name}" with a queue in the input')
    pods = [
        pod
        for pod in cluster.pods
        if owner_of_pod(pod, owners) not in gone
        and not any((ref.kind, pod.namespace, ref.name) in gone for ref in _refs(pod))
    ]
    queued = [tree for tree in cluster.queued if owner_of_tree(tree) not in gone]
    job_sets = [tree for tree in cluster.job_sets if owner_of_tree(tree) not in gone]
    trees = [tree for tree in cluster.kueue_objects if not {*_owners(tree)} & {*gone}]
    return replace(cluster, pods=pods, queued=queued, job_sets=job_sets, kueue_objects=trees)


def with_submitted(cluster: Cluster, submitted: Cluster) -> Cluster:
    """A live cluster with the jobs of files. submitted: as of `read_workload`. Objects of Kueue in
    the files stand for those of the cluster. Raises InputError for a job that is there."""
    known = {key for tree in cluster.kueue_objects for key in _owners(tree)}
    known |= {("Pod", pod.namespace, pod.name) for pod in cluster.pods}
    added = [owner_of_tree(tree) for tree in (*submitted.queued, *submitted.job_sets)]
    added += [("Pod", pod.namespace, pod.name) for pod in submitted.pods]
    for key in added:
        if key in known:
            kind, namespace, name = key
            raise InputError.at("", f"{kind} {namespace}/{name}", "exists already")
    changed = {owner_of_tree(tree) for tree in submitted.kueue_objects}
    stays = [one for one in cluster.kueue_objects if owner_of_tree(one) not in changed]
    return replace(
        cluster,
        pods=[*cluster.pods, *submitted.pods],
        objects=[*cluster.objects, *submitted.objects],
        kueue_objects=[*stays, *submitted.kueue_objects],
        queued=[*cluster.queued, *submitted.queued],
        job_sets=[*cluster.job_sets, *submitted.job_sets],
    )


def asks_quota(submitted: Cluster) -> bool:
    """Whether files have jobs or pods with a queue of Kueue."""
    return bool(submitted.queued) or any(
        QUEUE_LABEL in pod.metadata.labels for pod in submitted.pods
    )


def are_of_queues(changes: Iterable[RequestedChange], cluster: Cluster) -> bool:
    """Whether changes delete jobs that have Workloads, and do nothing else."""
    known = {
        f"{kind.lower()}/{name}"
        for tree in cluster.kueue_objects
        for kind, _, name in _owners(tree)
    }
    return all(one.kind == "delete" and one.text.lower() in known for one in changes)


def _owners(tree: Tree) -> list[OwnerKey]:
    """The owners of a Workload."""
    if tree["kind"] != "Workload":
        return []
    namespace = namespace_of(tree)
    refs = tree["metadata"].get("ownerReferences") or ()
    found = [(str(one.get("kind")), namespace, str(one.get("name"))) for one in refs]
    if len(found) > 1 and all(kind == "Pod" for kind, _, _ in found):
        found.append((POD_GROUP, namespace, tree["metadata"]["name"]))
    return found


def _refs(pod: Pod) -> tuple[OwnerReference, ...]:
    return pod.metadata.owner_references
