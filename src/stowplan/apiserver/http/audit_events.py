"""Audit events: who asked for what, when, and what was answered.

Source: apiserver v1.36, pkg/apis/audit/v1, pkg/audit/request.go, pkg/endpoints/filters/audit.go and
authn_audit.go.

Differs: one level counts for all requests, without a policy file; the stages are the end of a
request, and the beginning and the end of a watch; annotations of admission are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from stowplan.apis.machinery.access import AccessControl
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User, WatchResponse
from stowplan.apis.machinery.resource import Resource
from stowplan.apis.machinery.timestamps import format_micro_time
from stowplan.apis.protobuf.object_codec import object_codec
from stowplan.apiserver.auth.impersonation import without_impersonation
from stowplan.apiserver.auth.request_info import RequestInfo, attributes_of_info
from stowplan.objects.encoding.tree import Tree

AuditSink = Callable[[Tree], None]
"""Takes each event; it must not wait."""
_UNAUTHORIZED = 401
_READING = {"GET": "get", "HEAD": "get"}
_WRITING = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_STATUS_FIELDS = ("metadata", "status", "message", "reason", "details")


class AuditedRequest(NamedTuple):
    """An answered request. user: who it counts as, None if that is not known. route, resource: of a
    request for a resource. received: when it came."""

    request: HttpRequest
    made: HttpResponse | WatchResponse
    user: User | None
    route: RequestInfo | None
    resource: Resource | None
    received: float


def audit_event(
    asked: AuditedRequest, access: AccessControl, level: str, uid: str, now: float
) -> Tree:
    """The event of a request that is answered now."""
    request, made, route = asked.request, asked.made, asked.route
    query = "&".join(f"{name}={value}" for name, value in request.query)
    watches = isinstance(made, WatchResponse)
    # The original does not read the body of a request without a user, nor reports a later stage.
    is_unknown = asked.user is None and made.status == _UNAUTHORIZED
    event: Tree = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": level,
        "auditID": uid,
        "stage": "ResponseStarted" if watches or is_unknown else "ResponseComplete",
        "requestURI": request.path + (f"?{query}" if query else ""),
        "verb": _verb(request, route, watches=watches),
        **_users(asked, access),
        "sourceIPs": [request.peer.rpartition(":")[0] or request.peer] if request.peer else [],
    }
    agent = request.headers.get("user-agent", "")
    if agent:
        event["userAgent"] = agent
    body = None
    if request.body and route is not None and not is_unknown:
        body = _readable(request.body)
    if route is not None:
        event["objectRef"] = _reference(route, request.method, body)
    answer = _readable(made.body) if isinstance(made, HttpResponse) and made.body else None
    status = {"message": _tried(request)} if is_unknown else _status_fields(answer)
    event["responseStatus"] = {"metadata": {}, **status, "code": made.status}
    if level in ("Request", "RequestResponse") and body is not None:
        event["requestObject"] = _with_kind(asked, body)
    if level == "RequestResponse" and route is not None and answer and not is_unknown:
        event["responseObject"] = answer
    event["requestReceivedTimestamp"] = format_micro_time(asked.received)
    event["stageTimestamp"] = format_micro_time(now)
    if asked.user is not None:
        allowed, reason = access.decision(asked.user, attributes_of_info(request, route))
        event["annotations"] = {
            "authorization.k8s.io/decision": "allow" if allowed else "forbid",
            "authorization.k8s.io/reason": reason,
        }
    return event


def ended_watch_event(began: Tree, now: float) -> Tree:
    """The event of the end of a watch, from that of its beginning."""
    return {**began, "stage": "ResponseComplete", "stageTimestamp": format_micro_time(now)}


def _users(asked: AuditedRequest, access: AccessControl) -> Tree:
    """Who asked, and who for."""
    plain = without_impersonation(asked.request)
    if plain is asked.request:
        return {"user": _user_tree(asked.user)}
    try:
        asking = access.authenticate(plain, asked.received)
    except ApiError:
        return {"user": {}}
    users = {"user": _user_tree(asking)}
    if asked.user is not None:
        users["impersonatedUser"] = _user_tree(asked.user)
    return users


def _tried(request: HttpRequest) -> str:
    """What a request without a user says of the credentials that it had."""
    kind, _, token = request.headers.get("authorization", "").strip().partition(" ")
    tried = ["bearer"] if token and kind.lower() == "bearer" else []
    if any(name == "access_token" and value.strip() for name, value in request.query):
        tried.append("access_token")
    if tried:
        return f"Authentication failed, attempted: {', '.join(tried)}"
    return "Authentication failed, no credentials provided"


def _status_fields(answer: Any) -> Tree:
    """What a Status says; nothing of other answers."""
    if not isinstance(answer, dict) or answer.get("kind") != "Status" or "apiVersion" not in answer:
        return {}
    return {key: answer[key] for key in _STATUS_FIELDS if key in answer}


def _with_kind(asked: AuditedRequest, body: Any) -> Any:
    """A body of a kind's own, with the kind that it may leave out."""
    kind, route = asked.resource, asked.route
    if not isinstance(body, dict) or kind is None or route is None or route.subresource:
        return body
    if asked.request.method not in ("POST", "PUT"):
        return body
    return {"kind": kind.kind, "apiVersion": kind.api_version, **body}


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


def _reference(route: RequestInfo, method: str, body: Any) -> Tree:
    held = {
        "resource": route.plural,
        "namespace": route.namespace,
        "name": route.name,
        "apiGroup": route.group,
        "apiVersion": route.version,
        "subresource": route.subresource,
    }
    meta = body.get("metadata") if isinstance(body, dict) and method in ("POST", "PUT") else None
    if isinstance(meta, dict):
        for key in ("namespace", "name", "uid", "resourceVersion"):
            held[key] = held.get(key) or meta.get(key) or ""
    return {key: value for key, value in held.items() if value}


def _readable(body: bytes) -> Any:
    """A body as a tree; other forms than JSON and protobuf by their length only."""
    try:
        return object_codec().decode(body) if body.startswith(b"k8s\0") else json.loads(body)
    except ValueError:
        return {"bytes": len(body)}
