"""DefaultTolerationSeconds: pods tolerate not-ready and unreachable nodes for five minutes.

Source: kube-apiserver v1.36, plugin/pkg/admission/defaulttolerationseconds.
"""

from __future__ import annotations

from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import AdmissionPluginBase, targets
from stowplan.objects.encoding.tree import Tree

_KEYS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SECONDS = 300


class DefaultTolerationSeconds(AdmissionPluginBase):
    """Adds the two tolerations to pods that have no toleration of the taint."""

    repeatable = True
    only_objects = True
    paths = ("pods",)

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Add up to two tolerations to a pod that is created or updated."""
        if obj is None or not targets(call, "pods"):
            return
        spec = obj.setdefault("spec", {})
        given = list(spec.get("tolerations") or ())
        wanted = [key for key in _KEYS if not any(_tolerates_key(each, key) for each in given)]
        if wanted:
            spec["tolerations"] = [*given, *(_toleration(key) for key in wanted)]


def _tolerates_key(toleration: Tree, key: str) -> bool:
    no_execute = toleration.get("effect", "") in ("", "NoExecute")
    return no_execute and toleration.get("key", "") in ("", key)


def _toleration(key: str) -> Tree:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _SECONDS}
