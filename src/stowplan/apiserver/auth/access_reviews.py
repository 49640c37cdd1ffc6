"""Access reviews: what a user may do, and who the client is.

Reviews are posted and answered, not stored. `KINDS` registers them.

Source: kube-apiserver v1.36, pkg/registry/authorization, pkg/registry/authentication and
pkg/apis/authorization/validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.machinery.access import AlwaysAllow, Attributes
from stowplan.apis.machinery.errors import Cause, bad_request, invalid, invalid_object
from stowplan.apis.machinery.http_messages import User
from stowplan.apis.machinery.resource import ApiCall, PostAction, SubresourceResult
from stowplan.apis.machinery.timestamps import format_time
from stowplan.apiserver.apply.field_set import in_order
from stowplan.apiserver.auth.rbac import MASTERS_GROUP, RbacAuthorizer, RbacDecision
from stowplan.apiserver.auth.review_types import AUTHENTICATION_TYPES, AUTHORIZATION_TYPES
from stowplan.apiserver.auth.service_account_tokens import INVALID, InvalidToken
from stowplan.apiserver.auth.static_tokens import AUTHENTICATED, StaticTokens
from stowplan.apiserver.auth.token_rbac import TokenRbacAccess
from stowplan.objects.encoding.tree import Tree

ONE_OF_ATTRIBUTES = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
BOTH_ATTRIBUTES = "cannot be specified in combination with resourceAttributes"
NO_SUBJECT = "at least one of user or group must be specified"


_NO_TOKENS = StaticTokens()


class ReviewAuthorizer:
    """Authorization as reviews need it, from the server's access control."""

    def __init__(self, call: ApiCall) -> None:
        access = call.access
        self.access = access if isinstance(access, TokenRbacAccess) else TokenRbacAccess(_NO_TOKENS)
        self._rbac = access.rbac if isinstance(access, TokenRbacAccess) else None

    def authorize(self, user: User, wanted: Attributes) -> RbacDecision:
        """Decision about a user; everything is allowed without RBAC."""
        return self._rbac.authorize(user, wanted) if self._rbac else RbacDecision(allowed=True)

    def rbac(self) -> RbacAuthorizer:
        """The stored rules; without RBAC those of cluster-admin."""
        if self._rbac is not None:
            return self._rbac
        rbac = RbacAuthorizer()
        every: Tree = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        paths: Tree = {"verbs": ["*"], "nonResourceURLs": ["*"]}
        rbac.put("ClusterRole", "", "cluster-admin", {"rules": [every, paths]})
        subjects = [{"kind": "Group", "name": group} for group in AlwaysAllow.ADMIN.groups]
        role = {"kind": "ClusterRole", "name": "cluster-admin"}
        rbac.put("ClusterRoleBinding", "", MASTERS_GROUP, {"roleRef": role, "subjects": subjects})
        return rbac


def self_subject_access_review(call: ApiCall, body: Tree) -> SubresourceResult:
    """SelfSubjectAccessReview."""
    spec = body.get("spec") or {}
    _raise_invalid(_spec_causes(spec) + _metadata_causes(body, {}))
    return _reviewed(call, body, spec, call.user)


def subject_access_review(call: ApiCall, body: Tree) -> SubresourceResult:
    """SubjectAccessReview."""
    spec = body.get("spec") or {}
    causes = _spec_causes(spec) + _subject_causes(spec)
    _raise_invalid(causes + _metadata_causes(body, {}))
    return _reviewed(call, body, spec, _reviewed_user(spec))


def local_subject_access_review(call: ApiCall, body: Tree) -> SubresourceResult:
    """LocalSubjectAccessReview."""
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
        causes.append(invalid(path, _go_attributes(spec["nonResourceAttributes"]), text))
    _raise_invalid(causes + _metadata_causes(body, {"namespace": namespace}))
    if namespace != call.namespace:
        raise bad_request(
            f"spec.resourceAttributes.namespace must match namespace: {call.namespace}"
        )
    return _reviewed(call, body, spec, _reviewed_user(spec))


def self_subject_rules_review(call: ApiCall, body: Tree) -> SubresourceResult:
    """SelfSubjectRulesReview."""
    namespace = (body.get("spec") or {}).get("namespace", "")
    if not namespace:
        raise bad_request("no namespace on request")
    resources: list[Tree] = []
    paths: list[Tree] = []
    missing: list[str] = []
    for _, rule in ReviewAuthorizer(call).rbac().grants(call.user, namespace, missing):
        if rule.resources:
            rule_tree: Tree = {"verbs": list(rule.verbs), "apiGroups": list(rule.groups)}
            rule_tree["resources"] = list(rule.resources)
            if rule.names:
                rule_tree["resourceNames"] = list(rule.names)
            resources.append(rule_tree)
        if rule.urls:
            paths.append({"verbs": list(rule.verbs), "nonResourceURLs": list(rule.urls)})
    status: Tree = {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}
    if missing:
        status["evaluationError"] = ", ".join(missing)
    head = _review_head(body) | {"metadata": {}}
    return SubresourceResult(201, {**head, "spec": {}, "status": status})


def self_subject_review(call: ApiCall, body: Tree) -> SubresourceResult:
    """SelfSubjectReview."""
    head = _review_head(body) | {"metadata": {"creationTimestamp": format_time(call.now)}}
    return SubresourceResult(201, {**head, "status": {"userInfo": _user_tree(call.user)}})


def token_review(call: ApiCall, body: Tree) -> SubresourceResult:
    """TokenReview."""
    spec = dict(body.get("spec") or {})
    token = spec.get("token") or ""
    if not token:
        raise bad_request("token is required for TokenReview in authentication")
    access = ReviewAuthorizer(call).access
    own = access.accounts.audience
    wanted = spec.get("audiences") or [own]
    status: Tree = {"user": {}, "error": INVALID}
    try:
        user = access.owner(token, wanted, call.now)
    except InvalidToken as error:
        user = None
        status["error"] = f"[{INVALID}, {error}]"
    claims = access.accounts.claims(token)
    meant = claims.audiences if claims is not None else (own,)
    audiences = [each for each in wanted if each in meant]
    if user is not None:
        status = {"authenticated": True, "user": _user_tree(user), "audiences": audiences}
    return SubresourceResult(201, {**_review_head(body), "spec": spec, "status": status})


def _review_kinds(
    group: str, types: str, actions: Mapping[str, PostAction]
) -> list[KindRegistration]:
    """The kinds of a group; the first registers the types of all."""
    return [
        KindRegistration(
            group=f"{group}.k8s.io",
            kind=kind,
            types="" if number else types,
            namespaced=kind == "LocalSubjectAccessReview",
            verbs=("create",),
            act=act,
        )
        for number, (kind, act) in enumerate(actions.items())
    ]


KINDS = (
    *_review_kinds(
        "authorization",
        AUTHORIZATION_TYPES,
        {
            "SelfSubjectAccessReview": self_subject_access_review,
            "SubjectAccessReview": subject_access_review,
            "LocalSubjectAccessReview": local_subject_access_review,
            "SelfSubjectRulesReview": self_subject_rules_review,
        },
    ),
    *_review_kinds(
        "authentication",
        AUTHENTICATION_TYPES,
        {"SelfSubjectReview": self_subject_review, "TokenReview": token_review},
    ),
)


def _reviewed(call: ApiCall, body: Tree, spec: Tree, user: User) -> SubresourceResult:
    decision = ReviewAuthorizer(call).authorize(user, _reviewed_attributes(spec))
    status: Tree = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return SubresourceResult(201, {**_review_head(body), "spec": spec, "status": status})


def _review_head(body: Tree) -> Tree:
    return {
        "kind": body.get("kind", ""),
        "apiVersion": body.get("apiVersion", ""),
        "metadata": body.get("metadata") or {},
    }


def _reviewed_attributes(spec: Tree) -> Attributes:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes") or {}
    if resource is None:
        return Attributes(other.get("verb", ""), path=other.get("path", "") or "/")
    keys = ("verb", "group", "version", "resource", "subresource", "namespace", "name")
    return Attributes(**{key: resource.get(key, "") for key in keys})


def _reviewed_user(spec: Tree) -> User:
    """The user of a review, with the groups as given."""
    extra = {key: tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    groups = tuple(spec.get("groups") or ())
    return User(spec.get("user", ""), spec.get("uid", ""), groups, extra)


def _user_tree(user: User) -> Tree:
    tree: Tree = {"username": user.name}
    if user.uid:
        tree["uid"] = user.uid
    tree["groups"] = list(user.groups or (AUTHENTICATED,))
    if user.extra:
        tree["extra"] = {key: list(values) for key, values in user.extra.items()}
    return tree


def _spec_causes(spec: Tree) -> list[Cause]:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and other is not None:
        return [invalid("spec.nonResourceAttributes", _go_attributes(other), BOTH_ATTRIBUTES)]
    if resource is None and other is None:
        return [invalid("spec.resourceAttributes", None, ONE_OF_ATTRIBUTES)]
    return []


def _subject_causes(spec: Tree) -> list[Cause]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid("spec.user", "", NO_SUBJECT)]


def _metadata_causes(body: Tree, allowed: Tree) -> list[Cause]:
    metadata = {key: value for key, value in (body.get("metadata") or {}).items() if value}
    if {key: one for key, one in metadata.items() if key != "managedFields"} in ({}, allowed):
        return []
    for entry in metadata.get("managedFields") or ():
        entry["fieldsV1"] = in_order(entry["fieldsV1"])
    text = "must be empty except for namespace" if allowed else "must be empty"
    return [invalid("metadata", metadata, text)]


def _go_attributes(attributes: Tree) -> Any:
    """Attributes as causes print them: a struct with the names of Go fields."""
    return {"Path": attributes.get("path", ""), "Verb": attributes.get("verb", "")}


def _raise_invalid(causes: list[Cause]) -> None:
    """Raises ApiError 422 if there are causes; the original leaves the kind empty."""
    if causes:
        raise invalid_object("authorization.k8s.io", "", "", causes)
