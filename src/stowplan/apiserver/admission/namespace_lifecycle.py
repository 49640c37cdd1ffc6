"""NamespaceLifecycle: no objects are created in missing or terminating namespaces.

Source: apiserver v1.36, pkg/admission/plugin/namespace/lifecycle.
"""

from __future__ import annotations

from stowplan.apis.machinery.errors import forbidden, not_found
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    admission_forbidden,
    stored_object,
)
from stowplan.objects.encoding.tree import Tree

_REVIEWS = "authorization.k8s.io/localsubjectaccessreviews"
PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle(AdmissionPluginBase):
    """Rejects deletion of system namespaces and creates in missing or terminating ones."""

    repeatable = True

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403 or 404."""
        if call.resource.path == "namespaces":
            if obj is None and call.name in PROTECTED_NAMESPACES:
                raise forbidden("", "namespaces", call.name, "this namespace may not be deleted")
            return
        # Access reviews are answered for any namespace.
        if not call.namespace or obj is None or call.resource.path == _REVIEWS:
            return
        namespace = stored_object(call, "namespaces", "", call.namespace)
        if namespace is None:
            raise not_found("", "namespaces", call.namespace)
        phase = (namespace.get("status") or {}).get("phase")
        if old is None and phase == "Terminating":
            name = call.namespace
            why = f"unable to create new content in namespace {name} because it is being terminated"
            error = admission_forbidden(call, obj, why)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {name} is being terminated",
                "field": "metadata.namespace",
            }
            error.details = {**(error.details or {}), "causes": [cause]}
            raise error
