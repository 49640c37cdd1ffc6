"""managedFields of every write: the hooks by which the store keeps them.

Source: apimachinery v0.36, util/managedfields/internal/fieldmanager.go; apiserver v0.36,
endpoints/handlers/fieldmanager; kubernetes v1.36, GetResetFields of the strategies.
"""

from __future__ import annotations

from functools import lru_cache

from stowplan.apis.machinery.resource import ApiCall, Resource, ResourceRegistry
from stowplan.apis.machinery.stored_form import encode
from stowplan.apis.machinery.timestamps import format_time
from stowplan.apiserver.apply.field_manager import STRIPPED, FieldManager
from stowplan.apiserver.apply.field_set import FieldSet
from stowplan.apiserver.apply.field_types import FieldType
from stowplan.apiserver.apply.manager_entries import (
    UPDATE,
    InvalidEntries,
    ManagerFields,
    Managers,
    is_reset,
    read_entries,
    same_but_times,
    write_entries,
)
from stowplan.apiserver.apply.scale_fields import SCALE, scale_resource
from stowplan.apiserver.apply.typed_comparison import NewObjectFields
from stowplan.apiserver.apply.versioned_forms import (
    VersionedForms,
    empty_object,
    field_type,
    served_form,
)
from stowplan.objects.encoding.tree import Tree

_STATUS: FieldSet = {"f:status": {}}
_SPEC: FieldSet = {"f:spec": {}}
_SPEC_AND_METADATA: FieldSet = {"f:spec": {}, "f:metadata": {}}
_DEPLOYMENT_STATUS: FieldSet = {"f:spec": {}, "f:metadata": {"f:labels": {}}}
_POD_STATUS: FieldSet = {
    "f:spec": {},
    "f:metadata": {"f:deletionTimestamp": {}, "f:ownerReferences": {}},
}
_STATUS_RESETS = {
    "pods": _POD_STATUS,
    "apps/deployments": _DEPLOYMENT_STATUS,
    "resource.k8s.io/resourceclaims": _SPEC_AND_METADATA,
    "storage.k8s.io/volumeattachments": _SPEC_AND_METADATA,
    "admissionregistration.k8s.io/validatingadmissionpolicies": _SPEC_AND_METADATA,
    "flowcontrol.apiserver.k8s.io/flowschemas": _SPEC_AND_METADATA,
    "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations": _SPEC_AND_METADATA,
    "networking.k8s.io/servicecidrs": _SPEC_AND_METADATA,
    "certificates.k8s.io/certificatesigningrequests": {
        "f:spec": {},
        "f:status": {"f:conditions": {}},
    },
}
"""What a status endpoint does not take, where it is more than `spec`."""
_SUBRESOURCE_RESETS: dict[str, FieldSet] = {
    "finalize": _STATUS,
    "approval": {"f:spec": {}, "f:status": {"f:certificate": {}}},
}
_MAIN_RESETS: dict[str, FieldSet] = {
    "certificates.k8s.io/certificatesigningrequests": {"f:spec": {}, "f:status": {}}
}


_MANAGER_LETTERS_MAX = 32
"""What is longer is to be validated."""
_ENTRY = (
    b'[{"manager":%b,"operation":"Update","apiVersion":%b,"time":"%b","fieldsType":"FieldsV1"'
    b',"fieldsV1":%b}]'
)


def reset_fields(resource: Resource, subresource: str) -> FieldSet:
    """The fields that an endpoint ignores; writing through it makes no manager own them."""
    if subresource == "status":
        default = _SPEC_AND_METADATA if resource.custom else _SPEC
        return _STATUS_RESETS.get(resource.path, default)
    if subresource:
        return _SUBRESOURCE_RESETS.get(subresource, {})
    default = _STATUS if "status" in resource.subresources else {}
    return _MAIN_RESETS.get(resource.path, default)


class ManagedFields:
    """Keeps `metadata.managedFields` of the objects that a store writes."""

    def __init__(self, registry: ResourceRegistry) -> None:
        self.registry = registry
        self._new = NewObjectFields()
        self._rules: dict[tuple[Resource, str], tuple[VersionedForms, FieldSet]] = {}

    def manager_of(self, call: ApiCall) -> FieldManager:
        """The rules for the endpoint of a call."""
        key = call.resource, call.subresource
        rules = self._rules.get(key)
        if rules is None:
            rules = VersionedForms(self.registry, call.resource), reset_fields(*key)
            # The versions of a custom kind may change.
            if not call.resource.custom:
                self._rules[key] = rules
        forms, resets = rules
        return FieldManager(forms, call.subresource, resets, format_time(call.now))

    def scale_manager(self, call: ApiCall) -> FieldManager:
        """The rules for the scale of an object."""
        forms = VersionedForms(self.registry, scale_resource())
        return FieldManager(forms, SCALE, {}, format_time(call.now))

    def created(self, call: ApiCall, obj: Tree) -> None:
        """Record the fields of a new object. obj: in its stored form; it is changed."""
        meta = obj["metadata"]
        given = meta.pop("managedFields", None)
        if given and not is_reset(given):
            managers = _read_sent(given)
            if managers:
                kept = self.manager_of(call).update(None, obj, managers, call.manager)
                _put(meta, kept)
                return
        resource = call.resource
        empty, kind, skipped = _rules_of_new(resource)
        own = self._new.fields(served_form(resource, obj), empty, kind, skipped)
        if own:
            version = resource.api_version
            entry = {
                "manager": call.manager or "unknown",
                "operation": UPDATE,
                "apiVersion": version,
                "time": format_time(call.now),
                "fieldsType": "FieldsV1",
                "fieldsV1": own,
            }
            meta["managedFields"] = [entry]

    def new_entries(self, call: ApiCall, obj: Tree) -> bytes:
        """What `created` sets, as bytes; empty, and nothing is done, for objects that have some, of
        which no field is owned, or with a long manager."""
        meta, manager = obj["metadata"], call.manager or "unknown"
        if meta.get("managedFields") or len(manager) > _MANAGER_LETTERS_MAX:
            return b""
        resource = call.resource
        own = self._new.text(obj, *_rules_of_new(resource))
        if own == b"{}":
            return b""
        meta.pop("managedFields", None)
        return _ENTRY % (
            encode(manager), encode(resource.api_version), format_time(call.now).encode(), own,
        )  # fmt: skip

    def updated(self, call: ApiCall, new: Tree, old: Tree) -> None:
        """Record what an update changes. new, old: in stored form; `new` is changed."""
        meta = new["metadata"]
        given = meta.pop("managedFields", None)
        before = old["metadata"].get("managedFields")
        managers = self._begin(given, before, bool(call.subresource))
        if not managers:
            return
        bare = {
            **old,
            "metadata": {k: v for k, v in old["metadata"].items() if k != "managedFields"},
        }
        after = self.manager_of(call).update(bare, new, managers, call.manager)
        _put(meta, after)

    def _begin(self, given: object, before: list[Tree] | None, subresource: bool) -> Managers:
        """The managers that an update begins with."""
        if not subresource:
            if is_reset(given):
                return {}
            if given and given != before:
                sent = _read_sent(given)
                if sent:
                    return sent
        return _read_stored(before)

    def settle(self, new: Tree, old: Tree) -> None:
        """Keep the stored times if nothing but times of managedFields would change."""
        meta, before = new["metadata"], old["metadata"].get("managedFields")
        after = meta.get("managedFields")
        if not before or not after or before == after or not same_but_times(after, before):
            return
        if {**meta, "managedFields": before} == old["metadata"] and _without_meta(
            new
        ) == _without_meta(old):
            meta["managedFields"] = before


@lru_cache(maxsize=512)
def _rules_of_new(resource: Resource) -> tuple[Tree, FieldType, FieldSet]:
    """What new objects are compared with, their type, and the fields without an owner."""
    skipped = {**STRIPPED, **reset_fields(resource, "")}
    return empty_object(resource), field_type(resource), skipped


def _without_meta(obj: Tree) -> Tree:
    return {key: one for key, one in obj.items() if key != "metadata"}


def _read_sent(entries: object) -> Managers:
    """The managers of entries that a client has sent; none if they cannot be read."""
    try:
        return read_entries(entries, trusted=False)
    except InvalidEntries:
        return {}


def _read_stored(entries: list[Tree] | None) -> Managers:
    try:
        return read_entries(entries)
    except InvalidEntries:
        return {}


def _put(meta: Tree, managers: dict[object, ManagerFields] | Managers) -> None:
    if managers:
        meta["managedFields"] = write_entries(managers)  # type: ignore[arg-type]
    else:
        meta.pop("managedFields", None)
