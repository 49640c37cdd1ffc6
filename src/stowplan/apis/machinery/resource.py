"""Resources: the path, schema, strategy and table of a kind, and the protocols of its hooks.

The request pipeline works on trees as JSON decodes them. A kind gives it a `ResourceSchema`
(decoding, defaults, merge keys), a `ResourceStrategy` (what a create or an update may set, what is
valid, how it is deleted) and a `Table` (what `kubectl get` prints).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from sys import intern
from typing import Any, Protocol

import msgspec
import numpy as np
from msgspec.structs import replace

from stowplan.apis.admissionregistration.webhook_calls import WebhookAnswers
from stowplan.apis.machinery.access import AccessControl
from stowplan.apis.machinery.component_errors import ComponentErrors
from stowplan.apis.machinery.errors import Cause
from stowplan.apis.machinery.http_messages import User
from stowplan.apis.machinery.names import subdomain_problems
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class ObjectClient(Protocol):
    """Reads and writes stored objects; hooks of a kind use it in the course of a request.

    namespace is "" for cluster-scoped kinds. Returned trees are fresh unless noted. Writes run
    admission and validation as HTTP requests do and raise ApiError as they would answer.
    """

    @property
    def registry(self) -> ResourceRegistry:
        """The kinds that are served."""

    def get(self, resource: Resource, namespace: str, name: str) -> Tree | None:
        """The stored object, or None."""

    def list(self, resource: Resource, namespace: str = "") -> Iterator[Tree]:
        """The objects of one namespace or ("") of all, in key order; later writes do not show."""

    def peek(self, resource: Resource, namespace: str, name: str) -> Tree | None:
        """As `get`, from a cache of decoded objects: the tree must not be changed."""

    def peek_all(self, resource: Resource) -> Iterator[Tree]:
        """As `list`, from a cache of decoded objects: the trees must not be changed."""

    def n_writes(self, path: str) -> int:
        """How often objects of a resource path were written; changes whenever one changes."""

    def create(
        self, resource: Resource, obj: Tree, now: float, namespace: str = "", user: User = ...
    ) -> Tree:
        """Store a new object; returns it as stored."""

    def update(
        self, resource: Resource, obj: Tree, now: float, subresource: str = "", user: User = ...
    ) -> Tree:
        """Replace an object; 409 if `obj` carries another resourceVersion."""

    def update_status(self, resource: Resource, obj: Tree, now: float, user: User = ...) -> Tree:
        """`update` of the status subresource."""

    def modify(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Tree], None],
        now: float,
        subresource: str = "",
        user: User = ...,
    ) -> Tree | None:
        """Read an object, let `change` edit it in place, write it. None if it does not exist.

        If nothing changes, nothing is written and the version stays. With an acting subresource
        (`binding`) the result is stored without strategy and admission.
        """

    def rewrite(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[bytes], bytes | None],
        now: float,
    ) -> bool:
        """Write an object as `change` makes it of its stored bytes, with the next version, without
        strategy and admission. False, and nothing done, without an object or for None."""

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        now: float,
        requested: DeleteOptions | None = None,
        user: User = ...,
    ) -> Tree:
        """Delete as a DELETE does (grace, finalizers); the last state. 404 if it does not exist."""


class ServerContext(ObjectClient, Protocol):
    """What observers and non-resource pages get of the server: objects, timers, watches, errors."""

    @property
    def version(self) -> int:
        """The resourceVersion of the last write."""

    @property
    def faults(self) -> ComponentErrors:
        """Unexpected exceptions of observers and controllers."""

    def metric_lines(self) -> list[str]:
        """Requests, watches and objects, in the form of `/metrics`."""

    def later(self, at: float, action: Callable[[float], None]) -> None:
        """Call `action(now)` in the first tick at or after `at`."""

    def end_watches(self, path: str, now: float) -> None:
        """End all watches of a resource path."""


class _PlacedCall(msgspec.Struct, frozen=True):
    """What most operations give by place, see `ApiCall`."""

    objects: ObjectClient
    user: User
    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    now: float = 0.0
    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = []
    manager: str = ""


class ApiCall(_PlacedCall, frozen=True, kw_only=True):
    """One operation on its way through the pipeline; hooks receive it as `call`.

    objects: the other objects, for hooks that read or write them. verb: as in
    `access.Attributes`. subresource: "" for the object itself. dry_run: nothing will be stored.
    field_validation: "Strict", "Warn" or "Ignore". warnings: texts for Warning headers; hooks may
    append. rng: the server's generator. access: who may do what. manager: the name under which
    managedFields record the write. options: fields of its CreateOptions, UpdateOptions or
    PatchOptions that the request gave. answers: of webhooks; None where none are called. parts: the
    written object may have its managedFields encoded (`entries_apart`).
    """

    rng: np.random.Generator
    access: AccessControl
    options: Mapping[str, Any] = {}
    answers: WebhookAnswers | None = None
    parts: bool = False

    def at(self, now: float) -> ApiCall:
        """The call at `now`, to which it may have waited for work in another thread."""
        return self if self.now == now else replace(self, now=now)


@dataclass(frozen=True, slots=True)
class MergeStrategy:
    """How strategic merge patch treats one field of a type.

    strategies: of `patchStrategy`, "merge", "replace", "retainKeys"; empty means the default
    (maps merge, lists are replaced). key: `patchMergeKey` of a list of objects; "" for a list of
    plain values, which merge as sets. shape: of the field's value, or of the items of a list, or of
    the values of a map; None if it is unknown (then default merging below).
    """

    strategies: tuple[str, ...] = ()
    key: str = ""
    shape: MergeShape | None = None


class MergeShape(Protocol):
    """A type as strategic merge patch sees it."""

    def merging(self, name: str) -> MergeStrategy | None:
        """How the field of this JSON name merges; None for a field that the type does not have."""


class ResourceSchema(Protocol):
    """The schema of a kind: type tables for built-in, a structural schema for custom kinds."""

    @property
    def shape(self) -> MergeShape | None:
        """For strategic merge; None: the kind does not offer it (custom objects: 415)."""

    def decode(self, tree: Tree, duplicates: Sequence[str], mode: str) -> tuple[Tree, list[str]]:
        """A fresh canonical tree (known fields only, quantities and times in canonical form, empty
        values left out as Go leaves them out) and the strict texts, in order, each as recorded
        (`unknown field "spec.nope"`): those of unknown fields and the `duplicates`, which are the
        texts of duplicate keys of the body (`schema.parse_json` finds them).

        tree: the decoded body, kind and apiVersion already checked by the pipeline. mode:
        "Strict", "Warn", "Ignore"; the pipeline turns the texts into an error or warnings, with
        "Ignore" they need not be collected. Raises `errors.BodyDecodeError`, in any mode, for a
        wrong type or value; the pipeline prefixes its text with `Pod in version "v1" cannot be
        handled as a Pod: `.
        """

    def blank(self) -> Tree:
        """The zero object as Go encodes it, without defaults; used by bookmarks."""

    def default(self, tree: Tree) -> None:
        """Set the defaults of the version in place, after the decode of every write. A schema may
        set them in `decode` instead."""


class AdmissionPlugin(Protocol):
    """A plugin that may change or reject a write; plugins run in order."""

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Called before validation: change `obj` in place or raise ApiError.

        For create, update, patch, delete, deletecollection (once for each object) and acting
        subresources. old: the stored object, None for a create. obj: None for a delete.
        """

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Called after validation: raise ApiError to reject the write."""


class ChangeObserver(Protocol):
    """Observes every change once, in order, before the request that made it is answered."""

    def changed(self, server: ServerContext, change: StoreChange, now: float) -> None:
        """A change was stored. Writes of an observer are observed after it.

        The records that a server starts from are observed as ADDED.
        """


class StoreChange(msgspec.Struct, frozen=True):
    """One write. type: ADDED, MODIFIED, DELETED. key: resource path/namespace/name.

    value: canonical bytes after it (DELETED: the last state with the version of the deletion).
    previous: bytes before it; None when ADDED.
    """

    version: int
    type: str
    resource: Resource
    key: str
    value: bytes
    previous: bytes | None

    @property
    def path(self) -> str:
        """The resource path."""
        return self.resource.path

    @property
    def namespace(self) -> str:
        """Namespace of the object, "" for cluster-scoped kinds."""
        return _split_key(self.key)[0]

    @property
    def name(self) -> str:
        """Name of the object."""
        return _split_key(self.key)[1]


@lru_cache(maxsize=64)
def _split_key(key: str) -> tuple[str, str]:
    # Cached, because each controller asks for each change.
    _, namespace, name = key.rsplit("/", 2)
    # Indexes keep the namespace of each object.
    return intern(namespace), name


class ResourceStrategy:
    """The rules of a kind; the defaults are those of a kind without status.

    Every hook gets plain trees and the `ApiCall`. `new` and `obj` are fresh and may be changed;
    `old` must not be.
    """

    create_on_update: bool = False
    """A PUT to a name that does not exist creates it (leases, events, endpoints)."""
    unconditional_update: bool = True
    """A PUT without resourceVersion is accepted; otherwise 422 metadata.resourceVersion."""
    orphans_by_default: bool = False
    """DeleteOptions without a policy add the `orphan` finalizer (jobs, replication controllers)."""
    deletion_warning: str = ""
    """Warning of a deletion without a propagation policy."""
    returns_deleted: bool = False
    """A deletion answers with the object (pods, volumes, classes); otherwise with a Status."""
    collects_garbage: bool = True
    """False: propagation policies are ignored (events)."""

    repeats: bool = False
    """Many objects are created that differ in their names only, as pods of a template do."""
    lingers: bool = False
    """The first deletion only marks the object, by `begin_delete`, and later ones do nothing while
    it is `held` (namespaces, definitions of custom kinds)."""
    storage_path: str = ""
    """The original's path in etcd, if it is not the plural (nodes: minions); errors of uid
    preconditions print it."""

    def name_problems(self, name: str, prefix: bool) -> list[str]:
        """Problems of a name. prefix: it is a generateName, which may end in a dash.
        The default: a DNS subdomain; override with `names.label_problems` and the like."""
        return subdomain_problems(name, prefix)

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        """Reset fields that a client cannot set (status), set generation 1 where there is one."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        """Restore fields that this verb or subresource cannot change; increment generation."""

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        """Causes of a new object; the pipeline validates metadata."""
        return ()

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        """Causes of an update; the pipeline validates metadata."""
        return ()

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        """Texts for Warning headers, after validation."""
        return ()

    def canonicalize(self, obj: Tree) -> None:
        """The last change before an object is stored, after validation."""

    def grace(self, obj: Tree, delete_options: DeleteOptions, call: ApiCall) -> int | None:
        """Grace period of a deletion in seconds; None: no graceful deletion."""
        return None

    def begin_delete(self, obj: Tree, call: ApiCall) -> None:
        """Change an object of a lingering kind that is marked as deleted (phase: Terminating)."""

    def held(self, obj: Tree) -> bool:
        """True while something besides metadata.finalizers keeps a deleted object of a lingering
        kind (namespaces: spec.finalizers)."""
        return False


class SubresourceView(Protocol):
    """A subresource that presents part of its object as another kind (scale)."""

    def read(self, obj: Tree, call: ApiCall) -> Tree:
        """The view, with kind, apiVersion and the metadata of `obj`."""

    def write(self, obj: Tree, body: Tree, call: ApiCall) -> Tree:
        """A fresh copy of `obj` with the values of the view `body`. Raises ApiError."""


@dataclass(frozen=True, slots=True)
class SubresourceResult:
    """The response of an action: HTTP code and object."""

    code: int
    body: Tree


PostAction = Callable[[ApiCall, Tree], SubresourceResult]
"""Actions on POST that store no object: binding, eviction, access reviews. (call, body)."""


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource. Exactly one of strategy, view, act is set.

    strategy: reads and writes the object itself (status, finalize). view: presents it as another
    kind. act: performs an action on POST. group, version, kind, schema: of the body where it is
    not the object itself. verbs: get, update, patch, create, delete in the order discovery prints.
    plain: decodes bodies of the action in their usual form as the schema does, None for others.
    """

    name: str
    verbs: tuple[str, ...]
    strategy: ResourceStrategy | None = None
    view: SubresourceView | None = None
    act: PostAction | None = None
    group: str = ""
    version: str = ""
    kind: str = ""
    schema: ResourceSchema | None = None
    plain: Callable[[bytes], Tree | None] | None = None

    def body_schema(self, resource: Resource) -> tuple[ResourceSchema, str, str]:
        """Schema, kind and apiVersion of the body."""
        version = f"{self.group}/{self.version}" if self.group else self.version
        return (
            self.schema or resource.schema,
            self.kind or resource.kind,
            version or resource.api_version,
        )


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table. priority: 0 always printed, 1 only in wide output."""

    name: str
    type: str
    description: str
    format: str = ""
    priority: int = 0


class Table(Protocol):
    """The table of a kind."""

    columns: tuple[TableColumn, ...]

    def cells(self, obj: Tree, now: float) -> list[Any]:
        """The cells of an object, in the order of `columns`."""

    def conditions(self, obj: Tree) -> list[Tree]:
        """`conditions` of the row; usually empty (finished pods have Completed)."""


class ResourceAlias(Protocol):
    """Conversion of a resource that is stored as another one (events.k8s.io as core events).

    Strategy, selectors and storage work on the stored form.
    """

    path: str
    """`Resource.path` of the resource that stores them."""

    def from_stored(self, tree: Tree) -> Tree:
        """A stored tree as this resource serves it, kind and apiVersion included."""

    def to_stored(self, tree: Tree) -> Tree:
        """A decoded tree of this resource as it is stored."""


@dataclass(frozen=True, eq=False)
class Resource:
    """A kind as it is served. Compared by identity; one instance per path.

    group: "" is the core group. verbs: as discovery prints them. stored_as: the storage version, if
    it is not this one. act: set for kinds that are only POSTed and never stored (access reviews).
    fields: selectable fields besides metadata.name and metadata.namespace. ttl_s: lifetime after
    the last write (events), None: unlimited.
    custom: of a CustomResourceDefinition; its list items have kind and apiVersion. alias: set for a
    resource that is stored as another one. deprecation: a warning of every request. reread: set for
    custom kinds; stored bytes as they read under the current schema.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    schema: ResourceSchema
    strategy: ResourceStrategy
    verbs: tuple[str, ...] = ALL_VERBS
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    list_kind: str = ""
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    table: Table | None = None
    fields: Mapping[str, Callable[[Tree], str]] = field(default_factory=dict)
    act: PostAction | None = None
    ttl_s: float | None = None
    custom: bool = False
    alias: ResourceAlias | None = None
    deprecation: str = ""
    stored_as: str = ""
    reread: Callable[[bytes], bytes] | None = None

    @cached_property
    def api_version(self) -> str:
        """`v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def path(self) -> str:
        """`pods`, `apps/deployments`: the prefix of the keys of stored objects."""
        if self.alias is not None:
            return self.alias.path
        return f"{self.group}/{self.plural}" if self.group else self.plural

    @property
    def kind_group(self) -> str:
        """The group that errors of invalid objects print with the kind: that of the stored form."""
        is_alias = self.alias is not None and not self.custom
        return self.path.rpartition("/")[0] if is_alias else self.group

    def key(self, namespace: str, name: str) -> str:
        """The key of a stored object; namespace "" for cluster-scoped kinds."""
        return f"{self.path}/{namespace}/{name}"


class ResourceRegistry(Protocol):
    """The resources that are served; custom kinds are added and removed at run time."""

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource of a path, or None."""

    def by_kind(self, group: str, version: str, kind: str) -> Resource | None:
        """The resource that stores objects of a kind, or None."""

    def by_path(self, path: str) -> Resource | None:
        """The resource whose keys begin with `path` (`Resource.path`), or None."""

    def all(self) -> Iterable[Resource]:
        """Every resource, in the order of discovery."""

    def has_group(self, group: str, version: str) -> bool:
        """True if a resource of this group and version is served."""

    def add(self, resource: Resource) -> None:
        """Serve a resource, replacing one of the same path."""

    def remove(self, resource: Resource) -> None:
        """Stop serving a resource."""
