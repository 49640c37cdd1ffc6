"""Queues of KAI-Scheduler: what its webhook refuses of their deletion.

Differs: KAI looks at `status.childQueues` of the queue, here at the parents that queues state.

Source: KAI-Scheduler, pkg/admission/webhook/queuehooks/queue_validator.go.
"""

from __future__ import annotations

from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    admission_forbidden,
    stored_objects,
)
from stowplan.objects.encoding.tree import Tree

QUEUES = "scheduling.run.ai/queues"


class KaiQueueAdmission(AdmissionPluginBase):
    """Refuses to delete a queue that has others below it."""

    paths = (QUEUES,)
    only_objects = True

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403."""
        if obj is not None:
            return
        children = sorted(
            one["metadata"]["name"]
            for one in stored_objects(call, QUEUES)
            if (one.get("spec") or {}).get("parentQueue") == call.name
            and one["metadata"]["name"] != call.name
        )
        if children:
            names = " ".join(children)
            why = f"cannot delete queue {call.name}: it has child queues [{names}]"
            raise admission_forbidden(call, obj, why)
