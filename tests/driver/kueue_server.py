"""An API server in memory for Kueue's controllers, whose answers are lost at times, whose objects
others change, and whose watches lag."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse
from stowplan.controller_runtime.resource_paths import JOBS
from stowplan.driver.live.kueue.live_store import LiveStore

Tree = dict[str, Any]
Place = tuple[str, str, str]
LOST = 0.25


class KueueServer:
    """objects: by path, namespace and name. is_faulty: answers may be lost."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.objects: dict[Place, Tree] = {}
        self.is_faulty = False
        self.n_lost = self.n_conflicts = 0
        self._version = 0
        self._unseen: list[tuple[Place, Tree]] = []

    def put(self, path: str, tree: Tree) -> Tree:
        """Store an object, as anyone's write."""
        meta = tree["metadata"]
        place = path, meta.get("namespace", ""), meta["name"]
        self._version += 1
        known = self.objects.get(place)
        uid = f"uid-{self._version}" if known is None else known["metadata"]["uid"]
        kept = {"uid": uid, "resourceVersion": str(self._version)}
        stored: Tree = json.loads(json.dumps({**tree, "metadata": {**meta, **kept}}))
        self.objects[place] = stored
        self._unseen.append((place, stored))
        return stored

    def show(self, store: LiveStore, n_most: int) -> None:
        """Have the watch show some changes, oldest first."""
        for place, tree in self._unseen[:n_most]:
            store.observe(place[0], json.dumps(tree).encode())
        del self._unseen[:n_most]

    @property
    def n_unseen(self) -> int:
        """Changes that the watch has not shown."""
        return len(self._unseen)

    def send(self, request: ApiRequest) -> ApiResponse:
        """Answer a request of the store."""
        place, is_status = self._place(request.path)
        if self.is_faulty and self.rng.random() < LOST / 4:
            return ApiResponse(0, fault="unable to connect")
        answer = self._answer(request, place, is_status=is_status)
        is_lost = self.is_faulty and request.is_write and answer.is_done
        if is_lost and self.rng.random() < LOST:
            self.n_lost += 1
            return ApiResponse(0, fault="the connection was reset")
        return answer

    def _answer(self, request: ApiRequest, place: Place, *, is_status: bool) -> ApiResponse:
        known = self.objects.get(place)
        if request.method == "POST":
            tree = json.loads(request.body)
            if place[0] == "events":
                return ApiResponse(201, _version(tree, "1"))
            return ApiResponse(201, json.dumps(self.put(place[0], tree)).encode())
        if known is None:
            return ApiResponse(404)
        if request.method == "GET":
            return ApiResponse(200, json.dumps(known).encode())
        tree = json.loads(request.body)
        if tree["metadata"].get("resourceVersion") != known["metadata"]["resourceVersion"]:
            self.n_conflicts += 1
            return ApiResponse(409)
        if place[0] == JOBS and not is_status and _is_fixed(known, tree):
            return ApiResponse(422, b'{"kind": "Status", "message": "field is immutable"}')
        merged = {**known, "status": tree.get("status", {})} if is_status else tree
        return ApiResponse(200, json.dumps(self.put(place[0], merged)).encode())

    @staticmethod
    def _place(path: str) -> tuple[Place, bool]:
        """What a path names, and whether that is the status."""
        parts = path.strip("/").split("/")
        group = "" if parts[0] == "api" else parts[1]
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        is_status = rest[-1] == "status"
        rest = rest[:-1] if is_status else rest
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        stored = f"{group}/{rest[0]}" if group else rest[0]
        return (stored, namespace, rest[1] if len(rest) > 1 else ""), is_status


def _is_fixed(known: Tree, tree: Tree) -> bool:
    """Whether a Job's template is changed that may not be, as before Kubernetes 1.36."""
    has_started = not known["spec"].get("suspend") or "startTime" in known.get("status", {})
    return has_started and known["spec"]["template"] != tree["spec"]["template"]


def _version(tree: Tree, version: str) -> bytes:
    return json.dumps(
        {**tree, "metadata": {**tree["metadata"], "resourceVersion": version}}
    ).encode()
