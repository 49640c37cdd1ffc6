"""State of the API server: stored objects, watches, observers, timers, and writes to persist.

Also the operations on objects without HTTP, for controllers, hollow nodes and simulations.
`tick` advances time; `unsaved` and `saved` hand writes to the caller, which persists them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from stowplan.apis.admissionregistration.webhook_calls import (
    SKIPPED,
    LaterAnswers,
    WebhookAnswers,
    WebhookQuestion,
    WebhookReply,
)
from stowplan.apis.admissionregistration.webhook_configuration import (
    MUTATING_PATH,
    VALIDATING_PATH,
)
from stowplan.apis.machinery.access import AlwaysAllow
from stowplan.apis.machinery.component_errors import ComponentErrors
from stowplan.apis.machinery.errors import expired, internal_error, no_such_path
from stowplan.apis.machinery.http_messages import HttpResponse, PersistBatch, User
from stowplan.apis.machinery.object_meta import UidGenerator
from stowplan.apis.machinery.object_selector import ObjectSelector
from stowplan.apis.machinery.resource import (
    ApiCall,
    Resource,
    ResourceRegistry,
    StoreChange,
    Subresource,
    SubresourceResult,
)
from stowplan.apis.machinery.stored_form import decode, under_current_schema, version_of_stored
from stowplan.apiserver.apply.managed_fields import ManagedFields
from stowplan.apiserver.http.body_decoding import canonical_object
from stowplan.apiserver.http.deferred_work import DeferredWork, PendingRequest
from stowplan.apiserver.http.negotiation import ResponseForm
from stowplan.apiserver.http.repeated_creations import RepeatedCreations
from stowplan.apiserver.http.request_counters import RequestCounters
from stowplan.apiserver.http.request_options import ListOptions, parse_resource_version
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.storage.body_packing import StoredBody, unpacked
from stowplan.apiserver.storage.paged_lists import (
    PagedLister,
    list_key_prefix,
    resource_version_too_large,
)
from stowplan.apiserver.storage.registry_store import RegistryStore
from stowplan.apiserver.storage.versioned_store import Record, VersionedStore
from stowplan.apiserver.storage.watch_cache import CacheWatcher, WatchCache
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions

T = TypeVar("T")
SYSTEM_USER = AlwaysAllow.ADMIN
"""The default user of in-process writes, which are not authorized."""
KUBE_APISERVER = "kube-apiserver"
"""The manager of the server's own writes."""
CACHED_TREES_MAX = 1024
LINES_SHARE = 8
"""Encoded watch events take at most this part of what past changes may take."""


class ServerState:
    """State of a cluster as its API shows it.

    records: key, version and value as persisted by an earlier server; a value of None counts for
    its version only. rng: for generated names and uids.
    """

    def __init__(
        self, options: ApiServerOptions, rng: np.random.Generator, records: Iterable[Record] = ()
    ) -> None:
        self.options = options
        self.rng = rng
        self.uids = UidGenerator(rng)
        self.registry: ResourceRegistry = options.registry
        self.store = VersionedStore(records, options.history_max, options.history_bytes_max)
        self.watch_cache = WatchCache(
            self.store.version,
            options.chunk_bytes_max,
            options.bookmark_s,
            options.history_bytes_max // LINES_SHARE,
        )
        self.lists = PagedLister(self.store, options.future_s)
        self.later_answers = LaterAnswers() if options.webhook_caller else None
        self.counters = RequestCounters()
        self.is_writing = False
        """True in the course of a write."""
        self.writes = RegistryStore(
            self.store,
            options.admission,
            self.uids,
            self._on_change,
            validates=options.validates,
            fields=ManagedFields(self.registry) if options.keeps_managed_fields else None,
        )
        self.repeated = RepeatedCreations(self.writes, rng)
        self._next_stream = 1
        self._pending: list[StoreChange] = []
        self._batch = 1
        self._saving: deque[tuple[int, list[StoreChange]]] = deque()
        self._unobserved_changes: deque[StoreChange] = deque()
        self._restored: deque[tuple[Resource, str, StoredBody]] = deque()
        self.faults = ComponentErrors()
        """Exceptions of observers and controllers; the driver logs them."""
        self._notifying = False
        self._expiries: list[tuple[float, str, int]] = []
        self._cached_trees: dict[str, tuple[StoredBody, Tree]] = {}
        self._unscheduled_expiries: deque[tuple[str, int, float]] = deque()
        self._timers: list[tuple[float, int, Callable[[float], None]]] = []
        self._n_timers = 0
        self._unrestored_paths = self.store.paths()
        self._restore_observers()

    def _restore_observers(self) -> None:
        """Queue restored objects for observers; those of custom kinds once they are served."""
        still = []
        for path in self._unrestored_paths:
            resource = self.registry.by_path(path)
            if resource is None:
                still.append(path)
                continue
            # Kept packed until their turn: all at once would take several times the memory.
            bodies = self.store.bodies(path)
            self._restored.extend((resource, key, body) for key, body in bodies)
        self._unrestored_paths = still

    def _next_restored(self) -> StoreChange:
        """The next restored object, as a change for observers."""
        resource, key, body = self._restored.popleft()
        value = unpacked(body)
        version = version_of_stored(value)
        self._expire_later(resource, key, version)
        return StoreChange(version, "ADDED", resource, key, value, None)

    @property
    def version(self) -> int:
        return self.store.version

    @property
    def unsaved_number(self) -> int:
        """The batch that must be saved before the current state may be returned; 0: none."""
        if self._pending:
            return self._batch
        return self._saving[-1][0] if self._saving else 0

    def metric_lines(self) -> list[str]:
        open_watches = (one.resource for one in self.watch_cache.watchers.values())
        counts = self.registry.all(), self.store.count, open_watches, self.watch_cache.sent
        return list(self.counters.lines(*counts))

    def has_webhooks(self) -> bool:
        """True if a configuration of webhooks was ever stored."""
        return bool(self.store.writes(MUTATING_PATH) or self.store.writes(VALIDATING_PATH))

    def new_answers(self) -> WebhookAnswers | None:
        """For one request; None where no webhook is called, SKIPPED while there are none."""
        if self.options.webhook_caller is None:
            return None
        return WebhookAnswers() if self.has_webhooks() else SKIPPED

    def webhook_work(
        self, questions: Sequence[WebhookQuestion]
    ) -> DeferredWork[list[WebhookReply]]:
        """The calls of webhooks, to be made in another thread."""
        caller = self.options.webhook_caller
        if caller is None:
            raise internal_error("no webhook is called")
        return DeferredWork(partial(caller, questions), waits=True)

    def later_work(self) -> PendingRequest | None:
        """Calls of webhooks about writes of this process, if any are due."""
        answers = self.later_answers
        questions = answers.take() if answers is not None else []
        if answers is None or not questions:
            return None
        work = self.webhook_work(questions)

        def resume(now: float) -> HttpResponse:
            answers.add(questions, work.result())
            return HttpResponse(200, (), b"")

        return PendingRequest(work, resume)

    def n_writes(self, path: str) -> int:
        return self.store.writes(path)

    def end_watches(self, path: str, now: float) -> None:
        self.watch_cache.end(path, now)

    def tick(self, now: float) -> float | None:
        """Advance time (timeouts, bookmarks, expiry, timers); returns when to call it again."""
        self._notify_observers(now)
        while self._unscheduled_expiries:
            key, version, life_s = self._unscheduled_expiries.popleft()
            heappush(self._expiries, (now + life_s, key, version))
        while self._expiries and self._expiries[0][0] <= now:
            _, key, version = heappop(self._expiries)
            self.writes.expire(self.registry, key, version)
        while self._timers and self._timers[0][0] <= now:
            heappop(self._timers)[2](now)
        self._notify_observers(now)
        moments = [self.watch_cache.tick(now)]
        if self._timers:
            moments.append(self._timers[0][0])
        if self._expiries:
            moments.append(self._expiries[0][0])
        return min((at for at in moments if at is not None), default=None)

    def later(self, at: float, action: Callable[[float], None]) -> None:
        self._n_timers += 1
        heappush(self._timers, (at, self._n_timers, action))

    def unsaved(self) -> PersistBatch | None:
        if not self._pending:
            return None
        changes, self._pending = self._pending, []
        number, self._batch = self._batch, self._batch + 1
        self._saving.append((number, changes))
        records = [
            (change.key, change.version, None if change.type == "DELETED" else change.value)
            for change in changes
        ]
        return PersistBatch(number, tuple(records))

    def saved(self, number: int) -> None:
        """The batch `number` and all before it are saved: watchers may see them."""
        while self._saving and self._saving[0][0] <= number:
            _, changes = self._saving.popleft()
            self._publish(changes)

    def _publish(self, changes: Sequence[StoreChange]) -> None:
        """Publish saved changes to watchers."""
        self.store.published_version = changes[-1].version
        self.watch_cache.publish(changes, self.store.compacted)

    def _on_change(self, change: StoreChange) -> None:
        """Record a write: publish or queue it for saving, observers and expiry."""
        if self.options.durable:
            self._pending.append(change)
        else:
            self._publish((change,))
        if self.options.observers:
            self._unobserved_changes.append(change)
        if change.type != "DELETED":
            self._expire_later(change.resource, change.key, change.version)

    def _expire_later(self, resource: Resource, key: str, version: int) -> None:
        if resource.ttl_s is not None:
            self._unscheduled_expiries.append((key, version, resource.ttl_s))

    def _notify_observers(self, now: float) -> None:
        """Pass queued changes to observers, those that they make included."""
        if self._notifying:
            return
        self._notifying = True
        try:
            while self._restored or self._unobserved_changes:
                if self._restored:
                    change = self._next_restored()
                else:
                    change = self._unobserved_changes.popleft()
                for observer in self.options.observers:
                    try:
                        observer.changed(self, change, now)
                    # The write is stored: only the observer's work on this object fails.
                    except Exception as error:  # noqa: BLE001
                        self.faults.add(type(observer).__name__, change.key, error)
                if self._unrestored_paths and not (self._restored or self._unobserved_changes):
                    self._restore_observers()
        finally:
            self._notifying = False

    def watch(
        self,
        resource: Resource,
        namespace: str,
        requested: ListOptions,
        selection: ObjectSelector,
        form: ResponseForm,
        now: float,
    ) -> CacheWatcher:
        """Begin a watch. Raises ApiError 500 for an invalid resourceVersion."""
        wanted = parse_resource_version(requested.version)
        prefix = list_key_prefix(resource, namespace or selection.namespace or "")
        if selection.name and (namespace or not resource.namespaced):
            # The selection filters other names with this prefix.
            prefix += selection.name
        watcher = CacheWatcher(self._next_stream, resource, prefix, selection, form)
        self._next_stream += 1
        options = self.options
        seconds = requested.timeout_s or options.watch_s * (1.0 + float(self.rng.random()))
        watcher.deadline = now + seconds
        watcher.bookmarks = requested.bookmarks
        start = wanted
        if requested.initial or (requested.initial is None and not wanted):
            start = self.watch_cache.saved
            if wanted > self.store.version:
                watcher.deadline = min(watcher.deadline, now + options.future_s)
                watcher.final_error = resource_version_too_large(
                    wanted, self.store.version, 0.0
                ).status()
                watcher.bookmarks = False
            else:
                watcher.initial = self._selected(resource, prefix, start, selection)
                watcher.marks_initial_end = requested.bookmarks and bool(requested.initial)
        elif not wanted:
            start = self.watch_cache.saved
        elif wanted < self.store.compacted:
            text = f"too old resource version: {wanted} ({self.store.compacted})"
            watcher.deadline = now
            watcher.final_error = expired(text).status()
            # The changes that are left would hide that some are missing.
            start = self.watch_cache.saved
        self.watch_cache.add(watcher, start, now)
        return watcher

    def _selected(
        self, resource: Resource, prefix: str, version: int, selection: ObjectSelector
    ) -> Iterator[bytes]:
        """The selected objects at a version; later writes do not show."""
        found = [value for _, value in self.store.under_at(resource.path, prefix, version)]
        return (value for value in found if selection.matches(value))

    # In-process access (`resource.ObjectClient`). Returned trees are fresh unless noted.

    def get(self, resource: Resource, namespace: str, name: str) -> Tree | None:
        value = self.store.get(resource.key(namespace, name))
        return None if value is None else decode(under_current_schema(resource, value))

    def list(self, resource: Resource, namespace: str = "") -> Iterator[Tree]:
        prefix = list_key_prefix(resource, namespace)
        for _, value in list(self.store.under(resource.path, prefix)):
            yield decode(under_current_schema(resource, value))

    def peek(self, resource: Resource, namespace: str, name: str) -> Tree | None:
        return self._cached_tree(resource.key(namespace, name))

    def peek_all(self, resource: Resource) -> Iterator[Tree]:
        for key in self.store.keys(resource.path):
            tree = self._cached_tree(key)
            if tree is not None:
                yield tree

    def _cached_tree(self, key: str) -> Tree | None:
        value = self.store.stored(key)
        if value is None:
            return None
        known = self._cached_trees.get(key)
        if known is not None and known[0] is value:
            return known[1]
        if len(self._cached_trees) >= CACHED_TREES_MAX:
            self._cached_trees.clear()
        tree = decode(unpacked(value))
        self._cached_trees[key] = (value, tree)
        return tree

    def changes(self, since: int) -> Iterable[StoreChange]:
        """The changes after version `since`, oldest first; saved or not.

        Raises ApiError 410 if it is compacted: list again and continue from `version`.
        """
        if since < self.store.compacted:
            raise expired(f"too old resource version: {since} ({self.store.compacted})")
        return self.store.changes(since)

    def _call(
        self,
        verb: str,
        resource: Resource,
        namespace: str,
        name: str,
        now: float,
        user: User,
        subresource: str = "",
    ) -> ApiCall:
        return ApiCall(
            self,
            user,
            verb,
            resource,
            namespace,
            name,
            subresource,
            now,
            field_validation="Ignore",
            manager=KUBE_APISERVER if user is AlwaysAllow.APISERVER else self.options.manager,
            rng=self.rng,
            access=self.options.access,
            answers=SKIPPED if self.is_writing else self.later_answers,
        )

    def _alone(self, write: Callable[[], T]) -> T:
        """The result of a write; no webhook is asked about writes of its hooks."""
        before, self.is_writing = self.is_writing, True
        try:
            return write()
        finally:
            self.is_writing = before

    def create(
        self,
        resource: Resource,
        obj: Tree,
        now: float,
        namespace: str = "",
        user: User = SYSTEM_USER,
        *,
        strict: bool = False,
    ) -> Tree:
        """Store a new object as a POST does; returns it as stored.

        namespace: "" takes the one in `obj`. kind and apiVersion may be left out. strict: unknown
        fields are refused, as fieldValidation=Strict does.
        """
        filled = canonical_object(resource, obj, strict=strict)
        meta = filled["metadata"]
        place = namespace or meta.get("namespace", "")
        call = self._call("create", resource, place, "", now, user)
        stored = self._alone(lambda: self.writes.create(call, filled))
        self._notify_observers(now)
        return stored

    def restore(self, resource: Resource, obj: Tree, now: float) -> Tree:
        """Store an object that another API server has stored, with its uid, times and status."""
        stored = self.writes.restore(resource, canonical_object(resource, obj))
        self._notify_observers(now)
        return stored

    def update(
        self,
        resource: Resource,
        obj: Tree,
        now: float,
        subresource: str = "",
        user: User = SYSTEM_USER,
    ) -> Tree:
        """Replace an object as a PUT does; 409 if `obj` carries another resourceVersion."""
        meta = obj["metadata"]
        place, name = meta.get("namespace", ""), meta.get("name", "")
        return self._update(resource, place, name, lambda old: obj, now, subresource, user)

    def _update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        make: Callable[[Tree], Tree],
        now: float,
        subresource: str,
        user: User,
    ) -> Tree:
        strategy = None
        if subresource:
            strategy = self._subresource(resource, subresource).strategy
        call = self._call("update", resource, namespace, name, now, user, subresource)
        stored, _ = self._alone(
            lambda: self.writes.update(
                call, lambda old: canonical_object(resource, make(old)), "", strategy
            )
        )
        self._notify_observers(now)
        return stored

    def _subresource(self, resource: Resource, name: str) -> Subresource:
        found = resource.subresources.get(name)
        if found is None:
            raise no_such_path()
        return found

    def update_status(
        self, resource: Resource, obj: Tree, now: float, user: User = SYSTEM_USER
    ) -> Tree:
        return self.update(resource, obj, now, "status", user)

    def modify(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[Tree], None],
        now: float,
        subresource: str = "",
        user: User = SYSTEM_USER,
    ) -> Tree | None:
        if self.store.get(resource.key(namespace, name)) is None:
            return None
        if subresource and self._subresource(resource, subresource).strategy is None:
            stored = self.writes.rewrite(resource, resource.key(namespace, name), change)
            self._notify_observers(now)
            return stored

        def make(old: Tree) -> Tree:
            change(old)
            return old

        return self._update(resource, namespace, name, make, now, subresource, user)

    def rewrite(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        change: Callable[[bytes], bytes | None],
        now: float,
    ) -> bool:
        written = self.writes.rewrite_packed(resource, resource.key(namespace, name), change)
        self._notify_observers(now)
        return written

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        now: float,
        requested: DeleteOptions | None = None,
        user: User = SYSTEM_USER,
    ) -> Tree:
        call = self._call("delete", resource, namespace, name, now, user)
        outcome = self._alone(lambda: self.writes.delete(call, requested or DeleteOptions()))
        self._notify_observers(now)
        return outcome.body

    def act(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        subresource: str,
        body: Tree,
        now: float,
        user: User = SYSTEM_USER,
    ) -> SubresourceResult:
        """POST `body` to an acting subresource: `binding`, `eviction`."""
        sub = self._subresource(resource, subresource)
        call = replace(
            self._call("create", resource, namespace, name, now, user, subresource),
            field_validation="Warn",
        )
        schema, kind, version = sub.body_schema(resource)
        head: Tree = {"kind": kind, "apiVersion": version}
        filled, _ = schema.decode({**body, **head}, (), "Ignore")
        filled.update(head)
        schema.default(filled)
        outcome = self._alone(lambda: self.act_on(call, sub, filled))
        self._notify_observers(now)
        return outcome

    def act_on(self, call: ApiCall, sub: Subresource | None, body: Tree) -> SubresourceResult:
        """Admission, then the action of the subresource or resource."""
        if sub is None and self.writes.fields is not None:
            body.setdefault("metadata", {})
            self.writes.fields.created(call, body)
        elif sub is not None and call.namespace and "metadata" in body:
            body["metadata"].setdefault("namespace", call.namespace)
        self.writes.admit(call, body, None)
        self.writes.admit_result(call, body, None)
        act = sub.act if sub is not None else call.resource.act
        if act is None:
            raise no_such_path()
        return act(call, body)

    def bind(self, pod: Tree, node: str, now: float, user: User = SYSTEM_USER) -> SubresourceResult:
        """Bind a pod (as read) to a node."""
        meta = pod["metadata"]
        body: Tree = {
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "target": {"kind": "Node", "name": node},
        }
        pods = self._pods()
        return self.act(pods, meta["namespace"], meta["name"], "binding", body, now, user)

    def evict(
        self, namespace: str, name: str, now: float, user: User = SYSTEM_USER
    ) -> SubresourceResult:
        """Evict a pod, if its disruption budgets allow it."""
        body: Tree = {"metadata": {"name": name, "namespace": namespace}}
        return self.act(self._pods(), namespace, name, "eviction", body, now, user)

    def _pods(self) -> Resource:
        found = self.registry.find("", "v1", "pods")
        if found is None:
            raise no_such_path()
        return found
