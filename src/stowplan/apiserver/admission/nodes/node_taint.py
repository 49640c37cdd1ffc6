"""TaintNodesByCondition: new nodes are not ready.

Source: kube-apiserver v1.36, plugin/pkg/admission/nodetaint.
"""

from __future__ import annotations

from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import AdmissionPluginBase, targets
from stowplan.objects.encoding.tree import Tree

NOT_READY = "node.kubernetes.io/not-ready"


class NodeTaint(AdmissionPluginBase):
    """Taints new nodes; the node controller removes the taint."""

    repeatable = True
    paths = ("nodes",)

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        if obj is None or old is not None or not targets(call, "nodes"):
            return
        taints = obj["spec"].get("taints") or []
        if not any((one["key"], one["effect"]) == (NOT_READY, "NoSchedule") for one in taints):
            obj["spec"]["taints"] = [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]
