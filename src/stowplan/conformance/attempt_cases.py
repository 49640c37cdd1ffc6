"""Attempt cases: a cluster and a pending pod; the answer is the full result of one attempt.

A case is one JSON object: objects by kind, the pending `pod`, optionally the body of a
KubeSchedulerConfiguration as `profile`, and `featureGates`. The answer has everything observable of
one attempt of kube-scheduler: verdicts, reasons, scores, preemption and messages.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from stowplan.columns.nodetable import table_of
from stowplan.conformance.case_lines import case_configuration, case_reader
from stowplan.conformance.device_answers import (
    allocations_of,
    extended_claims_of,
    post_filter_claims,
)
from stowplan.cycle.attempt import Attempt, filter_pod, run_filters_independently, score_pod
from stowplan.cycle.decision import nominated_row, run_post_filters
from stowplan.framework import FeatureGates, Framework, Nominations, ObjectStore, Snapshot, Status
from stowplan.framework.diagnosis import NO_NODES
from stowplan.inputs.input_error import mismatch
from stowplan.objects import storage, workload
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.devices.scv import Scv
from stowplan.objects.meta import Value
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.preemption.default_preemption import PreemptionReport
from stowplan.plugins.volumes.volume_binding import VolumeBinding

Answer = dict[str, Any]
RECORDED_AT = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
"""Time of day in recorded questions."""


class AttemptCase(Value, frozen=True, gc=True):
    """One case."""

    id: str
    pod: Pod
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    nominated_pods: tuple[Pod, ...] = ()
    namespaces: tuple[workload.Namespace, ...] = ()
    services: tuple[workload.Service, ...] = ()
    replication_controllers: tuple[workload.ReplicationController, ...] = ()
    replica_sets: tuple[workload.ReplicaSet, ...] = ()
    stateful_sets: tuple[workload.StatefulSet, ...] = ()
    pvs: tuple[storage.PersistentVolume, ...] = ()
    pvcs: tuple[storage.PersistentVolumeClaim, ...] = ()
    storage_classes: tuple[storage.StorageClass, ...] = ()
    csi_nodes: tuple[storage.CSINode, ...] = ()
    csi_drivers: tuple[storage.CSIDriver, ...] = ()
    csi_storage_capacities: tuple[storage.CSIStorageCapacity, ...] = ()
    volume_attachments: tuple[storage.VolumeAttachment, ...] = ()
    pdbs: tuple[workload.PodDisruptionBudget, ...] = ()
    scvs: tuple[Scv, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    resource_slices: tuple[ResourceSlice, ...] = ()
    profile: dict[str, Any] | None = None
    feature_gates: dict[str, bool] = {}

    def object_store(self) -> ObjectStore:
        """Objects other than nodes and pods."""
        return ObjectStore((
            *self.namespaces, *self.services, *self.replication_controllers, *self.replica_sets,
            *self.stateful_sets, *self.pvs, *self.pvcs, *self.storage_classes, *self.csi_nodes,
            *self.csi_drivers, *self.csi_storage_capacities, *self.volume_attachments, *self.pdbs,
            *self.scvs, *map(_with_uid, self.resource_claims), *self.device_classes,
            *self.resource_slices,
        ))  # fmt: skip


def _with_uid(claim: ResourceClaim) -> ResourceClaim:
    """The claim with a uid: NAMESPACE/NAME where it has none."""
    metadata = claim.metadata
    if metadata.uid:
        return claim
    return replace(claim, metadata=replace(metadata, uid=claim.key))


read_case = case_reader(AttemptCase)


def answer(case: AttemptCase, *, columns: bool = True, plugins: Sequence[type[Any]] = ()) -> Answer:
    """The answer to one case; raises ConfigError and QuantityError for a bad one.

    columns: False uses the scalar walk; the answer is the same. plugins: enabled in addition to the
    default ones, unless the case's profile disables them.
    """
    framework = framework_of(case, columns=columns, plugins=plugins)
    object_store = case.object_store()
    framework.shared.object_store = object_store
    framework.shared.now = RECORDED_AT
    gate = framework.run_pre_enqueue(case.pod)
    if not gate.is_success:
        return {"outcome": "gated", "preEnqueue": {"plugin": gate.plugin, **_status(gate)}}
    table = table_of(case.nodes, (pod for pod in case.pods if not pod.is_finished))
    snapshot = Snapshot(table, object_store, Nominations(case.nominated_pods))
    return answer_of(filter_pod(case.pod, snapshot, framework))


def framework_of(
    case: AttemptCase, *, columns: bool = True, plugins: Sequence[type[Any]] = ()
) -> Framework:
    """The framework that decides the case's pod; raises ConfigError."""
    configuration, full = case_configuration(case.profile, case.id, plugins)
    gates = FeatureGates.of(case.feature_gates, case.id)
    name = case.pod.spec.scheduler_name
    if name not in configuration.profiles:
        known = ", ".join(sorted(configuration.profiles))
        text = mismatch(repr(name), f"one of {known}")
        raise ValueError(f"{case.id}: schedulerName: {text}")
    return Framework(configuration.profiles[name], full, gates, columns=columns)


def answer_of(attempt: Attempt) -> Answer:
    """Finish an attempt (preemption, scores) and return all its results."""
    nodes = attempt.snapshot.nodes
    result: Answer = {}
    if nodes.n_nodes == 0:
        return {"outcome": "unschedulable", "reason": "Unschedulable", "message": NO_NODES}
    result["nodeOrder"] = [nodes.names[row] for row in nodes.order]
    result["preFilter"] = _pre_filter(attempt)
    if attempt.verdicts is not None:
        result["filter"] = _filter(attempt)
        result["feasible"] = [nodes.names[row] for row in attempt.feasible]
    nominated = attempt.pod.status.nominated_node_name
    if nominated and attempt.verdicts is not None:
        result["nominatedNodeFits"] = nominated_row(attempt) is not None
    if attempt.failure is None and attempt.passed.shape[0]:
        result |= _scheduled(attempt)
    elif attempt.failure is None:
        result |= _refused(attempt)
    if attempt.failure is not None:
        result |= _failed(attempt)
    # An error of a filter ends the attempt without a diagnosis; one of a score comes after it.
    if attempt.diagnosis.plugins and (attempt.failure is None or "scoreError" in result):
        result["unschedulablePlugins"] = sorted(attempt.diagnosis.plugins)
    return {key: value for key, value in result.items() if value not in ({}, [])}


def _status(status: Status) -> Answer:
    return {"code": status.code.title, "reasons": sorted(status.reasons)}


def _pre_filter(attempt: Attempt) -> Answer:
    outcome = attempt.pre_filter
    entry: Answer = {"code": outcome.status.code.title}
    if not outcome.status.is_success:
        entry["reasons"] = sorted(outcome.status.reasons)
        if outcome.status.plugin:
            entry["plugin"] = outcome.status.plugin
    if outcome.restrict:
        entry["nodeNames"] = sorted(outcome.restrict)
    entry["skipped"] = sorted(attempt.state.skip_filter)
    return entry


def _filter(attempt: Attempt) -> Answer:
    """Per rejected node: the first plugin that rejects it, and all that would reject it alone."""
    verdicts, nodes = attempt.verdicts, attempt.snapshot.nodes
    assert verdicts is not None
    apart = run_filters_independently(attempt)
    entries: Answer = {}
    for place, row in enumerate(verdicts.rows.tolist()):
        status = verdicts.at(place)
        if status.is_success:
            continue
        failing = {
            name: _status(answers.explain(int(answers.codes[place])))
            for name, answers in apart.items()
            if answers.codes[place] != 0
        }
        entries[nodes.names[row]] = {"plugin": status.plugin, **_status(status)}
        if failing:
            entries[nodes.names[row]]["failing"] = failing
    return entries


def _scheduled(attempt: Attempt) -> Answer:
    nodes = attempt.snapshot.nodes
    names = [nodes.names[row] for row in attempt.feasible]
    result: Answer = {"outcome": "scheduled", "volumeBindings": _volumes(attempt, names)}
    result["allocations"] = allocations_of(attempt, names)
    result["extendedResourceClaim"] = extended_claims_of(attempt, names)
    best = names
    if attempt.framework.at("score"):
        if score_pod(attempt) is None:
            return {"scoreError": attempt.errors[0].message}
        result["score"] = _scores(attempt)
        total = result["score"]["total"]
        best = [n for n, t in zip(names, total, strict=True) if t == max(total)]
    result["best"] = best
    nominated = nominated_row(attempt)
    if nominated is not None:
        result["selected"] = [nodes.names[nominated]]
    else:
        result["selected"] = names if len(names) == 1 else best
    return result


def _scores(attempt: Attempt) -> Answer:
    scores = attempt.scores
    assert scores is not None
    place = {row: index for index, row in enumerate(scores.rows.tolist())}
    order = np.array([place[row] for row in attempt.feasible.tolist()], dtype=np.int64)
    entry: Answer = {
        "plugins": {
            name: {
                "raw": scores.raw[name][order].tolist(),
                "final": scores.final[name][order].tolist(),
            }
            for name in scores.raw
        },
        "total": scores.total[order].tolist(),
    }
    entry["skipped"] = sorted(attempt.state.skip_score)
    return entry


def _volumes(attempt: Attempt, names: list[str]) -> Answer:
    member = attempt.framework.members.get(VolumeBinding.name)
    if member is None or VolumeBinding.name in attempt.state.skip_filter:
        return {}
    found = ((name, member.plugin.bindings(attempt.state, name)) for name in names)
    return {name: bindings for name, bindings in found if bindings}


def _refused(attempt: Attempt) -> Answer:
    result: Answer = {
        "outcome": "unschedulable",
        "reason": "Unschedulable",
        "fitError": attempt.diagnosis.text(),
    }
    found = run_post_filters(attempt)
    if found is None:
        return {**result, "postFilter": {"ran": False}, "message": result["fitError"]}
    entry: Answer = {"ran": True, "code": found.status.code.title}
    if found.status.reasons:
        entry["reasons"] = sorted(found.status.reasons)
    if not found.status.is_success and found.status.plugin:
        entry["plugin"] = found.status.plugin
    if found.status.is_success:
        result["outcome"] = "preempting"
    report = attempt.state.find("DefaultPreemption")
    if isinstance(report, PreemptionReport):
        entry |= _preemption(report)
    entry |= post_filter_claims(attempt)
    if found.nominated_node == "":
        entry["nominatedNode"] = ""
    result["postFilter"] = entry
    result["message"] = attempt.diagnosis.text(found.status.message)
    return result


def _preemption(report: PreemptionReport) -> Answer:
    entry: Answer = {}
    if report.candidates:
        entry["candidates"] = [
            {
                "node": c.node_name,
                "victims": [info.pod.key for info in c.victims],
                "pdbViolations": c.pdb_violations,
            }
            for c in sorted(report.candidates, key=lambda c: c.node_name)
        ]
    if report.statuses:
        entry["nodeStatuses"] = {
            name: {**_status(s), **({"plugin": s.plugin} if s.plugin else {})}
            for name, s in report.statuses.items()
        }
    if report.best:
        entry["nominatedNodes"] = [c.node_name for c in report.best]
    if len(report.best) == 1:
        entry["nominatedNode"] = report.best[0].node_name
        entry["victims"] = [info.pod.key for info in report.best[0].victims]
    return entry


def _failed(attempt: Attempt) -> Answer:
    texts = [status.message for status in attempt.errors]
    entry: Answer = {"outcome": "error", "reason": "SchedulerError", "message": texts[0]}
    if len(texts) > 1:
        entry["messages"] = texts
    return entry
