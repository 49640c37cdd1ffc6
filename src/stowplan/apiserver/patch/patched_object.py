"""Functions from a stored object to the one that a PATCH request stores.

Source: apiserver v0.36, endpoints/handlers/patch.go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.object_meta import set_namespace
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.schema import KindSchema
from stowplan.apiserver.apply.apply_patch import ApplyBody, ApplyPatch
from stowplan.apiserver.apply.field_set import in_order
from stowplan.apiserver.apply.managed_fields import ManagedFields
from stowplan.apiserver.patch import patch_request
from stowplan.apiserver.storage.registry_store import check_name
from stowplan.objects.encoding.tree import Tree

MakeObject = Callable[[Tree], Tree]
_ENTRIES = "managedFields"


@dataclass(frozen=True, slots=True)
class PatchedObject:
    """A patch of an object. raw: the body. kind: its media type. patch: the decoded body.

    mismatch: see `patch_request.apply_patch`.
    """

    call: ApiCall
    raw: bytes
    kind: str
    patch: Callable[[], Any]
    mismatch: Callable[[Tree], str]

    def make(self, old: Tree) -> Tree:
        """The object to store. Raises ApiError."""
        is_apart = _ENTRIES.encode() not in self.raw
        if is_apart:
            # They stay as they are, and take as long to decode as the rest of the object.
            old["metadata"].pop(_ENTRIES, None)
        try:
            return self._made(old, self.patch())
        except ApiError:
            if not is_apart:
                raise
        # Errors print the whole object.
        call = self.call
        mode = call.field_validation
        whole = call.objects.get(call.resource, call.namespace, call.name)
        if whole is not None:
            whole = _as_printed(whole, call)
        again = patch_request.decode_patch(self.raw, self.kind, mode)
        return self._made(whole or old, again)

    def _made(self, old: Tree, patch: Any) -> Tree:
        call, alias = self.call, self.call.resource.alias
        before = old if alias is None else alias.from_stored(old)
        if call.resource.custom:
            before = {**before, "apiVersion": call.resource.api_version}
        new, warned = patch_request.apply_patch(
            before, patch, self.kind, call.resource.schema, call.field_validation, self.mismatch
        )
        call.warnings.extend(warned)
        set_namespace_and_check(new, call)
        return new if alias is None else alias.to_stored(new)


def _as_printed(whole: Tree, call: ApiCall) -> Tree:
    """An object with its keys in the order in which errors print them."""
    for entry in whole["metadata"].get(_ENTRIES) or ():
        entry["fieldsV1"] = in_order(entry["fieldsV1"])
    schema = call.resource.schema
    if not isinstance(schema, KindSchema):
        return whole
    head: Tree = {key: whole[key] for key in ("apiVersion", "kind") if key in whole}
    return {**head, **schema.struct.in_order(whole)}


def applied_object(
    call: ApiCall, fields: ManagedFields | None, body: ApplyBody | ApiError, force: bool
) -> MakeObject:
    """The function of a server-side apply. Raises ApiError."""
    if fields is None:
        raise patch_request.apply_unsupported()
    patch = ApplyPatch(call, fields.manager_of(call), body, force, call.resource)

    def make(old: Tree) -> Tree:
        new = patch.make(old)
        set_namespace_and_check(new, call)
        return new

    return make


def set_namespace_and_check(obj: Tree, call: ApiCall) -> None:
    """Set the namespace of the path; raises ApiError 400 if name or namespace are others."""
    set_namespace(obj["metadata"], call.namespace if call.resource.namespaced else "")
    check_name(obj, call.name, call.namespace)
