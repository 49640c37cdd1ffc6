"""Notes on pods of gangs that are decided one by one, as no sessions decide them."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.assembly.deciders import Deciders
from stowplan.batch.state.jobs import group_of
from stowplan.objects.pod import Pod

LOAD_SESSIONS = "sessions were not loaded (--config FILE with actions and tiers loads them)"


def gang_note(pod: Pod, deciders: Deciders) -> str:
    """Of a pod in a PodGroup that is judged alone, why; "" for others."""
    group = group_of(pod)
    if not group:
        return ""
    alone = f"the pod is in PodGroup {group} and was judged alone"
    batch = deciders.batch
    if batch is None:
        return f"{alone}: {LOAD_SESSIONS}"
    name, names = pod.spec.scheduler_name, " or ".join(batch.scheduler_names)
    return f"{alone}: its schedulerName is {name}, sessions decide {names}"


def gang_notes(pods: Iterable[Pod], deciders: Deciders) -> list[str]:
    """The same of all pods together, in one note, where no sessions decide; none without gangs."""
    if deciders.batch is not None:
        return []
    n_pods = sum(bool(group_of(pod)) for pod in pods)
    return [f"{n_pods} pods are in PodGroups, and were tried alone: {LOAD_SESSIONS}"] * bool(n_pods)
