"""The subresource `token` of service accounts.

Source: kubernetes v1.36, pkg/registry/core/serviceaccount/storage/token.go,
pkg/apis/authentication/validation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from stowplan.apis.machinery.errors import (
    Cause,
    bad_request,
    conflict,
    invalid,
    invalid_object,
    not_found,
)
from stowplan.apis.machinery.object_meta import UidGenerator
from stowplan.apis.machinery.resource import ApiCall, Subresource, SubresourceResult
from stowplan.apis.machinery.timestamps import add_seconds, format_time
from stowplan.apis.schema import kind_schema
from stowplan.apiserver.auth.service_account_tokens import ServiceAccountTokens, TokenClaims
from stowplan.apiserver.auth.token_rbac import TokenRbacAccess
from stowplan.objects.encoding.tree import Tree

GROUP, KIND = "authentication.k8s.io", "TokenRequest"
SECONDS_MIN, SECONDS_MAX = 600, 1 << 32
_NAMESPACED = {"Pod": "pods", "Secret": "secrets"}


def request_token(call: ApiCall, body: Tree) -> SubresourceResult:
    """A token of the account, with what was asked for. Raises ApiError."""
    given, spec = body.get("metadata") or {}, dict(body["spec"])
    for name, value in (("name", call.name), ("namespace", call.namespace)):
        if given.get(name) and given[name] != value:
            text = f"must match the service account {name} if specified"
            causes = [invalid(f"metadata.{name}", given[name], text)]
            raise invalid_object(GROUP, KIND, call.name, causes)
    account = call.objects.get(call.resource, call.namespace, call.name)
    if account is None:
        raise not_found("", "serviceaccounts", call.name)
    uid = account["metadata"]["uid"]
    if given.get("uid") and given["uid"] != uid:
        about = f"the UID in the token request ({given['uid']}) does not match the UID of the"
        raise conflict(GROUP, KIND, call.name, f"{about} service account ({uid})")
    access = call.access
    tokens = access.accounts if isinstance(access, TokenRbacAccess) else ServiceAccountTokens(b"")
    audiences = spec.get("audiences") or [tokens.audience]
    causes = list(_causes(spec["expirationSeconds"]))
    if causes:
        raise invalid_object(GROUP, KIND, "", causes)
    expires = add_seconds(call.now, spec["expirationSeconds"])
    token = tokens.issue(
        TokenClaims(
            call.namespace,
            call.name,
            uid,
            tuple(audiences),
            call.now,
            expires,
            UidGenerator(call.rng).new(),
            _bound(call, spec.get("boundObjectRef")),
        )
    )
    meta = {"name": call.name, "namespace": call.namespace, "uid": uid}
    made = {
        "kind": KIND,
        "apiVersion": f"{GROUP}/v1",
        "metadata": {**given, **meta, "creationTimestamp": format_time(call.now)},
        "spec": {**spec, "audiences": audiences},
        "status": {"token": token, "expirationTimestamp": format_time(expires)},
    }
    return SubresourceResult(201, made)


def _causes(seconds: int) -> Iterator[Cause]:
    path = "spec.expirationSeconds"
    if seconds < SECONDS_MIN:
        yield invalid(path, seconds, "may not specify a duration less than 10 minutes")
    if seconds > SECONDS_MAX:
        yield invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")


def _bound(call: ApiCall, reference: Tree | None) -> tuple[tuple[str, tuple[str, str]], ...]:
    """What the token is bound to; with a pod its node as well. Raises ApiError."""
    if reference is None:
        return ()
    kind, version = reference.get("kind", ""), reference.get("apiVersion", "")
    group, _, last = version.rpartition("/")
    if group or kind not in (*_NAMESPACED, "Node"):
        raise bad_request(f"cannot bind token to object of type {group}/{last}, Kind={kind}")
    path = _NAMESPACED.get(kind, "nodes")
    name = reference.get("name", "")
    found = _object(call, path, "" if kind == "Node" else call.namespace, name)
    if found is None:
        raise not_found("", path, name)
    uid = found["metadata"]["uid"]
    bound = [(kind.lower(), (name, uid))]
    if kind == "Pod":
        if found["spec"].get("serviceAccountName", "") != call.name:
            raise bad_request(
                f"cannot bind token for serviceaccount {json.dumps(call.name)} to pod running with"
                " different serviceaccount name."
            )
        node = found["spec"].get("nodeName")
        if node:
            host = _object(call, "nodes", "", node) or {"metadata": {"uid": ""}}
            bound.append(("node", (node, host["metadata"]["uid"])))
    if reference.get("uid") and reference["uid"] != uid:
        about = f"the UID in the bound object reference ({reference['uid']}) does not match the"
        why = f"{about} UID in record. The object might have been deleted and then recreated"
        raise conflict("", kind, name, why)
    return tuple(bound)


def _object(call: ApiCall, path: str, namespace: str, name: str) -> Tree | None:
    resource = call.objects.registry.by_path(path)
    return None if resource is None else call.objects.get(resource, namespace, name)


TOKEN_SUBRESOURCE = Subresource(
    "token",
    ("create",),
    act=request_token,
    group=GROUP,
    version="v1",
    kind=KIND,
    schema=kind_schema(f"authentication/v1.{KIND}", GROUP),
)
