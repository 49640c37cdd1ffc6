"""Notes on pods of gangs that are scheduled one by one, without sessions."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.assembly.deciders import Deciders
from stowplan.config.queue_models.scheduler_hints import no_sessions
from stowplan.framework.deciders.tasks import group_of
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.inputs.counts import count_of
from stowplan.objects.pod import Pod

GATES_OFF = (
    "the feature gate GenericWorkload is off (add --feature-gates "
    "GenericWorkload=true,GangScheduling=true)"
)


def gang_note(pod: Pod, deciders: Deciders) -> str:
    """Why a pod of a PodGroup is evaluated alone; "" for other pods."""
    native = group_key_of(pod)
    if native and not deciders.gates.generic_workload:
        return (
            f"the pod is in PodGroup {native} of scheduling.k8s.io and was evaluated alone: "
            f"{GATES_OFF}"
        )
    group = group_of(pod)
    if native:
        also = f"; PodGroup {group}, which its annotation names, is of sessions" if group else ""
        name = native.partition("/")[2]
        return (
            f"profile {pod.spec.scheduler_name} schedules the pod with PodGroup {native}, and it "
            f"was evaluated alone: see `stowplan explain podgroup/{name}`{also}"
        )
    if not group:
        return ""
    alone = f"the pod is in PodGroup {group} and was evaluated alone"
    batch = deciders.batch
    if batch is None:
        return f"{alone}: {no_sessions([pod.spec.scheduler_name])}"
    name, names = pod.spec.scheduler_name, " or ".join(batch.scheduler_names)
    return f"{alone}: its schedulerName is {name}, sessions schedule {names}"


def gang_notes(pods: Iterable[Pod], deciders: Deciders) -> list[str]:
    """One note for all pods of PodGroups when no sessions are configured, and one for those of
    scheduling.k8s.io when the gate is off."""
    notes = []
    given = list(pods)
    if deciders.batch is None:
        names = [pod.spec.scheduler_name for pod in given if group_of(pod)]
        n_pods = len(names)
        what = count_of(n_pods, "pod is in a PodGroup and was", "pods are in PodGroups and were")
        notes += [f"{what} tried alone: {no_sessions(names)}"] if n_pods else []
    if not deciders.gates.generic_workload:
        n_pods = sum(bool(group_key_of(pod)) for pod in given)
        of = "of scheduling.k8s.io"
        what = count_of(
            n_pods, f"pod is in a PodGroup {of} and was", f"pods are in PodGroups {of} and were"
        )
        notes += [f"{what} tried alone: {GATES_OFF}"] if n_pods else []
    return notes
