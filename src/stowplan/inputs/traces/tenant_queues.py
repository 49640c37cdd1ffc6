"""Queues of tenants: where the files have a Queue with a tenant's name, the tenant's pods name it.

Each scheduler reads another name: Volcano an annotation of pods without a group, KAI a label. A
trace then divides among its tenants as the Queues say, and without them as it would before.

Source: Volcano, pkg/controllers/podgroup; KAI-Scheduler, pkg/podgrouper.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from stowplan.inputs.traces.trace_jobs import QUEUE_ANNOTATION
from stowplan.objects.kai.grouping.owner_pod_group import QUEUE_LABEL
from stowplan.objects.kai.kai_kinds import KaiQueueObject
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import VOLCANO_API_VERSION, VOLCANO_QUEUE_ANNOTATION, Queue


class TenantQueues:
    """The queues of files, by the scheduler that reads them."""

    def __init__(self, queues: Iterable[Queue], kai_queues: Iterable[KaiQueueObject]) -> None:
        self._of_volcano = {one.name for one in queues if one.api_version == VOLCANO_API_VERSION}
        self._of_kai = {one.name for one in kai_queues}

    def named_by(self, found: Object) -> Object:
        """An object of a trace; a pod with its tenant's queues, where there are any."""
        if not isinstance(found, Pod):
            return found
        meta = found.metadata
        tenant = meta.annotations.get(QUEUE_ANNOTATION, "")
        if tenant in self._of_volcano:
            named = {VOLCANO_QUEUE_ANNOTATION: tenant}
            meta = replace(meta, annotations={**meta.annotations, **named})
        if tenant in self._of_kai:
            meta = replace(meta, labels={**meta.labels, QUEUE_LABEL: tenant})
        return found if meta is found.metadata else replace(found, metadata=meta)
