"""Objects and groups of a cluster as given, for profiles that no scheduler runs."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.framework import Framework, ObjectStore
from stowplan.framework.pod_groups.pod_group_states import PodGroupStates
from stowplan.objects.pod import Pod


def know_cluster(framework: Framework, pods: Iterable[Pod], objects: ObjectStore) -> None:
    """Let plugins read the objects, and the groups of these pods; no groups where pods are
    scheduled one by one."""
    framework.shared.object_store = objects
    if not framework.gates.generic_workload:
        return
    groups = PodGroupStates()
    for pod in pods:
        if not pod.is_finished:
            groups.put(pod, 0)
    framework.shared.pod_groups = groups
