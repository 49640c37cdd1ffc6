"""Registry store: create, update and delete, as every write does them.

Source: apiserver v0.36, registry/generic/registry/store.go and registry/rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from msgspec import Raw
from msgspec.structs import replace

from stowplan.apis.machinery import object_meta as metadata
from stowplan.apis.machinery.access import Attributes
from stowplan.apis.machinery.errors import (
    OBJECT_MODIFIED,
    ApiError,
    Cause,
    already_exists,
    bad_request,
    bounded_causes,
    conflict,
    internal_error,
    invalid,
    invalid_object,
    not_found,
    success_status,
)
from stowplan.apis.machinery.resource import (
    AdmissionPlugin,
    ApiCall,
    Resource,
    ResourceRegistry,
    ResourceStrategy,
    StoreChange,
)
from stowplan.apis.machinery.stored_form import (
    decode,
    encode_stored,
    under_current_schema,
    version_of_stored,
    with_version,
)
from stowplan.apis.machinery.strconv import parse_uint
from stowplan.apis.machinery.timestamps import add_seconds, format_time, parse_time
from stowplan.apis.schema.json_parser import LONG_BYTES, check_extent
from stowplan.apiserver.admission.admission_plugin import AdmissionHook, hooks_of
from stowplan.apiserver.apply.managed_fields import ManagedFields
from stowplan.apiserver.storage.object_parts import PartedUpdates
from stowplan.apiserver.storage.repeated_causes import cause_repeats
from stowplan.apiserver.storage.versioned_store import VersionedStore, resource_path_of
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions

_PLAIN_FINALIZERS = frozenset({
    "admissionregistration.k8s.io", "apiextensions.k8s.io", "coordination.k8s.io", "node.k8s.io",
    "policy",
})  # fmt: skip
"""Groups whose finalizers need no domain."""
OBJECT_BYTES_MAX = 4 << 20
"""Maximum length of a stored object. Differs: etcd's limit is 1.5 MB."""
UpdateFunction = Callable[[Tree], Tree]
"""From the stored object (a fresh tree) to the one to store."""


class DeletionResult:
    """The result of a deletion. at_once: the object is removed; otherwise it is only marked."""

    __slots__ = ("at_once", "body")

    def __init__(self, body: Tree, at_once: bool) -> None:
        self.body = body
        self.at_once = at_once


class RegistryStore:
    """Writes to a store. on_change: called with every change. fields: keeps managedFields."""

    def __init__(
        self,
        store: VersionedStore,
        admission: Sequence[AdmissionPlugin],
        uids: metadata.UidGenerator,
        on_change: Callable[[StoreChange], None],
        *,
        validates: bool = True,
        fields: ManagedFields | None = None,
    ) -> None:
        self.store = store
        self.admission = admission
        self._hooks: dict[tuple[str, str], tuple[list[AdmissionHook], list[AdmissionHook]]] = {}
        self.parted = PartedUpdates(store, admission, fields)
        self.uids = uids
        self.on_change = on_change
        self.validates = validates
        self.fields = fields
        self.packed = b""
        """The bytes that the last write stored or found stored; empty for a dry run."""

    def create(self, call: ApiCall, obj: Tree) -> Tree:
        """Store a decoded and defaulted object; returns it as stored. Raises ApiError."""
        self.packed = b""
        resource, meta = call.resource, obj.setdefault("metadata", {})
        metadata.wipe_system_fields(meta)
        metadata.set_namespace(meta, call.namespace if resource.namespaced else "")
        call.warnings.extend(metadata.drop_duplicate_owners(meta))
        entries = self._track_new(call, obj)
        self.admit(call, obj, None)
        return self._create(call, obj, entries)

    def _track_new(self, call: ApiCall, obj: Tree) -> bytes:
        """Set managedFields of a new object; those that are to be joined to it before it is stored,
        empty if they are set."""
        if self.fields is None:
            obj["metadata"].pop("managedFields", None)
            return b""
        entries = self.parted.new_entries(call, obj)
        if not entries:
            self.fields.created(call, obj)
        return entries

    def _track(self, call: ApiCall, new: Tree, old: Tree) -> None:
        if self.fields is not None:
            self.fields.updated(call, new, old)
        else:
            new["metadata"].pop("managedFields", None)

    def _create(self, call: ApiCall, obj: Tree, entries: bytes) -> Tree:
        resource, strategy, meta = call.resource, call.resource.strategy, obj["metadata"]
        repeats = call.answers is not None and call.answers.repeats
        uids = metadata.UidGenerator(call.rng) if repeats else self.uids
        metadata.fill_system_fields(meta, call.now, uids, call.rng)
        strategy.prepare_create(obj, call)
        causes = self._causes(
            metadata.metadata_problems(meta, resource.namespaced, strategy.name_problems),
            _finalizer_names(resource, meta),
            strategy.validate(obj, call),
        )
        name = meta.get("name", "")
        if causes:
            raise invalid_object(resource.kind_group, resource.kind, name, causes)
        call.warnings.extend(strategy.warnings(obj, None, call))
        strategy.canonicalize(obj)
        self.admit_result(call, obj, None)
        if _has_version(meta):
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        key = resource.key(meta.get("namespace", ""), name)
        existing = self.store.get(key)
        if existing is not None:
            raise self._taken(resource, name, decode(existing))
        if call.dry_run:
            meta.pop("resourceVersion", None)
            return obj
        if entries:
            meta["managedFields"] = Raw(entries)
        return self._put(resource, key, obj)

    def _causes(self, *checks: Iterable[Cause]) -> list[Cause]:
        """What is invalid, up to the bounds of one error; nothing without validation."""
        return bounded_causes(chain(*checks)) if self.validates else []

    def _taken(self, resource: Resource, name: str, existing: Tree) -> ApiError:
        error = already_exists(resource.group, resource.plural, name)
        if existing["metadata"].get("deletionTimestamp"):
            text = f"object is being deleted: {error.message}"
            return ApiError(error.code, error.reason, text, error.details)
        return error

    def _put(self, resource: Resource, key: str, obj: Tree) -> Tree:
        self.packed = encode_stored(resource, obj, self.store.version + 1)
        if len(self.packed) > LONG_BYTES:
            # Patches, each within the bounds of a body, add up.
            if len(self.packed) > OBJECT_BYTES_MAX:
                text = f"Request entity too large: limit is {OBJECT_BYTES_MAX}"
                raise ApiError(413, "RequestEntityTooLarge", text)
            check_extent(decode(self.packed))
        self.on_change(self.store.put(resource, key, self.packed))
        return obj

    def put_packed(self, resource: Resource, key: str, packed: bytes) -> None:
        """Store bytes that are worked out, with the version that is next."""
        self.packed = packed
        self.on_change(self.store.put(resource, key, packed))

    def update(
        self,
        call: ApiCall,
        make: UpdateFunction | Tree,
        uid: str = "",
        strategy: ResourceStrategy | None = None,
        *,
        applies: bool = False,
        tracks: bool = True,
    ) -> tuple[Tree, bool]:
        """Replace an object by `make`, or by its result; True if that created it.

        uid: precondition, "" if none. strategy: of a subresource, instead of the kind's. applies:
        it is a server-side apply, which may create the object. tracks: False if `make` has set
        managedFields. Raises ApiError.
        """
        self.packed = b""
        resource = call.resource
        key = resource.key(call.namespace if resource.namespaced else "", call.name)
        existing = self.store.get(key)
        if existing is None:
            if (
                strategy is not None
                or not resource.strategy.create_on_update
                or (call.verb == "patch")
            ) and not (applies and strategy is None):
                raise not_found(resource.group, resource.plural, call.name)
            if uid:
                raise _uid_conflict(resource, call, uid, "")
            new = make({}) if callable(make) else make
            return self._create_by_update(call, new, tracks and not applies), True
        read = under_current_schema(resource, existing)
        parts = self.parted.begin(call, key, read) if tracks and not applies else None
        old = decode(read if parts is None else parts.bare)
        if uid and uid != old["metadata"]["uid"]:
            raise _uid_conflict(resource, call, uid, old["metadata"]["uid"])
        new = make(decode(read if parts is None else parts.bare)) if callable(make) else make
        if parts is None or not parts.update(call, new, old):
            parts = None
            if tracks and not applies:
                self._track(call, new, old)
        self.admit(call, new, old)
        patched = call.verb == "patch"
        call.warnings.extend(metadata.drop_duplicate_owners(new["metadata"], patched))
        if parts is not None:
            if parts.settles:
                parts.settle(new, old)
        elif self.fields is not None:
            self.fields.settle(new, old)
        rules = strategy or resource.strategy
        self._check_version(call, new["metadata"], old["metadata"], rules)
        self._check_update(call, new, old, rules)
        if parts is not None:
            parts.join(new, old)
        return self._store_update(call, key, new, old, existing), False

    def _create_by_update(self, call: ApiCall, obj: Tree, tracks: bool) -> Tree:
        """A PUT or apply that creates the object: it needs the permission to create as well."""
        call = replace(call, verb="create")
        entries = self._track_new(call, obj) if tracks else b""
        self.admit(call, obj, None)
        resource, meta = call.resource, obj["metadata"]
        wanted = Attributes(
            "create",
            resource.group,
            resource.version,
            resource.plural,
            namespace=call.namespace,
            name=call.name,
        )
        call.access.authorize(call.user, wanted)
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            meta.pop(key, None)
        # A new object has no version, but one that is given has to be a number.
        _parsed_version(meta)
        meta.pop("resourceVersion", None)
        return self._create(call, obj, entries)

    def _check_version(self, call: ApiCall, new: Tree, old: Tree, rules: ResourceStrategy) -> None:
        """Raises ApiError 409 for an old version, 422 if it is missing and required."""
        resource = call.resource
        version = _parsed_version(new)
        if version == 0 and rules.unconditional_update:
            new["resourceVersion"] = old["resourceVersion"]
        elif version == 0:
            cause = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid_object(resource.group, resource.plural, call.name, [cause])
        elif version != parse_uint(old["resourceVersion"]):
            raise conflict(resource.group, resource.plural, call.name, OBJECT_MODIFIED)

    def _check_update(self, call: ApiCall, new: Tree, old: Tree, rules: ResourceStrategy) -> None:
        resource, meta = call.resource, new["metadata"]
        metadata.set_namespace(meta, call.namespace if resource.namespaced else "")
        meta.pop("generation", None)
        meta.pop("selfLink", None)
        if "generation" in old["metadata"]:
            meta["generation"] = old["metadata"]["generation"]
        rules.prepare_update(new, old, call)
        metadata.carry_over_metadata(meta, old["metadata"])
        often = cause_repeats(resource, rules is resource.strategy)
        problems = self._causes(
            metadata.metadata_problems(meta, resource.namespaced, metadata.path_names)
        )
        changes = self._causes(metadata.metadata_update_problems(meta, old["metadata"]))
        names = _finalizer_names(resource, meta)
        causes = self._causes(
            problems * often.problems,
            changes * often.changes,
            names * often.names,
            rules.validate_update(new, old, call),
        )
        if causes:
            raise invalid_object(resource.kind_group, resource.kind, meta.get("name", ""), causes)
        call.warnings.extend(rules.warnings(new, old, call))
        rules.canonicalize(new)
        self.admit_result(call, new, old)

    def _store_update(self, call: ApiCall, key: str, new: Tree, old: Tree, existing: bytes) -> Tree:
        resource = call.resource
        if _removes_last_finalizer(new, old) and not resource.strategy.held(new):
            if not call.dry_run:
                self._remove(resource, key, existing)
            return new
        new["kind"], new["apiVersion"] = old["kind"], old["apiVersion"]
        # An object stored under an older schema is written even if nothing else changes.
        if new == old and under_current_schema(resource, existing) is existing:
            self.packed = existing
            return new
        if call.dry_run:
            return new
        return self._put(resource, key, new)

    def _remove(self, resource: Resource, key: str, existing: bytes) -> Tree:
        """Remove an object from the store; its last state."""
        last = with_version(under_current_schema(resource, existing), self.store.version + 1)
        self.on_change(self.store.remove(resource, key, last))
        return decode(last)

    def restore(self, resource: Resource, obj: Tree) -> Tree:
        """Store a canonical object as it is, with its uid, times and status: without strategy and
        admission."""
        meta = obj["metadata"]
        return self._put(resource, resource.key(meta.get("namespace", ""), meta["name"]), obj)

    def rewrite_packed(
        self, resource: Resource, key: str, change: Callable[[bytes], bytes | None]
    ) -> bool:
        """As `rewrite`, of stored bytes; False if `change` gives None, or without an object."""
        existing = self.store.get(key)
        new = None if existing is None else change(existing)
        if new is not None:
            self.put_packed(resource, key, with_version(new, self.store.version + 1))
        return new is not None

    def rewrite(self, resource: Resource, key: str, change: Callable[[Tree], None]) -> Tree:
        """Edit an existing object without strategy and admission."""
        existing = self.store.get(key)
        if existing is None:
            raise internal_error(f"{key} not found")
        new = decode(existing)
        change(new)
        version = self.store.version + 1
        packed = encode_stored(resource, new, version)
        if packed == with_version(existing, version):
            new["metadata"]["resourceVersion"] = str(version_of_stored(existing))
            return new
        self.packed = packed
        self.on_change(self.store.put(resource, key, packed))
        return new

    def expire(self, registry: ResourceRegistry, key: str, version: int) -> None:
        """Remove an expired object, unless it was written since."""
        resource = registry.by_path(resource_path_of(key))
        existing = self.store.get(key)
        if resource is not None and existing is not None and version_of_stored(existing) == version:
            self._remove(resource, key, existing)

    def delete(self, call: ApiCall, delete_options: DeleteOptions) -> DeletionResult:
        """Delete an object, with grace period and finalizers. Raises ApiError."""
        resource, strategy = call.resource, call.resource.strategy
        key = resource.key(call.namespace if resource.namespaced else "", call.name)
        existing = self.store.get(key)
        if strategy.deletion_warning and not delete_options.propagation:
            call.warnings.append(strategy.deletion_warning)
        if existing is None:
            raise not_found(resource.group, resource.plural, call.name)
        obj = decode(under_current_schema(resource, existing))
        _check_preconditions(resource, obj["metadata"], delete_options)
        if strategy.lingers:
            if not obj["metadata"].get("deletionTimestamp"):
                return self._mark(call, key, obj, delete_options)
            if strategy.held(obj):
                return DeletionResult(obj, False)
        graceful, pending = _begin_graceful_deletion(strategy, obj, delete_options, call)
        if pending:
            return DeletionResult(self._answer(resource, obj), False)
        self.admit(call, None, obj)
        self.admit_result(call, None, obj)
        _set_finalizers(strategy, obj["metadata"], delete_options)
        held = bool(obj["metadata"].get("finalizers"))
        if graceful or held:
            if not graceful:
                _mark_deleted(obj["metadata"], call.now)
            # A second deletion changes nothing, and is no write.
            same = not graceful and obj == decode(under_current_schema(resource, existing))
            if not call.dry_run and not same:
                obj = self._put(resource, key, obj)
            if held or (graceful and delete_options.grace_s):
                return DeletionResult(obj, False)
        if not call.dry_run:
            existing = self.store.get(key)
            if existing is None:
                raise internal_error(f"{key} disappeared while it was being deleted")
            obj = self._remove(resource, key, existing)
        return DeletionResult(self._answer(resource, obj), True)

    def _mark(
        self, call: ApiCall, key: str, obj: Tree, delete_options: DeleteOptions
    ) -> DeletionResult:
        """The first deletion of a kind with `lingers`."""
        self.admit(call, None, obj)
        self.admit_result(call, None, obj)
        meta = obj["metadata"]
        meta["deletionTimestamp"] = format_time(call.now)
        finalizers = [name for name in meta.get("finalizers") or () if name != metadata.ORPHAN]
        if delete_options.propagation == "Orphan":
            finalizers.append(metadata.ORPHAN)
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        call.resource.strategy.begin_delete(obj, call)
        return DeletionResult(obj if call.dry_run else self._put(call.resource, key, obj), False)

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Let admission change a write. Raises ApiError."""
        for hook in self._hooks_of(call)[0]:
            hook(call, obj, old)

    def admit_result(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Let admission refuse a write that it has changed. Raises ApiError."""
        for hook in self._hooks_of(call)[1]:
            hook(call, obj, old)

    def _hooks_of(self, call: ApiCall) -> tuple[list[AdmissionHook], list[AdmissionHook]]:
        key = call.resource.path, call.subresource
        found = self._hooks.get(key)
        if found is None:
            found = self._hooks[key] = hooks_of(self.admission, *key)
        return found

    def _answer(self, resource: Resource, obj: Tree) -> Tree:
        """The body of the response to a deletion: the object, or a Status with its name."""
        if resource.strategy.returns_deleted:
            return obj
        meta = obj["metadata"]
        details = {"name": meta["name"]}
        if resource.group:
            details["group"] = resource.group
        details["kind"] = resource.plural
        details["uid"] = meta["uid"]
        return success_status(details)


def _finalizer_names(resource: Resource, meta: Tree) -> list[Cause]:
    finalizers = meta.get("finalizers")
    if resource.custom or not finalizers or resource.group in _PLAIN_FINALIZERS:
        return []
    return metadata.finalizer_name_problems(finalizers)


def _parsed_version(meta: Tree) -> int:
    text = meta.get("resourceVersion") or ""
    try:
        return parse_uint(text) if text else 0
    except ValueError as error:
        raise ApiError(500, "", str(error)) from None


def _has_version(meta: Tree) -> bool:
    """True for a version above 0. A new object's may be no number, and then counts as none."""
    try:
        return parse_uint(meta.get("resourceVersion") or "0") > 0
    except ValueError:
        return False


def _uid_conflict(resource: Resource, call: ApiCall, wanted: str, got: str) -> ApiError:
    place = resource.strategy.storage_path or (
        resource.path if resource.custom else resource.plural
    )
    where = f"/registry/{place}" + (f"/{call.namespace}" if resource.namespaced else "")
    text = (
        f"StorageError: invalid object, Code: 4, Key: {where}/{call.name}, ResourceVersion: 0,"
        f" AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object"
        f" meta: {got}"
    )
    return conflict(resource.group, resource.plural, call.name, text)


def _check_preconditions(resource: Resource, meta: Tree, delete_options: DeleteOptions) -> None:
    """Raises ApiError 409 if the preconditions fail."""
    for wanted, key, name, why in (
        (delete_options.uid, "uid", "UID", "deleted and then recreated"),
        (delete_options.version, "resourceVersion", "ResourceVersion", "modified"),
    ):
        if wanted and wanted != meta[key]:
            text = (
                f"the {name} in the precondition ({wanted}) does not match the {name} in record"
                f" ({meta[key]}). The object might have been {why}"
            )
            raise conflict(resource.group, resource.kind, meta["name"], text)


def _removes_last_finalizer(new: Tree, old: Tree) -> bool:
    """True if an update removes the last finalizer of an object that is being deleted."""
    before = old["metadata"]
    if new["metadata"].get("finalizers") or not before.get("deletionTimestamp"):
        return False
    return not before.get("deletionGracePeriodSeconds")


def _begin_graceful_deletion(
    strategy: ResourceStrategy, obj: Tree, delete_options: DeleteOptions, call: ApiCall
) -> tuple[bool, bool]:
    """Begin the graceful deletion of a pod: (marked now, was marked already).

    Sets delete_options.grace_s to the period that applies.
    """
    meta = obj["metadata"]
    if delete_options.grace_s is not None and delete_options.grace_s < 0:
        delete_options.grace_s = 1
    grace = strategy.grace(obj, delete_options, call)
    if grace is None:
        return False, False
    deleted = meta.get("deletionTimestamp")
    if deleted:
        existing = meta.get("deletionGracePeriodSeconds") or 0
        if not existing:
            return False, False
        if delete_options.grace_s is None:
            delete_options.grace_s = existing
            return False, True
        if delete_options.grace_s >= existing:
            return False, True
        at = add_seconds(add_seconds(parse_time(deleted), -existing), delete_options.grace_s)
        period = delete_options.grace_s
        if at < call.now:
            at, period = call.now, min(period, 1)
        meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = format_time(at), period
        return True, False
    delete_options.grace_s = grace
    meta["deletionTimestamp"] = format_time(add_seconds(call.now, grace))
    meta["deletionGracePeriodSeconds"] = grace
    if meta.get("generation", 0) > 0:
        meta["generation"] += 1
    return True, False


def _mark_deleted(meta: Tree, now: float) -> None:
    """Mark an object as deleted, without grace period; finalizers keep it."""
    deleted = meta.get("deletionTimestamp")
    if not deleted and meta.get("generation", 0) > 0:
        meta["generation"] += 1
    if not deleted or parse_time(deleted) > now:
        meta["deletionTimestamp"] = format_time(now)
    meta["deletionGracePeriodSeconds"] = 0


def _set_finalizers(strategy: ResourceStrategy, meta: Tree, delete_options: DeleteOptions) -> None:
    """Add the finalizer of the propagation policy and remove the other one."""
    if not strategy.collects_garbage:
        return
    finalizers = meta.get("finalizers") or []
    policy = delete_options.propagation
    if not policy:
        special = [n for n in finalizers if n in (metadata.ORPHAN, metadata.FOREGROUND)]
        if special:
            policy = "Orphan" if special[0] == metadata.ORPHAN else "Foreground"
        elif strategy.orphans_by_default:
            policy = "Orphan"
    kept = [n for n in finalizers if n not in (metadata.ORPHAN, metadata.FOREGROUND)]
    if policy == "Orphan":
        kept.append(metadata.ORPHAN)
    elif policy == "Foreground":
        kept.append(metadata.FOREGROUND)
    if set(kept) == set(finalizers):
        return
    if kept:
        meta["finalizers"] = kept
    else:
        meta.pop("finalizers", None)


def check_name(obj: Tree, name: str, namespace: str) -> None:
    """Raises ApiError 400 if name or namespace of a body are not those of the path."""
    got = obj["metadata"].get("name", "")
    if not got:
        text = f"the name of the object ({name} based on URL) was undeterminable"
        raise bad_request(f"{text}: name must be provided")
    if got != name:
        text = f"the name of the object ({got}) does not match the name on the URL ({name})"
        raise bad_request(text)
    place = obj["metadata"].get("namespace", "")
    if namespace and place and place != namespace:
        text = f"the namespace of the object ({place}) does not match the namespace on the request"
        raise bad_request(f"{text} ({namespace})")
