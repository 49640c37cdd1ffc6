"""Who manages which fields after an update or an apply.

Source: structured-merge-diff v6, merge/update.go; apimachinery v0.36, util/managedfields/internal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stowplan.apis.machinery.resource import Resource
from stowplan.apiserver.apply.field_set import (
    FieldSet,
    difference,
    intersection,
    paths,
    recursive_difference,
    union,
)
from stowplan.apiserver.apply.field_types import FieldType
from stowplan.apiserver.apply.manager_entries import (
    APPLY,
    UPDATE,
    ManagerFields,
    ManagerKey,
    Managers,
    fold_old_updates,
    manager_key,
)
from stowplan.apiserver.apply.typed_comparison import FieldComparison, compare
from stowplan.apiserver.apply.typed_merge import merged, under_schema, without_fields
from stowplan.apiserver.apply.typed_value import field_set, same_value, with_named_fields
from stowplan.apiserver.apply.versioned_forms import (
    VersionedForms,
    empty_object,
    field_type,
    served_form,
    stored_form,
)
from stowplan.objects.encoding.tree import Tree

BEFORE_FIRST_APPLY = "before-first-apply"
_SYSTEM_FIELDS = (
    "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation",
    "managedFields", "resourceVersion",
)  # fmt: skip
STRIPPED: FieldSet = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {".": {}, **{f"f:{name}": {} for name in _SYSTEM_FIELDS}},
}
"""Fields that no manager owns."""
Path = tuple[str, ...]


def ignored_fields(resets: FieldSet) -> list[str]:
    """The top-level fields that an endpoint does not take at all."""
    return [element[2:] for element, node in resets.items() if not node]


class ApplyConflict(Exception):
    """An apply changes fields of others. conflicts: by manager."""

    def __init__(self, conflicts: dict[ManagerKey, FieldSet]) -> None:
        super().__init__("conflicts")
        self.conflicts = conflicts

    def listed(self) -> list[tuple[ManagerKey, Path]]:
        """Every conflict; managers in the order of their identity."""
        managers = sorted(self.conflicts, key=ManagerKey.identity)
        return [(key, path) for key in managers for path in paths(self.conflicts[key])]


@dataclass(slots=True)
class FieldManager:
    """The rules for one endpoint.

    forms: of the kind. subresource: "" for the object itself. resets: fields that the endpoint does
    not take. now: the time of the write, as entries have it.
    """

    forms: VersionedForms
    subresource: str
    resets: FieldSet
    now: str

    @property
    def version(self) -> str:
        """The apiVersion of the request."""
        return self.forms.resource.api_version

    def key(self, manager: str, operation: str) -> ManagerKey:
        """The key of a manager at this endpoint."""
        return manager_key(manager or "unknown", operation, self.version, self.subresource)

    def _kept(self, fields: FieldSet) -> FieldSet:
        return recursive_difference(fields, self.resets) if self.resets else fields

    def _compare(self, resource: Resource, old: Tree | None, new: Tree) -> FieldComparison:
        before = empty_object(resource) if old is None else served_form(resource, old)
        after = served_form(resource, new)
        ignored = ignored_fields(self.resets)
        if ignored:
            # Whatever differs there is not taken.
            before, after = (
                {key: one for key, one in tree.items() if key not in ignored}
                for tree in (before, after)
            )
        found = compare(before, after, field_type(resource))
        return FieldComparison(self._kept(found.changed), self._kept(found.removed))

    # Updates

    def update(self, old: Tree | None, new: Tree, managers: Managers, manager: str) -> Managers:
        """The managers after a write other than an apply. Objects are in their stored form.

        old: None for a creation.
        """
        managers = self._under_schema(managers)
        found = self._compare(self.forms.resource, old, new)
        left, _ = self._without_changed(old, new, managers, found, None)
        if not found.changed:
            fold_old_updates(left)
            return left
        own = difference(self._kept(found.changed), STRIPPED)
        if own:
            key = self.key(manager, UPDATE)
            before = left.get(key)
            if before is not None:
                own = union(own, before.fields)
            left[key] = ManagerFields(own, self.version, self.now)
        fold_old_updates(left)
        return left

    def _without_changed(
        self,
        old: Tree | None,
        new: Tree,
        managers: Managers,
        own: FieldComparison,
        applier: ManagerKey | None,
    ) -> tuple[Managers, dict[ManagerKey, FieldSet]]:
        """The managers without fields that changed or were removed, and what they lose by change.

        own: the comparison in the version of the request. applier: keeps what changed.
        """
        compared = {self.version: own}
        left: Managers = {}
        conflicts: dict[ManagerKey, FieldSet] = {}
        for key, one in managers.items():
            if key == applier:
                left[key] = one
                continue
            found = compared.get(one.api_version)
            if found is None:
                resource = self.forms.find(one.api_version)
                if resource is None:
                    continue
                found = compared[one.api_version] = self._compare(resource, old, new)
            fields = one.fields
            lost = intersection(fields, found.changed) if found.changed else {}
            if lost:
                conflicts[key] = lost
                fields = difference(fields, lost)
            if found.removed:
                fields = difference(fields, found.removed)
            if fields:
                left[key] = one if fields is one.fields else one._replace(fields=fields)
        return left, conflicts

    def _under_schema(self, managers: Managers) -> Managers:
        """Sets that were written under an earlier schema of a custom kind."""
        if not self.forms.resource.custom:
            return managers
        made: Managers = {}
        for key, one in managers.items():
            resource = self.forms.find(one.api_version)
            if resource is not None:
                fields = under_schema(one.fields, field_type(resource))
                made[key] = one._replace(fields=fields)
        return made

    # Applies

    def begin_apply(self, live: Tree, managers: Managers) -> Managers:
        """The managers before an apply: what no manager owns belongs to `before-first-apply`."""
        return managers or self.update(None, live, managers, BEFORE_FIRST_APPLY)

    def apply(
        self, live: Tree | None, config: Tree, managers: Managers, manager: str, force: bool
    ) -> tuple[Tree | None, Managers]:
        """The object with a configuration applied, in the version of the request, and its managers.

        live: in its stored form, None if there is none. The answer None: nothing changes. Raises
        ApplyConflict, and ItemError for an item of a list without a path.
        """
        resource = self.forms.resource
        kind = field_type(resource)
        managers = dict(self._under_schema(managers))
        served = empty_object(resource) if live is None else served_form(resource, live)
        key = self.key(manager, APPLY)
        new = merged(served, config, kind)
        last = managers.get(key)
        fields = self._kept(field_set(config, kind))
        time = last.time if last is not None else ""
        managers[key] = ManagerFields(fields, self.version, time)
        # Where nothing is given up, nothing is pruned.
        if last is not None and difference(last.fields, fields):
            new = self._pruned(new, managers, last)
        stored = stored_form(resource, new)
        own = compare(served, new, kind)
        own = FieldComparison(self._kept(own.changed), self._kept(own.removed))
        left, conflicts = self._without_changed(live, stored, managers, own, key)
        if conflicts and not force:
            raise ApplyConflict(conflicts)
        unchanged = same_value(served, new)
        mine = difference(left.pop(key).fields, STRIPPED)
        if mine:
            left[key] = ManagerFields(mine, self.version, time if unchanged else self.now)
        return (None if unchanged else new), left

    def _pruned(self, new: Tree, managers: Managers, last: ManagerFields) -> Tree:
        """The merged object without what the manager applied before and no manager has now."""
        resource = self.forms.find(last.api_version)
        if resource is None:
            return new
        kind = field_type(resource)
        whole = self._converted(new, self.forms.resource, resource)
        named = with_named_fields(last.fields, kind)
        pruned = without_fields(whole, named, kind) or {}
        pruned = self._with_owned(whole, pruned, resource, managers)
        kept = with_named_fields(field_set(pruned, kind), kind)
        had = with_named_fields(field_set(whole, kind), kind)
        gone = intersection(difference(had, kept), named)
        left = without_fields(whole, gone, kind) or {}
        return self._converted(left, resource, self.forms.resource)

    def _with_owned(
        self, whole: Tree, pruned: Tree, resource: Resource, managers: Managers
    ) -> Tree:
        """The pruned object with what is in any manager's set; that of `resource` comes first."""
        by_version: dict[str, FieldSet] = {resource.api_version: {}}
        for one in managers.values():
            by_version[one.api_version] = union(by_version.get(one.api_version, {}), one.fields)
        at = resource
        for version, owned in by_version.items():
            other = self.forms.find(version)
            if other is None:
                continue
            whole, pruned = (self._converted(tree, at, other) for tree in (whole, pruned))
            at, kind = other, field_type(other)
            had = with_named_fields(field_set(whole, kind), kind)
            kept = with_named_fields(field_set(pruned, kind), kind)
            kept = union(kept, with_named_fields(owned, kind))
            pruned = without_fields(whole, difference(had, kept), kind) or {}
        return self._converted(pruned, at, resource)

    def _converted(self, obj: Tree, source: Resource, target: Resource) -> Tree:
        if source is target:
            return obj
        made = served_form(target, stored_form(source, obj))
        return {**made, "apiVersion": target.api_version}


def unchanged_fields(before: Any, live: Any, kind: FieldType) -> FieldSet:
    """The fields of a configuration that still have its values."""
    found = compare(before, live, kind)
    return difference(difference(field_set(before, kind), found.changed), found.removed)
