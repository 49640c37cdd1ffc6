"""A small API server over real HTTP for tests of the driver: objects as trees, lists, watches,
bindings, patches, deletions, leases, events. It counts requests and can be made to fail."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

Tree = dict[str, Any]
Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


def status(code: int, reason: str, message: str, **details: Any) -> web.Response:
    tree = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    tree |= {"message": message, "reason": reason, "code": code, "details": details}
    return web.json_response(tree, status=code)


class SmallApi:
    """objects: (plural, namespace, name) -> tree. writes: (method, path, body) of all that came.
    fault: asked first about every request; what it returns is the answer."""

    def __init__(self, served: set[str] | None = None) -> None:
        """served: plurals; others answer 404 in plain text, as absent resources do."""
        self.served = {"nodes", "pods", "leases", "events"} | (served or set())
        self.objects: dict[tuple[str, str, str], Tree] = {}
        self.history: list[tuple[str, str, Tree]] = []
        self.writes: list[tuple[str, str, Tree]] = []
        self.asked: list[tuple[str, str]] = []
        self.binds: list[tuple[str, str]] = []
        self.fault: Fault | None = None
        self.streams = True
        self.n_watchers = 0
        self._versions = itertools.count(1)
        self._version = 0
        self._oldest = 0
        self._is_closing = False
        self._cuts = 0
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> SmallApi:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        self._is_closing = True
        self._changed.set()
        await self._runner.cleanup()

    # What a test does.

    def put(self, plural: str, tree: Tree, change: str = "") -> Tree:
        tree = copy.deepcopy(tree)
        meta = tree["metadata"]
        key = (plural, meta.get("namespace", ""), meta["name"])
        self._version = next(self._versions)
        meta["resourceVersion"] = str(self._version)
        meta.setdefault("uid", f"uid-{plural}-{meta['name']}-{self._version}")
        kind = change or ("MODIFIED" if key in self.objects else "ADDED")
        if kind == "DELETED":
            self.objects.pop(key, None)
        else:
            self.objects[key] = tree
        self.history.append((kind, plural, tree))
        self._changed.set()
        self._changed = asyncio.Event()
        return tree

    def drop(self, plural: str, namespace: str, name: str) -> None:
        self.put(plural, self.objects[plural, namespace, name], "DELETED")

    def node(self, name: str, cpu: str = "4", pods: str = "110") -> None:
        amounts = {"cpu": cpu, "memory": "16Gi", "pods": pods}
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        self.put("nodes", {"metadata": meta, "spec": {}, "status": {"allocatable": amounts}})

    def pod(self, name: str, cpu: str = "100m", scheduler: str = "stowplan", **spec: Any) -> None:
        container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}
        whole = {"containers": [container], "schedulerName": scheduler} | spec
        meta = {"name": name, "namespace": "default"}
        self.put("pods", {"metadata": meta, "spec": whole, "status": {"phase": "Pending"}})

    def placed(self) -> dict[str, str]:
        """Pod -> node, "" for none."""
        pods = (tree for key, tree in self.objects.items() if key[0] == "pods")
        return {tree["metadata"]["name"]: tree["spec"].get("nodeName", "") for tree in pods}

    def cut_watches(self) -> None:
        """Every watch ends, in the middle of a line."""
        self._cuts += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def forget_history(self) -> None:
        """Whoever asks for changes since a version of before is told that it is too old."""
        self._oldest = self._version + 1

    async def until(self, holds: Callable[[], bool], timeout_s: float = 240.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not holds():
                await asyncio.sleep(0.01)

    # What a client asks.

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path, query = request.path, request.query
        self.asked.append((request.method, request.path_qs))
        if self.fault is not None:
            answer = await self.fault(request)
            if answer is not None:
                return answer
        parts = [part for part in path.split("/") if part]
        rest = parts[2:] if parts[:1] == ["api"] else parts[3:]
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, sub = (*rest, "", "", "")[:3]
        if plural not in self.served:
            return web.Response(status=404, text="404 page not found\n")
        if request.method == "GET":
            if name:
                found = self.objects.get((plural, namespace, name))
                return web.json_response(found) if found else _not_found(plural, name)
            if query.get("watch") == "true":
                return await self._watch(request, plural)
            return self._list(plural, query)
        body = json.loads(await request.read() or b"{}")
        self.writes.append((request.method, path, body))
        return self._write(request.method, (plural, namespace, name), sub, body)

    def _list(self, plural: str, query: Any) -> web.Response:
        items = [tree for key, tree in sorted(self.objects.items()) if key[0] == plural]
        items = [tree for tree in items if _is_selected(tree, query)]
        start = int(query.get("continue", "0"))
        limit = int(query.get("limit", "0")) or len(items)
        meta: Tree = {"resourceVersion": str(self._version)}
        if start + limit < len(items):
            meta["continue"] = str(start + limit)
        return web.json_response({"metadata": meta, "items": items[start : start + limit]})

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        query = request.query
        initial = query.get("sendInitialEvents") == "true"
        if initial and not self.streams:
            text = "sendInitialEvents is forbidden for watch unless the WatchList gate is enabled"
            return status(422, "Invalid", text)
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        done = len(self.history)
        if initial:
            for tree in [t for k, t in sorted(self.objects.items()) if k[0] == plural]:
                if _is_selected(tree, query):
                    await _line(answer, "ADDED", tree)
            mark = {"resourceVersion": str(self._version)}
            mark |= {"annotations": {"k8s.io/initial-events-end": "true"}}  # type: ignore[dict-item]
            await _line(answer, "BOOKMARK", {"metadata": mark, "spec": {"containers": None}})
        else:
            since = int(query["resourceVersion"])
            if since < self._oldest:
                text = f"too old resource version: {since} ({self._oldest})"
                tree = {"kind": "Status", "message": text, "reason": "Expired", "code": 410}
                await _line(answer, "ERROR", tree)
                return answer
            done = sum(int(t["metadata"]["resourceVersion"]) <= since for _, _, t in self.history)
        self.n_watchers += 1
        cuts = self._cuts
        try:
            while not self._is_closing and cuts == self._cuts:
                while done < len(self.history):
                    kind, of, tree = self.history[done]
                    done += 1
                    if of == plural:
                        if _is_selected(tree, query):
                            await _line(answer, kind, tree)
                        else:
                            await _line(answer, "DELETED", self._before(done - 1) or tree)
                await self._changed.wait()
        finally:
            self.n_watchers -= 1
        if not self._is_closing:
            await answer.write(b'{"type":"ADDED","object":{"metadata":{"na')
            assert request.transport is not None
            request.transport.close()
        return answer

    def _before(self, at: int) -> Tree | None:
        """The version before one of the history, under the number of that: so a watch shows what
        is not selected any more."""
        _, of, tree = self.history[at]
        meta = tree["metadata"]
        for _, plural, before in reversed(self.history[:at]):
            known = before["metadata"]
            if plural == of and known["uid"] == meta["uid"]:
                return before | {"metadata": known | {"resourceVersion": meta["resourceVersion"]}}
        return None

    def _write(self, method: str, key: tuple[str, str, str], sub: str, body: Tree) -> web.Response:
        plural, namespace, name = key
        if method == "POST" and sub == "binding":
            return self._bind(key, body)
        if method == "POST":
            body["metadata"].setdefault("namespace", namespace)
            if (plural, namespace, body["metadata"]["name"]) in self.objects:
                return status(409, "AlreadyExists", f"{plural} exists")
            return web.json_response(self.put(plural, body), status=201)
        before = self.objects.get(key)
        if before is None:
            return _not_found(plural, name)
        uid = body.get("metadata", {}).get("uid") or body.get("preconditions", {}).get("uid")
        if uid and uid != before["metadata"]["uid"]:
            return status(409, "Conflict", "the uid is another one", name=name)
        if method == "DELETE":
            self.drop(*key)
            return web.json_response(before)
        if method == "PUT":
            if body["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
                return status(409, "Conflict", "the object has been modified", name=name)
            return web.json_response(self.put(plural, body))
        return web.json_response(self.put(plural, _patched(before, body)))

    def _bind(self, key: tuple[str, str, str], body: Tree) -> web.Response:
        pod = self.objects.get(key)
        if pod is None:
            return _not_found("pods", key[2])
        if pod["spec"].get("nodeName") or pod["metadata"]["uid"] != body["metadata"]["uid"]:
            return status(409, "Conflict", f"pod {key[2]} is already assigned", name=key[2])
        node = body["target"]["name"]
        self.binds.append((key[2], node))
        self.put("pods", _patched(pod, {"spec": {"nodeName": node}}))
        return web.json_response({"kind": "Status", "status": "Success", "code": 201}, status=201)


def _patched(before: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    tree = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            tree.pop(key, None)
        elif key == "conditions":
            others = [c for c in tree.get(key, ()) if c["type"] not in {v["type"] for v in value}]
            tree[key] = others + value
        else:
            tree[key] = _patched(tree.get(key), value)
    return tree


def _not_found(plural: str, name: str) -> web.Response:
    return status(404, "NotFound", f'{plural} "{name}" not found', name=name, kind=plural)


def _is_selected(tree: Tree, query: Any) -> bool:
    """As the one field selector that the scheduler uses has it: pods that have not ended."""
    phase = tree.get("status", {}).get("phase")
    return f"status.phase!={phase}" not in query.get("fieldSelector", "").split(",")


async def _line(answer: web.StreamResponse, kind: str, tree: Tree) -> None:
    await answer.write(json.dumps({"type": kind, "object": tree}).encode() + b"\n")
