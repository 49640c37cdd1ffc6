"""Changes of workloads and pods: sizes, priorities, deletions and submissions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.inputs.manifests import Workload
from stowplan.inputs.workloads.priority_classes import PriorityClasses, UnknownPriorityClassError
from stowplan.inputs.workloads.scaled_workload import created_pods, expanded_pods, with_size
from stowplan.insight.pod_owners import owners_of, pods_of_owner
from stowplan.insight.what_if.change_state import ChangeState
from stowplan.insight.what_if.owned_pods import deletion_order, free_names
from stowplan.insight.what_if.requested_changes import RequestedChange
from stowplan.insight.what_if.targets import (
    Target,
    count_after,
    not_found,
    object_of,
    target_of,
)
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.workload import DaemonSet, PriorityClass, ReplicaSet

_SCALABLE = ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job")
_PRIORITY_MAX = 1_000_000_000
CLAIMS_NOTE = "claims of new pods of a StatefulSet are not created: they are decided without them"


# Sizes.


def scale(state: ChangeState, change: RequestedChange) -> str:
    """Give a workload another number of pods."""
    what, n_pods = count_after(change, 0)
    target = target_of(change, what, state.namespace)
    if target.kind not in _SCALABLE:
        raise change.error(f"cannot scale a {target.kind}: expected one of {', '.join(_SCALABLE)}")
    pods = _active(state, target)
    workload = object_of(target, state.objects) or _replica_set_of(state, target, pods)
    if workload is None and not pods:
        raise not_found(change, target, state.given)
    before = len(pods)
    if isinstance(workload, Workload) and not isinstance(workload, DaemonSet):
        _scale_object(state, target, workload, pods, n_pods)
    else:
        _scale_pods(state, target, pods, n_pods)
    return f"{target.text} scaled from {before} to {n_pods}"


def _replica_set_of(state: ChangeState, target: Target, pods: list[Pod]) -> ReplicaSet | None:
    """The ReplicaSet of a Deployment that is not in the input, of its newest pods."""
    if target.kind != "Deployment":
        return None
    owners = [pod.controller.name for pod in pods if pod.controller is not None]
    for name in reversed(owners):
        found = object_of(Target("ReplicaSet", target.namespace, name), state.objects)
        if isinstance(found, ReplicaSet):
            template = f"new pods have the template of replicaset {name}"
            state.found.notes.append(f"{target.text} is not in the input: {template}")
            return found
    return None


def _active(state: ChangeState, target: Target) -> list[Pod]:
    found = pods_of_owner(state.pods.values(), target.kind, target.name, target.namespace)
    return [p for p in found if not p.is_finished and p.metadata.deletion_timestamp is None]


def _scale_object(
    state: ChangeState, target: Target, workload: Workload, pods: list[Pod], n_pods: int
) -> None:
    """As the workload's controller does: missing pods are those that reading its manifest with
    another size would make."""
    changed = with_size(workload, n_pods)
    state.replace_object(workload, changed)
    made = expanded_pods(workload, state.given)
    wanted = created_pods(changed, state.given)
    new = [pod for key, pod in wanted.items() if key not in state.pods]
    state.insert(new, made, changed)
    state.found.submitted.update(dict.fromkeys(pod.key for pod in new))
    gone = [state.pods[key] for key in made if key not in wanted and key in state.pods]
    kept = [pod for pod in pods if pod.key not in {one.key for one in gone}]
    n_there = len(kept) + sum(key not in made for key in wanted)
    gone += _removed(target, kept, n_there - n_pods)
    _delete(state, gone, f"{target.text} is scaled to {n_pods}")
    # A pod that an earlier reading made belongs to the changed workload.
    for key in made:
        if state.origins.get(key) is workload:
            state.origins[key] = changed
    if target.kind == "StatefulSet" and any(_has_claims(pod) for pod in pods):
        state.found.notes.append(CLAIMS_NOTE)


def _removed(target: Target, pods: list[Pod], n_pods: int) -> list[Pod]:
    if n_pods <= 0:
        return []
    if target.kind == "StatefulSet":
        return sorted(pods, key=_ordinal, reverse=True)[:n_pods]
    return deletion_order(pods)[:n_pods]


def _ordinal(pod: Pod) -> int:
    number = pod.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1


def _has_claims(pod: Pod) -> bool:
    return any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes)


def _scale_pods(state: ChangeState, target: Target, pods: list[Pod], n_pods: int) -> None:
    """Without the workload itself: new pods are like its newest one."""
    if n_pods < len(pods):
        gone = _removed(target, pods, len(pods) - n_pods)
        _delete(state, gone, f"{target.text} is scaled to {n_pods}")
        return
    pattern = pods[-1]
    names = free_names(target.name, target.namespace, state.pods, n_pods - len(pods))
    new = [state.copies.another(pattern, name) for name in names]
    state.pods.update({pod.key: pod for pod in new})
    state.found.submitted.update(dict.fromkeys(pod.key for pod in new))
    if new:
        state.found.notes.append(
            f"{target.text} is not in the input: new pods are like pod {pattern.key}"
        )
        if target.kind == "StatefulSet" and _has_claims(pattern):
            state.found.notes.append(CLAIMS_NOTE)


def _delete(state: ChangeState, pods: Sequence[Pod], why: str) -> None:
    for pod in pods:
        state.remove_pod(pod)
        if pod.key in state.found.submitted:
            del state.found.submitted[pod.key]
        else:
            state.found.deleted[pod.key] = why


# Deletions.


def delete(state: ChangeState, change: RequestedChange) -> str:
    """Delete a workload with its pods, a pod, or another object."""
    target = target_of(change, change.text, state.namespace)
    if target.kind == "Node":
        raise change.error(f"use --remove-node {target.name}")
    if target.kind == "Pod":
        pod = state.pods.get(f"{target.namespace}/{target.name}")
        if pod is None:
            raise not_found(change, target, state.given)
        if pod.controller is None or not pod.node_name:
            _delete(state, [pod], "it is deleted")
            return f"pod {pod.key} deleted"
        state.create_again(pod, "it is deleted")
        return f"pod {pod.key} deleted; its owner creates it again"
    found = object_of(target, state.objects)
    owned = [
        pod
        for pod in state.pods.values()
        if pod.namespace == target.namespace and (target.kind, target.name) in owners_of(pod)
    ]
    if found is None and not owned:
        raise not_found(change, target, state.given)
    if found is not None:
        state.replace_object(found, None)
    for one in [o for o in state.objects if isinstance(o, ReplicaSet)]:
        owner = one.controller
        mine = owner is not None and (owner.kind, owner.name) == (target.kind, target.name)
        if mine and one.namespace == target.namespace:
            state.replace_object(one, None)
    _delete(state, owned, f"{target.text} is deleted")
    more = f", with {count_of(len(owned), 'pod')}" if owned else ""
    return f"{target.text} deleted{more}"


# Submissions.


def submit(state: ChangeState, change: RequestedChange, files: Mapping[str, Cluster]) -> str:
    """Add the pods and objects of a file."""
    added = files.get(change.text)
    if added is None:
        raise change.error("the file was not read")
    for pod in added.pods:
        if pod.key in state.pods:
            raise change.error(f"pod {pod.key} exists already")
        state.pods[pod.key] = pod
    # A claim or namespace that two files make is one.
    there = {(type(one), _key(one)) for one in state.objects}
    state.objects += [one for one in added.objects if (type(one), _key(one)) not in there]
    state.found.submitted.update(dict.fromkeys(pod.key for pod in added.pods))
    state.origins.update(added.origins)
    for key, why in added.not_created.items():
        state.found.notes.append(f"pod {key} is not created: {why}")
    for kind, number in added.ignored.items():
        state.found.notes.append(f"{change.text}: ignored, not supported: {number} {kind}")
    return f"{count_of(len(added.pods), 'pod')} submitted"


def _key(one: Object) -> str:
    return str(getattr(one, "key", one.name))


# Priorities.


def change_priority(state: ChangeState, change: RequestedChange) -> str:
    """Give the pods of a workload, or a pod, another priority."""
    what, equals, text = change.text.rpartition("=")
    if not equals or not what or not text:
        raise change.error("expected KIND/NAME=N or KIND/NAME=CLASS")
    target = target_of(change, what, state.namespace)
    classes = [one for one in state.objects if isinstance(one, PriorityClass)]
    given: dict[str, Any] = {"priority": None, "priority_class_name": text}
    if re.fullmatch(r"-?\d{1,10}", text):
        if abs(int(text)) > _PRIORITY_MAX:
            raise change.error(f"expected a priority from -{_PRIORITY_MAX} to {_PRIORITY_MAX}")
        given = {"priority": int(text), "priority_class_name": ""}
    if target.kind == "Pod":
        pod = state.pods.get(f"{target.namespace}/{target.name}")
        pods = [] if pod is None else [pod]
    else:
        pods = _active(state, target)
    workload = object_of(target, state.objects)
    if not pods and not isinstance(workload, Workload):
        raise not_found(change, target, state.given)
    resolver = PriorityClasses(classes)
    specs: dict[int, Any] = {}
    try:
        for pod in pods:
            if id(pod.spec) not in specs:
                specs[id(pod.spec)] = resolver.resolved(replace(pod.spec, **given))
            state.pods[pod.key] = replace(pod, spec=specs[id(pod.spec)])
    except UnknownPriorityClassError as problem:
        raise change.error(str(problem)) from None
    if isinstance(workload, Workload):
        spec = cast(Any, workload.spec)
        template = replace(spec.template, spec=replace(spec.template.spec, **given))
        after = replace(workload, spec=replace(spec, template=template))
        state.replace_object(workload, after)
        for key, origin in state.origins.items():
            if origin is workload:
                state.origins[key] = after
    state.found.changed += [pod.key for pod in pods]
    return f"priority of {count_of(len(pods), 'pod')} of {target.text} is {text}"
