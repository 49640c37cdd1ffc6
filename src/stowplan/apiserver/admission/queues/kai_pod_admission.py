"""Pods of KAI-Scheduler: what its webhook refuses of their annotations about cards."""

from __future__ import annotations

from stowplan.apis.custom.kai_pod_checks import pod_card_causes
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import AdmissionPluginBase, admission_forbidden
from stowplan.objects.encoding.tree import Tree


class KaiPodAdmission(AdmissionPluginBase):
    """Refuses pods with annotations that the scheduler would read another way than they say."""

    repeatable = True
    paths = ("pods",)
    only_objects = True

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403."""
        if obj is None or (old is not None and _notes(obj) == _notes(old)):
            return
        texts = [f"{cause.field}: {cause.message}" for cause in pod_card_causes(obj)]
        if texts:
            raise admission_forbidden(call, obj, "; ".join(texts))


def _notes(pod: Tree) -> Tree:
    notes: Tree = pod["metadata"].get("annotations") or {}
    return notes
