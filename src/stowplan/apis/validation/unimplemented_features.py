"""Features that are accepted and stored, and have no effect yet.

The response to a create has a warning, and the object gets an event
(`controllers.unimplemented_events`).
"""

from __future__ import annotations

from stowplan.apis.machinery.resource import ApiCall
from stowplan.objects.encoding.tree import Tree

_CEL_TEXT = "CEL selectors of devices are stored, but not evaluated"
_DEVICES = (
    "resource.k8s.io/deviceclasses",
    "resource.k8s.io/resourceclaims",
    "resource.k8s.io/resourceclaimtemplates",
)
PATHS = frozenset(_DEVICES)
"""The kinds whose objects may have such features."""


def unimplemented_warnings(path: str, obj: Tree) -> list[str]:
    """Texts about the features of an object that have no effect."""
    if path in _DEVICES and _has_field(obj.get("spec"), "cel"):
        return [_CEL_TEXT]
    return []


def _has_field(tree: object, name: str) -> bool:
    """True if a field of this name is set anywhere in a tree."""
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


class UnimplementedFeatureWarnings:
    """`resource.AdmissionPlugin`: warns about features that have no effect."""

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Changes nothing."""

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Rejects nothing; adds the header `Warning: 299 - "..."`."""
        if obj is not None and old is None and not call.subresource:
            call.warnings.extend(unimplemented_warnings(call.resource.path, obj))
