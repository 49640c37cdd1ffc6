"""Audit events: who asked for what, when, and what was answered.

Source: apiserver v1.36, pkg/apis/audit/v1, pkg/endpoints/filters/audit.go, pkg/audit/request.go.

Differs: one level counts for all requests, without a policy file; the one stage is the end of a
request, and the beginning of a watch; annotations of admission are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User, WatchResponse
from stowplan.apis.machinery.timestamps import format_micro_time
from stowplan.apiserver.auth.request_info import RequestInfo
from stowplan.objects.encoding.tree import Tree

AuditSink = Callable[[Tree], None]
"""Takes each event; it must not wait."""
_READING = {"GET": "get", "HEAD": "get"}
_WRITING = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def audit_event(
    request: HttpRequest,
    user: User | None,
    made: HttpResponse | WatchResponse,
    level: str,
    times: tuple[float, float],
    uid: str,
    route: RequestInfo | None,
) -> Tree:
    """The event of an answered request. times: when it came and when it was answered."""
    query = "&".join(f"{name}={value}" for name, value in request.query)
    watches = isinstance(made, WatchResponse)
    event: Tree = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": level,
        "auditID": uid,
        "stage": "ResponseStarted" if watches else "ResponseComplete",
        "requestURI": request.path + (f"?{query}" if query else ""),
        "verb": _verb(request, route, watches=watches),
        "user": _user_tree(user),
        "sourceIPs": [request.peer.rpartition(":")[0] or request.peer] if request.peer else [],
    }
    agent = request.headers.get("user-agent", "")
    if agent:
        event["userAgent"] = agent
    if route is not None:
        event["objectRef"] = _reference(route)
    event["responseStatus"] = {"metadata": {}, "code": made.status}
    if level in ("Request", "RequestResponse") and request.body and route is not None:
        event["requestObject"] = _readable(request.body)
    if level == "RequestResponse" and isinstance(made, HttpResponse) and route is not None:
        event["responseObject"] = _readable(made.body)
    event["requestReceivedTimestamp"] = format_micro_time(times[0])
    event["stageTimestamp"] = format_micro_time(times[1])
    decision = "forbid" if made.status == 403 else "allow"
    event["annotations"] = {"authorization.k8s.io/decision": decision}
    return event


def _verb(request: HttpRequest, route: RequestInfo | None, *, watches: bool) -> str:
    if route is None:
        return request.method.lower()
    if watches:
        return "watch"
    if request.method in _READING:
        return "get" if route.name else "list"
    verb = _WRITING.get(request.method, request.method.lower())
    return "deletecollection" if verb == "delete" and not route.name else verb


def _user_tree(user: User | None) -> Tree:
    if user is None:
        return {}
    held: Tree = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    return {key: value for key, value in held.items() if value}


def _reference(route: RequestInfo) -> Tree:
    held = {
        "resource": route.plural,
        "namespace": route.namespace,
        "name": route.name,
        "apiGroup": route.group,
        "apiVersion": route.version,
        "subresource": route.subresource,
    }
    return {key: value for key, value in held.items() if value}


def _readable(body: bytes) -> Any:
    """A body as a tree; other forms than JSON by their length only."""
    try:
        return json.loads(body)
    except ValueError:
        return {"bytes": len(body)}
