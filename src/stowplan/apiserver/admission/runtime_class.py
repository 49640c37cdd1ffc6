"""RuntimeClass: overhead and scheduling constraints of a pod's runtime class.

Source: kube-apiserver v1.36, plugin/pkg/admission/runtimeclass.
"""

from __future__ import annotations

from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    admission_forbidden,
    stored_object,
    targets,
)
from stowplan.objects.encoding.tree import Tree

RUNTIME_CLASSES_PATH = "node.k8s.io/runtimeclasses"
_OVERHEAD_DIFFERS = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
_OVERHEAD_WITHOUT_CLASS = (
    "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
)


class RuntimeClassAdmission(AdmissionPluginBase):
    """New pods get the overhead, node selector and tolerations of their runtime class."""

    repeatable = True
    only_objects = True
    paths = ("pods",)

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Set overhead, node selector and tolerations of a new pod."""
        if obj is None or old is not None or not targets(call, "pods"):
            return
        found = _runtime_class_of(call, obj)
        overhead = (found or {}).get("overhead")
        spec = obj["spec"]
        if overhead is not None:
            fixed = overhead.get("podFixed", {})
            if spec.get("overhead") and spec["overhead"] != fixed:
                raise admission_forbidden(call, obj, _OVERHEAD_DIFFERS)
            spec["overhead"] = dict(fixed)
        scheduling = (found or {}).get("scheduling")
        if scheduling is not None:
            _apply_scheduling(call, obj, scheduling)

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Reject an overhead that is not that of the class."""
        if obj is None or old is not None or not targets(call, "pods"):
            return
        if "runtimeClassName" not in obj["spec"] and "overhead" not in obj["spec"]:
            return
        overhead = (_runtime_class_of(call, obj) or {}).get("overhead")
        if overhead is not None:
            if obj["spec"].get("overhead", {}) != overhead.get("podFixed", {}):
                raise admission_forbidden(call, obj, _OVERHEAD_DIFFERS)
        elif "overhead" in obj["spec"]:
            raise admission_forbidden(call, obj, _OVERHEAD_WITHOUT_CLASS)


def _runtime_class_of(call: ApiCall, obj: Tree) -> Tree | None:
    name = obj["spec"].get("runtimeClassName")
    if name is None:
        return None
    found = stored_object(call, RUNTIME_CLASSES_PATH, "", name)
    if found is None:
        raise admission_forbidden(call, obj, f'pod rejected: RuntimeClass "{name}" not found')
    return found


def _apply_scheduling(call: ApiCall, obj: Tree, scheduling: Tree) -> None:
    spec = obj["spec"]
    selector = spec.get("nodeSelector", {})
    for key, value in scheduling.get("nodeSelector", {}).items():
        if selector.get(key, value) != value:
            why = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise admission_forbidden(call, obj, why)
        selector = {**selector, key: value}
    if selector:
        spec["nodeSelector"] = selector
    merged = list(spec.get("tolerations", ()))
    merged += [one for one in scheduling.get("tolerations", ()) if one not in merged]
    if merged:
        spec["tolerations"] = merged
