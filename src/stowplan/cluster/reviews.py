"""Reviews: a client asks the server what it, or somebody else, may do, and who it is.

They are posted and answered, never stored. `ACTS` has what answers each kind.

Source: kube-apiserver v1.36, pkg/registry/authorization, pkg/registry/authentication and
pkg/apis/authorization/validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stowplan.cluster.access import Attributes, Everybody
from stowplan.cluster.errors import ApiError, Cause, bad_request, invalid
from stowplan.cluster.guard import Guard
from stowplan.cluster.rbac import MASTERS, Rbac, Verdict
from stowplan.cluster.resource import Act, Call, Outcome, Tree
from stowplan.cluster.times import stamp
from stowplan.cluster.tokens import AUTHENTICATED, Tokens
from stowplan.cluster.wire import User

AUDIENCE = "https://kubernetes.default.svc"

ONE_OF = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
NOT_BOTH = "cannot be specified in combination with resourceAttributes"
NOBODY = "at least one of user or group must be specified"


class Rights:
    """Rights as reviews ask for them, from whatever access the server has."""

    def __init__(self, call: Call) -> None:
        access = call.server.options.access
        self.tokens = access.tokens if isinstance(access, Guard) else Tokens()
        self._rbac = access.rbac if isinstance(access, Guard) else None

    def verdict(self, user: User, wanted: Attributes) -> Verdict:
        """May `user` do it? Everybody may everything where no rights are kept."""
        return self._rbac.verdict(user, wanted) if self._rbac else Verdict(allowed=True)

    def rbac(self) -> Rbac:
        """The stored rules; the administrator's alone where no rights are kept."""
        if self._rbac is not None:
            return self._rbac
        rbac = Rbac()
        every: Tree = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        paths: Tree = {"verbs": ["*"], "nonResourceURLs": ["*"]}
        rbac.put("ClusterRole", "", "cluster-admin", {"rules": [every, paths]})
        subjects = [{"kind": "Group", "name": group} for group in Everybody.ADMIN.groups]
        role = {"kind": "ClusterRole", "name": "cluster-admin"}
        rbac.put("ClusterRoleBinding", "", MASTERS, {"roleRef": role, "subjects": subjects})
        return rbac


def self_subject_access_review(call: Call, body: Tree) -> Outcome:
    """May I do this?"""
    spec = body.get("spec") or {}
    _refuse(_spec_causes(spec))
    return _reviewed(call, body, spec, call.user)


def subject_access_review(call: Call, body: Tree) -> Outcome:
    """May this user do that?"""
    spec = body.get("spec") or {}
    causes = _spec_causes(spec) + _subject_causes(spec)
    _refuse(causes + _metadata_causes(body, {}))
    return _reviewed(call, body, spec, _subject(spec))


def local_subject_access_review(call: Call, body: Tree) -> Outcome:
    """May this user do that in this namespace?"""
    spec = body.get("spec") or {}
    namespace = (body.get("metadata") or {}).get("namespace", call.namespace)
    resource = spec.get("resourceAttributes")
    causes = _spec_causes(spec) + _subject_causes(spec)
    if resource is not None and resource.get("namespace", "") != namespace:
        path = "spec.resourceAttributes.namespace"
        causes.append(invalid(path, resource.get("namespace", ""), "must match metadata.namespace"))
    if spec.get("nonResourceAttributes") is not None:
        text = "disallowed on this kind of request"
        path = "spec.nonResourceAttributes"
        causes.append(invalid(path, _shown(spec["nonResourceAttributes"]), text))
    _refuse(causes + _metadata_causes(body, {"namespace": namespace}))
    if namespace != call.namespace:
        raise bad_request(
            f"spec.resourceAttributes.namespace must match namespace: {call.namespace}"
        )
    return _reviewed(call, body, spec, _subject(spec))


def self_subject_rules_review(call: Call, body: Tree) -> Outcome:
    """What may I do in this namespace?"""
    namespace = (body.get("spec") or {}).get("namespace", "")
    if not namespace:
        raise bad_request("no namespace on request")
    resources: list[Tree] = []
    paths: list[Tree] = []
    missing: list[str] = []
    for _, rule in Rights(call).rbac().grants(call.user, namespace, missing):
        if rule.resources:
            told: Tree = {"verbs": list(rule.verbs), "apiGroups": list(rule.groups)}
            told["resources"] = list(rule.resources)
            if rule.names:
                told["resourceNames"] = list(rule.names)
            resources.append(told)
        if rule.urls:
            paths.append({"verbs": list(rule.verbs), "nonResourceURLs": list(rule.urls)})
    status: Tree = {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}
    if missing:
        status["evaluationError"] = ", ".join(missing)
    return Outcome(201, {**_head(body), "spec": {}, "status": status})


def self_subject_review(call: Call, body: Tree) -> Outcome:
    """Who am I?"""
    head = _head(body) | {"metadata": {"creationTimestamp": stamp(call.now)}}
    return Outcome(201, {**head, "status": {"userInfo": _told(call.user)}})


def token_review(call: Call, body: Tree) -> Outcome:
    """Whose token is this?"""
    spec = dict(body.get("spec") or {})
    token = spec.get("token") or ""
    if not token:
        raise bad_request("token is required for TokenReview in authentication")
    wanted = spec.get("audiences") or [AUDIENCE]
    audiences = [each for each in wanted if each == AUDIENCE]
    user = Rights(call).tokens.owner(token) if audiences else None
    status: Tree = {"user": {}}
    if user is not None:
        status = {"authenticated": True, "user": _told(user), "audiences": audiences}
    return Outcome(201, {**_head(body), "spec": spec, "status": status})


ACTS: Mapping[str, Act] = {
    "SelfSubjectAccessReview": self_subject_access_review,
    "SubjectAccessReview": subject_access_review,
    "LocalSubjectAccessReview": local_subject_access_review,
    "SelfSubjectRulesReview": self_subject_rules_review,
    "SelfSubjectReview": self_subject_review,
    "TokenReview": token_review,
}
"""By kind, what answers a review."""


def _reviewed(call: Call, body: Tree, spec: Tree, user: User) -> Outcome:
    verdict = Rights(call).verdict(user, _wanted(spec))
    status: Tree = {"allowed": verdict.allowed}
    if verdict.reason:
        status["reason"] = verdict.reason
    return Outcome(201, {**_head(body), "spec": spec, "status": status})


def _head(body: Tree) -> Tree:
    return {
        "kind": body.get("kind", ""),
        "apiVersion": body.get("apiVersion", ""),
        "metadata": body.get("metadata") or {},
    }


def _wanted(spec: Tree) -> Attributes:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes") or {}
    if resource is None:
        return Attributes(other.get("verb", ""), path=other.get("path", "") or "/")
    keys = ("verb", "group", "version", "resource", "subresource", "namespace", "name")
    return Attributes(**{key: resource.get(key, "") for key in keys})


def _subject(spec: Tree) -> User:
    """The user that a review names; groups are taken as they are written."""
    extra = {key: tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    groups = tuple(spec.get("groups") or ())
    return User(spec.get("user", ""), spec.get("uid", ""), groups, extra)


def _told(user: User) -> Tree:
    told: Tree = {"username": user.name}
    if user.uid:
        told["uid"] = user.uid
    told["groups"] = list(user.groups or (AUTHENTICATED,))
    if user.extra:
        told["extra"] = {key: list(values) for key, values in user.extra.items()}
    return told


def _spec_causes(spec: Tree) -> list[Cause]:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and other is not None:
        return [invalid("spec.nonResourceAttributes", _shown(other), NOT_BOTH)]
    if resource is None and other is None:
        return [invalid("spec.resourceAttributes", None, ONE_OF)]
    return []


def _subject_causes(spec: Tree) -> list[Cause]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid("spec.user", "", NOBODY)]


def _metadata_causes(body: Tree, allowed: Tree) -> list[Cause]:
    metadata = {key: value for key, value in (body.get("metadata") or {}).items() if value}
    metadata.pop("managedFields", None)
    if metadata in ({}, allowed):
        return []
    text = "must be empty except for namespace" if allowed else "must be empty"
    return [invalid("metadata", metadata, text)]


def _shown(attributes: Tree) -> Any:
    """Attributes as causes print them: a struct with all of its fields, under their Go names."""
    return {"Path": attributes.get("path", ""), "Verb": attributes.get("verb", "")}


def _refuse(causes: list[Cause]) -> None:
    """Raise ApiError 422 if anything is wrong; the original leaves the kind empty."""
    if not causes:
        return
    group = "authorization.k8s.io"
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    told = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    listed = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    details: Tree = {"group": group, "causes": listed}
    raise ApiError(422, "Invalid", f'.{group} "" is invalid: {told}', details)
