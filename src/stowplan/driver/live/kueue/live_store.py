"""`Store` on a live cluster: reads a replica, and writes to the API server before it goes on.

A write carries the resource version of the object that it was decided on, so a write on what has
changed meanwhile is refused (409). Then, and where the outcome is unknown, the object is read
again before anything else is decided: quota is never given twice for a write that was made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import msgspec

from stowplan.apis.machinery.component_errors import ComponentErrors
from stowplan.apis.machinery.errors import ApiError, no_such_path
from stowplan.client.requests import JSON, ApiRequest
from stowplan.client.responses import ApiResponse, error_message, status_of
from stowplan.controller_runtime.event_recorder import CACHED_EVENTS_MAX
from stowplan.controller_runtime.resource_paths import EVENTS
from stowplan.driver.live.kueue.object_replica import ObjectReplica, ReplicatedChange
from stowplan.driver.live.kueue.replicated_kinds import KINDS_BY_PATH, ReplicatedKind
from stowplan.driver.logs import log_keys
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions

log = logging.getLogger("stowplan.writes")

_UNAVAILABLE = 503


class LiveStore:
    """send: sends a request and waits for its answer. on_change: called with each change of the
    replica."""

    def __init__(
        self,
        replica: ObjectReplica,
        send: Callable[[ApiRequest], ApiResponse],
        on_change: Callable[[ReplicatedChange], None],
    ) -> None:
        self.now = 0.0
        self.faults = ComponentErrors()
        self._replica = replica
        self._send = send
        self._on_change = on_change
        self._events: dict[tuple[str, str], bytes] = {}
        self._unsure: dict[tuple[str, str, str], None] = {}

    # Reading.

    def get(self, path: str, namespace: str, name: str) -> Tree | None:
        """A copy of an object; None if it is not known. Of events only own ones are."""
        if path == EVENTS:
            held = self._events.get((namespace, name))
        else:
            held = self._replica.get(path, namespace, name)
        return None if held is None else _tree(path, held)

    def list(self, path: str, namespace: str = "") -> Iterator[Tree]:
        """Copies of the objects of a kind."""
        return (_tree(path, one) for one in self._replica.list(path, namespace))

    def path_of(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        """Path of a kind, and whether it is namespaced."""
        for one in KINDS_BY_PATH.values():
            if (one.resource.api_version, one.kind) == (api_version, kind):
                return one.path, one.resource.is_namespaced
        return None

    def paths(self, namespaced: bool) -> Sequence[str]:
        """Paths of the kinds that are replicated."""
        found = KINDS_BY_PATH.values()
        return sorted(one.path for one in found if one.resource.is_namespaced == namespaced)

    # Writing.

    def create(self, path: str, obj: Tree) -> Tree:
        """Create an object; returns it as stored."""
        target = _served(path).resource.path(namespace=_namespace(obj))
        return self._write(path, obj, ApiRequest("POST", target, (), _encoded(path, obj), JSON))

    def update(self, path: str, obj: Tree) -> Tree:
        """Update an object; returns it as stored."""
        return self._put(path, obj)

    def update_status(self, path: str, obj: Tree) -> Tree:
        """Update an object's status; returns it as stored."""
        return self._put(path, obj, "/status")

    def finalize(self, obj: Tree) -> Tree:
        """Update a namespace through its finalize subresource."""
        return self._put("namespaces", obj, "/finalize")

    def delete(
        self, path: str, namespace: str, name: str, deletion: DeleteOptions | None = None
    ) -> None:
        """Delete an object. It is known until the watch says that it is gone."""
        chosen = deletion or DeleteOptions()
        given = {"uid": chosen.uid, "resourceVersion": chosen.version}
        body: Tree = {"kind": "DeleteOptions", "apiVersion": "v1"}
        conditions = {field: text for field, text in given.items() if text}
        if conditions:
            body["preconditions"] = conditions
        if chosen.propagation:
            body["propagationPolicy"] = chosen.propagation
        if chosen.grace_s is not None:
            body["gracePeriodSeconds"] = chosen.grace_s
        target = _served(path).resource.path(name, namespace)
        answer = self._send(ApiRequest("DELETE", target, (), msgspec.json.encode(body), JSON))
        if not answer.is_done:
            raise self._failure(answer, path, namespace, name)

    def _put(self, path: str, obj: Tree, subresource: str = "") -> Tree:
        target = _served(path).resource.path(obj["metadata"]["name"], _namespace(obj))
        request = ApiRequest("PUT", target + subresource, (), _encoded(path, obj), JSON)
        return self._write(path, obj, request)

    def _write(self, path: str, obj: Tree, request: ApiRequest) -> Tree:
        answer = self._send(request)
        namespace, name = _namespace(obj), str(obj["metadata"]["name"])
        if not answer.is_done:
            raise self._failure(answer, path, namespace, name)
        if not answer.body:
            # Done, but the answer was cut off: what is stored now is read.
            self._unsure[path, namespace, name] = None
            raise ApiError(_UNAVAILABLE, "ServiceUnavailable", answer.fault)
        if path == EVENTS:
            self._keep_event((namespace, name), answer.body)
        else:
            self._changed(self._replica.put(path, answer.body))
        return _tree(path, answer.body)

    def _failure(self, answer: ApiResponse, path: str, namespace: str, name: str) -> ApiError:
        """The error of a write that was not made, or may have been."""
        what = error_message(answer)
        status = status_of(answer.body)
        keys = {"object": f"{path}/{namespace}/{name}", "err": what}
        level = logging.INFO if answer.status in (404, 409) else logging.WARNING
        if path == EVENTS:
            self._events.pop((namespace, name), None)
            log_keys(log, level, "Unable to write event", **keys)
        else:
            self._unsure[path, namespace, name] = None
            log_keys(log, level, "Write failed; the object is read again", **keys)
        reason = "" if status is None else status.reason
        return ApiError(answer.status or _UNAVAILABLE, reason, what)

    # What others write.

    @property
    def is_unsure(self) -> bool:
        """Whether writes failed whose objects have not been read again."""
        return bool(self._unsure)

    def observe(self, path: str, encoded: bytes) -> None:
        """Take over an object that was read or watched."""
        self._changed(self._replica.put(path, encoded))

    def observe_tree(self, path: str, obj: Tree) -> None:
        """Take over an object that was listed."""
        self.observe(path, msgspec.json.encode(obj))

    def observe_deleted(self, path: str, namespace: str, name: str, uid: str, version: str) -> None:
        """Take over that an object is gone. version: the last one that is known."""
        found = self._replica.remove(path, namespace, name, uid, int(version or 0))
        self._changed(found)

    def read_unsure(self) -> bool:
        """Read the objects whose writes failed again; False if some could not be read."""
        for path, namespace, name in list(self._unsure):
            answer = self._send(ApiRequest("GET", _served(path).resource.path(name, namespace)))
            if answer.is_done and answer.body:
                self.observe(path, answer.body)
            elif answer.status == 404:
                held = self.get(path, namespace, name)
                if held is not None:
                    meta = held["metadata"]
                    version = str(meta.get("resourceVersion", ""))
                    self.observe_deleted(path, namespace, name, meta.get("uid", ""), version)
            else:
                return False
            del self._unsure[path, namespace, name]
        return True

    def _changed(self, change: ReplicatedChange | None) -> None:
        if change is not None:
            self._on_change(change)

    def _keep_event(self, key: tuple[str, str], encoded: bytes) -> None:
        self._events.pop(key, None)
        if len(self._events) >= CACHED_EVENTS_MAX:
            del self._events[next(iter(self._events))]
        self._events[key] = encoded


def _served(path: str) -> ReplicatedKind:
    found = KINDS_BY_PATH.get(path)
    if found is None:
        raise no_such_path()
    return found


def _namespace(obj: Tree) -> str:
    return str(obj["metadata"].get("namespace") or "")


def _about(path: str) -> Tree:
    """Objects of a list lack version and kind."""
    found = _served(path)
    return {"apiVersion": found.resource.api_version, "kind": found.kind}


def _tree(path: str, encoded: bytes) -> Tree:
    return {**msgspec.json.decode(encoded), **_about(path)}


def _encoded(path: str, obj: Tree) -> bytes:
    return msgspec.json.encode({**obj, **_about(path)})
