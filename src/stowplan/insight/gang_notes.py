"""Notes on pods of gangs that are scheduled one by one, without sessions."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.assembly.deciders import Deciders
from stowplan.framework.deciders.tasks import group_of
from stowplan.inputs.counts import count_of
from stowplan.objects.pod import Pod

LOAD_SESSIONS = "no sessions are configured (add --config FILE with actions and tiers)"


def gang_note(pod: Pod, deciders: Deciders) -> str:
    """Why a pod of a PodGroup is evaluated alone; "" for other pods."""
    group = group_of(pod)
    if not group:
        return ""
    alone = f"the pod is in PodGroup {group} and was evaluated alone"
    batch = deciders.batch
    if batch is None:
        return f"{alone}: {LOAD_SESSIONS}"
    name, names = pod.spec.scheduler_name, " or ".join(batch.scheduler_names)
    return f"{alone}: its schedulerName is {name}, sessions schedule {names}"


def gang_notes(pods: Iterable[Pod], deciders: Deciders) -> list[str]:
    """One note for all pods of PodGroups when no sessions are configured."""
    if deciders.batch is not None:
        return []
    n_pods = sum(bool(group_of(pod)) for pod in pods)
    what = count_of(n_pods, "pod is in a PodGroup and was", "pods are in PodGroups and were")
    return [f"{what} tried alone: {LOAD_SESSIONS}"] if n_pods else []
