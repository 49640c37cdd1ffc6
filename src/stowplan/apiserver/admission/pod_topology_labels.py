"""PodTopologyLabels: a bound pod gets the zone and region labels of its node.

Source: kube-apiserver v1.36, plugin/pkg/admission/podtopologylabels.
"""

from __future__ import annotations

from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import AdmissionPluginBase, stored_object
from stowplan.objects.encoding.tree import Tree

COPIED_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class PodTopologyLabels(AdmissionPluginBase):
    """Sets the labels on bindings, which copy them to their pods, and on pods created with a node.

    The resource `bindings` is left out, as in the original.
    """

    repeatable = True
    paths = ("pods",)

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Copy the two labels of the node, replacing others."""
        if obj is None or old is not None:
            return
        node = _node_of(call, obj)
        found = stored_object(call, "nodes", "", node) if node else None
        labels = ((found or {}).get("metadata") or {}).get("labels") or {}
        copied = {name: labels[name] for name in COPIED_LABELS if name in labels}
        if copied:
            meta = obj.setdefault("metadata", {})
            meta["labels"] = {**(meta.get("labels") or {}), **copied}


def _node_of(call: ApiCall, obj: Tree) -> str:
    path = call.resource.path
    if path == "pods" and call.subresource == "binding":
        target = obj.get("target") or {}
        return str(target.get("name", "")) if target.get("kind") == "Node" else ""
    if path == "pods" and not call.subresource:
        return str((obj.get("spec") or {}).get("nodeName") or "")
    return ""
