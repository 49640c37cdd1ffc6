"""DefaultTolerationSeconds: a pod may stay five minutes on a node that stopped answering.

Source: kube-apiserver v1.36, plugin/pkg/admission/defaulttolerationseconds.
"""

from __future__ import annotations

from typing import Any

from stowplan.cluster.admission.plugin import Plugin, is_about
from stowplan.cluster.resource import Call

Tree = dict[str, Any]

_KEYS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_SECONDS = 300


class DefaultTolerations(Plugin):
    """Adds the tolerations that a pod does not have in some form already."""

    def admit(self, call: Call, obj: Tree | None, old: Tree | None) -> None:
        """Add up to two tolerations to a pod that is created or updated."""
        if obj is None or not is_about(call, "pods"):
            return
        spec = obj.setdefault("spec", {})
        told = list(spec.get("tolerations") or ())
        wanted = [key for key in _KEYS if not any(_covers(each, key) for each in told)]
        if wanted:
            spec["tolerations"] = [*told, *(_toleration(key) for key in wanted)]


def _covers(toleration: Tree, key: str) -> bool:
    no_execute = toleration.get("effect", "") in ("", "NoExecute")
    return no_execute and toleration.get("key", "") in ("", key)


def _toleration(key: str) -> Tree:
    return {
        "key": key,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": _SECONDS,
    }
