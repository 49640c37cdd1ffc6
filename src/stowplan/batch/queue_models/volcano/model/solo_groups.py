"""PodGroups of pods that name none: one for all pods of a controller, as Volcano's own makes them.

Where that controller runs, pods have its annotation; elsewhere sessions count such groups without
an object.

Source: volcano master of 2026-08-20, pkg/controllers/podgroup/pg_controller_handler.go,
pkg/controllers/apis/helpers.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.volcano_session_job import (
    MAX_UNAVAILABLE,
    MIN_AVAILABLE,
    PENDING_PHASE,
)
from stowplan.batch.queue_models.volcano.volcano_task import PREEMPTABLE, REVOCABLE_ZONE
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.objects.podgroup import (
    VOLCANO_API_VERSION,
    VOLCANO_QUEUE_ANNOTATION,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
)
from stowplan.objects.quantity import Quantity, format_quantity

PREFIX = "podgroup-"
COOLDOWN_TIME = "volcano.sh/cooldown-time"

_ANNOTATIONS = (PREEMPTABLE, COOLDOWN_TIME, REVOCABLE_ZONE, MIN_AVAILABLE, MAX_UNAVAILABLE)
_LABELS = (PREEMPTABLE, COOLDOWN_TIME)


def solo_group_key(pod: Pod) -> str:
    """Namespace and name of the group of a pod that names none: by its controller's uid, or its
    own; by a name where objects from files have no uid."""
    owner = pod.controller
    if owner is not None:
        return f"{pod.namespace}/{PREFIX}{owner.uid or f'{owner.kind}-{owner.name}'.lower()}"
    own = pod.metadata.name if pod.uid == pod.key else pod.uid
    return f"{pod.namespace}/{PREFIX}{own}"


def solo_group(pod: Pod) -> PodGroup:
    """The group of such a pod."""
    meta, spec = pod.metadata, pod.spec
    name = solo_group_key(pod).partition("/")[2]
    annotations = {key: meta.annotations[key] for key in _ANNOTATIONS if key in meta.annotations}
    labels = {key: meta.labels[key] for key in _LABELS if key in meta.labels}
    return PodGroup(
        metadata=ObjectMeta(
            name=name,
            namespace=pod.namespace,
            annotations=annotations,
            labels=labels,
            creation_timestamp=meta.creation_timestamp,
        ),
        api_version=VOLCANO_API_VERSION,
        spec=PodGroupSpec(
            min_member=1,
            queue=meta.annotations.get(VOLCANO_QUEUE_ANNOTATION, ""),
            priority_class_name=spec.priority_class_name,
            min_resources=_least(pod),
        ),
        status=PodGroupStatus(phase=PENDING_PHASE),
    )


def _least(pod: Pod) -> dict[str, Quantity]:
    amounts = {name: format_quantity(name, n) for name, n in requested(pod).items()}
    return {**amounts, "pods": "1"}
