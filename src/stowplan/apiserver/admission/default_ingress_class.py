"""DefaultIngressClass: the class of ingresses that name none.

Source: kube-apiserver v1.36, plugin/pkg/admission/network/defaultingressclass.
"""

from __future__ import annotations

from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.networking.ingress import CLASS_ANNOTATION
from stowplan.apis.networking.ingress_class import PATH, is_default_class
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    stored_objects,
    targets,
)
from stowplan.objects.encoding.tree import Tree

INGRESSES = "networking.k8s.io/ingresses"


class DefaultIngressClass(AdmissionPluginBase):
    """Sets spec.ingressClassName of new ingresses; of several defaults the newest."""

    repeatable = True
    paths = (INGRESSES,)

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        if obj is None or old is not None or not targets(call, INGRESSES):
            return
        if "ingressClassName" in obj["spec"]:
            return
        if CLASS_ANNOTATION in (obj["metadata"].get("annotations") or {}):
            return
        classes = sorted(
            (one["metadata"] for one in stored_objects(call, PATH) if is_default_class(one)),
            key=lambda meta: meta["name"],
        )
        if classes:
            newest = max(classes, key=lambda meta: meta["creationTimestamp"])
            obj["spec"]["ingressClassName"] = newest["name"]
