"""Objects of Volcano, KAI-Scheduler and Kueue are checked as those in files are.

Definitions say types only; the rest of what the originals' definitions and webhooks refuse is here.
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.apis.custom.custom_kinds import custom_causes, custom_update_causes, custom_warnings
from stowplan.apis.machinery.errors import bounded_causes, invalid_object
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import AdmissionPluginBase, typed
from stowplan.objects.encoding.tree import Tree

_NOT_CHECKED = ("metadata", "status")


def checks_of(definitions: Iterable[Tree]) -> CustomObjectChecks:
    """Checks of the kinds among objects that are definitions."""
    specs = (one["spec"] for one in definitions if one.get("kind") == "CustomResourceDefinition")
    return CustomObjectChecks(f"{spec['group']}/{spec['names']['plural']}" for spec in specs)


class CustomObjectChecks(AdmissionPluginBase):
    """Refuses objects that the kinds' own servers would refuse."""

    only_objects = True

    def __init__(self, paths: Iterable[str]) -> None:
        """paths: of the kinds; there must be one."""
        self.paths = tuple(paths)

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 422 with all causes; those of an object that was stored before are
        none."""
        if obj is None or (old is not None and _content(obj) == _content(old)):
            return
        resource = call.resource
        tree, stored = typed(obj, call), None if old is None else typed(old, call)
        before = set() if stored is None else set(custom_causes(stored))
        causes = [one for one in bounded_causes(custom_causes(tree)) if one not in before]
        if stored is not None and not before and not causes:
            causes = list(custom_update_causes(tree, stored))
        if causes:
            name = obj["metadata"].get("name", "")
            raise invalid_object(resource.kind_group, resource.kind, name, causes)
        call.warnings.extend(custom_warnings(tree))


def _content(obj: Tree) -> Tree:
    return {key: value for key, value in obj.items() if key not in _NOT_CHECKED}
