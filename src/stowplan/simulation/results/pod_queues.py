"""The queues of a simulation's pods, as measures and reports group them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stowplan.framework.deciders.tasks import group_of
from stowplan.objects.kai.kai_kinds import KAI_GROUP_ANNOTATION, KaiPodGroupObject, KaiQueueObject
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import VOLCANO_QUEUE_ANNOTATION, PodGroup, Queue

QUEUE_KEYS = (
    "volcano.sh/queue-name",
    VOLCANO_QUEUE_ANNOTATION,
    "kai.scheduler/queue",
    "kueue.x-k8s.io/queue-name",
)
"""Labels and annotations that name a pod's queue, where no PodGroup does."""
_KEYS = frozenset(QUEUE_KEYS)
DEFAULT_QUEUE = "default"


def queues_of(pods: Sequence[Pod], objects: Iterable[Object]) -> tuple[list[str], bool]:
    """The queue of every pod, and whether these are the namespaces: where no pod names a queue and
    there are no Queues. objects: PodGroups and Queues among them."""
    known = list(objects)
    groups: dict[str, str] = {}
    kai_groups: dict[str, str] = {}
    for one in known:
        if isinstance(one, PodGroup):
            groups[one.key] = one.spec.queue or DEFAULT_QUEUE
        elif isinstance(one, KaiPodGroupObject):
            kai_groups[one.key] = one.spec.queue
    found = [_queue_of(pod, groups, kai_groups) for pod in pods]
    if any(found) or any(isinstance(one, (Queue, KaiQueueObject)) for one in known):
        return [queue or DEFAULT_QUEUE for queue in found], False
    return [pod.namespace for pod in pods], True


def _queue_of(pod: Pod, groups: Mapping[str, str], kai_groups: Mapping[str, str]) -> str:
    """The queue that a pod's group or its metadata names, "" for none."""
    annotations, labels = pod.metadata.annotations, pod.metadata.labels
    if not annotations and _KEYS.isdisjoint(labels):
        # Most pods of large clusters name none.
        return ""
    group = group_of(pod)
    if group:
        return groups.get(group, "")
    queue = kai_groups.get(f"{pod.namespace}/{annotations.get(KAI_GROUP_ANNOTATION, '')}", "")
    if queue:
        return queue
    named = (annotations.get(key) or labels.get(key, "") for key in QUEUE_KEYS)
    return next((queue for queue in named if queue), "")
