"""Writes of the scale subresource: the view of an object with its entries of managedFields.

Source: kubernetes v1.36, pkg/registry/apps, scaleUpdatedObjectInfo; apiextensions-apiserver v0.36,
registry/customresource/etcd.go.
"""

from __future__ import annotations

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.resource import ApiCall, SubresourceView
from stowplan.apiserver.apply.apply_patch import ApplyBody, ApplyPatch
from stowplan.apiserver.apply.managed_fields import ManagedFields
from stowplan.apiserver.apply.manager_entries import read_entries, write_entries
from stowplan.apiserver.apply.scale_fields import (
    SCALE_VERSION,
    ScaleEntries,
    replicas_paths,
    scale_resource,
)
from stowplan.objects.encoding.tree import Tree


class ScaleWrite:
    """One write. fields: None in a server without managedFields."""

    def __init__(self, view: SubresourceView, call: ApiCall, fields: ManagedFields | None) -> None:
        self._view = view
        self._call = call
        self._fields = fields

    def scale_of(self, obj: Tree) -> Tree:
        """The scale of an object, with the entries that have its replicas."""
        scale = self._view.read(obj, self._call)
        entries = self._entries(obj)
        listed = entries.of_scale() if entries is not None else []
        if not listed:
            return scale
        return {**scale, "metadata": {**scale["metadata"], "managedFields": listed}}

    def _entries(self, obj: Tree) -> ScaleEntries | None:
        if self._fields is None:
            return None
        resource = self._call.resource
        paths = replicas_paths(self._fields.registry, resource)
        return ScaleEntries(obj, resource.api_version, paths)

    def applied(self, obj: Tree, body: ApplyBody | ApiError, force: bool) -> Tree:
        """The scale with a configuration applied. Raises ApiError."""
        if self._fields is None:
            raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        rules = self._fields.scale_manager(self._call)
        # The original cannot convert the scale of a custom kind back.
        refusal = ""
        if self._call.resource.custom:
            refusal = f"request to convert CR to an invalid group/version: {SCALE_VERSION}"
        patch = ApplyPatch(self._call, rules, body, force, scale_resource(), refusal)
        return patch.make(self.scale_of(obj))

    def written(self, obj: Tree, scale: Tree, is_applied: bool) -> Tree:
        """A copy of the object with a new scale. is_applied: of `applied`."""
        made = self._view.write(obj, scale, self._call)
        entries = self._entries(obj)
        if entries is None or self._fields is None:
            return made
        listed = scale["metadata"].get("managedFields") or []
        if not is_applied:
            rules = self._fields.scale_manager(self._call)
            managers = read_entries(entries.of_scale())
            # An object whose last manager left is not tracked before its next apply.
            if managers:
                old = self._view.read(obj, self._call)
                managers = rules.update(old, scale, managers, self._call.manager)
            listed = write_entries(managers)
        kept = entries.of_parent(listed)
        meta = {k: one for k, one in made["metadata"].items() if k != "managedFields"}
        if kept:
            meta["managedFields"] = kept
        return {**made, "metadata": meta}
