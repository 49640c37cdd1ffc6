"""What is accepted and stored as the API server does, and has no effect here yet.

Who creates such an object is told so at once, by a warning; and whoever looks at it later, by an
event (`controllers.unimplemented`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stowplan.apis.machinery.resource import ApiCall

Tree = dict[str, Any]

_NO_CONTROLLER = "no controller acts on it: it gets no pods"
_KINDS: Mapping[str, str] = {
    "apps/statefulsets": f"StatefulSet: stored, but {_NO_CONTROLLER}",
    "apps/daemonsets": f"DaemonSet: stored, but {_NO_CONTROLLER}",
    "replicationcontrollers": f"ReplicationController: stored, but {_NO_CONTROLLER}",
    "batch/cronjobs": "CronJob: stored, but no controller acts on it: it gets no Jobs",
    "resourcequotas": "ResourceQuota: stored, but not enforced: nothing is counted or refused",
    "limitranges": "LimitRange: stored, but not enforced: no defaults are set, nothing is refused",
}
_RULES = "x-kubernetes-validations"
_RULES_TEXT = f"{_RULES}: CEL rules are stored, but not evaluated"
_CEL_TEXT = "CEL selectors of devices are stored, but not evaluated"
_DEFINITIONS = "apiextensions.k8s.io/customresourcedefinitions"
_DEVICES = (
    "resource.k8s.io/deviceclasses",
    "resource.k8s.io/resourceclaims",
    "resource.k8s.io/resourceclaimtemplates",
)
PATHS = frozenset({*_KINDS, *_DEVICES, _DEFINITIONS})
"""Of the kinds of which objects may be, or hold, something that has no effect."""


def unimplemented_warnings(path: str, obj: Tree) -> list[str]:
    """What of an object of a resource path has no effect, and what follows; [] if nothing."""
    if path in _KINDS:
        return [_KINDS[path]]
    if path == _DEFINITIONS and _has_field(obj.get("spec"), _RULES):
        return [_RULES_TEXT]
    if path in _DEVICES and _has_field(obj.get("spec"), "cel"):
        return [_CEL_TEXT]
    return []


def _has_field(tree: object, name: str) -> bool:
    """True if a field of this name has a value anywhere in a tree."""
    waiting = [tree]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if each.get(name):
                return True
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return False


class UnimplementedKinds:
    """`resource.AdmissionPlugin`: warns who creates something that has no effect."""

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Nothing is changed."""

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Nothing is refused; the warning is the server's, `Warning: 299 - "..."`."""
        if obj is not None and old is None and not call.subresource:
            call.warnings.extend(unimplemented_warnings(call.resource.path, obj))
