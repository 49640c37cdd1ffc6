"""Role-based access control from the stored roles and bindings.

`put` follows changes of the stored objects; decisions are cached until the next change. Rules only
allow, so the first that matches decides.

Source: kube-apiserver v1.36, plugin/auth/authorizer/rbac and pkg/registry/rbac/validation.
Differs: a ClusterRole with an aggregationRule has the rules of the selected roles at once; in the
original a controller copies them into its `rules` later.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from stowplan.apis.machinery.access import Attributes
from stowplan.apis.machinery.errors import ApiError, aggregated, qualified_resource
from stowplan.apis.machinery.http_messages import User
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.selectors import LabelSelector, SelectorError, label_selector_matches

GROUP = "rbac.authorization.k8s.io"
MASTERS_GROUP = "system:masters"
SERVICE_ACCOUNT = "system:serviceaccount:"
_CACHED_DECISIONS_MAX = 10_000
_CACHED_KEY_CHARS_MAX = 512
"""Longest key of a cached decision, in characters; clients choose paths and names."""


class PolicyRule(msgspec.Struct, frozen=True):
    """One rule of a role. names: empty means all. urls: set for non-resource URLs."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> PolicyRule:
        """The rule of an API object."""
        keys = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
        return cls(*(tuple(tree.get(key) or ()) for key in keys))

    def allows(self, wanted: Attributes) -> bool:
        """True if this rule allows `wanted`."""
        if not _matches_value(self.verbs, wanted.verb):
            return False
        if wanted.path:
            return any(covers_path(url, wanted.path) for url in self.urls)
        return (
            _matches_value(self.groups, wanted.group)
            and self._covers_resource(wanted.resource, wanted.subresource)
            and (not self.names or wanted.name in self.names)
        )

    def _covers_resource(self, resource: str, subresource: str) -> bool:
        whole = f"{resource}/{subresource}" if subresource else resource
        if "*" in self.resources or whole in self.resources:
            return True
        return bool(subresource) and f"*/{subresource}" in self.resources


def _matches_value(values: tuple[str, ...], value: str) -> bool:
    return "*" in values or value in values


def covers_path(url: str, path: str) -> bool:
    """True if a path or pattern (`/metrics/*`) covers another path or pattern."""
    return url == path or (url.endswith("*") and path.startswith(url.rstrip("*")))


class RbacSubject(NamedTuple):
    """A subject of a binding. kind: User, Group or ServiceAccount."""

    kind: str
    name: str
    namespace: str

    def is_one_of(self, user: User, namespace: str) -> bool:
        """True if `user` is the subject. namespace: of the binding, "" for a ClusterRoleBinding."""
        if self.kind == "User":
            return user.name == self.name
        if self.kind == "Group":
            return self.name in user.groups
        if self.kind == "ServiceAccount":
            home = self.namespace or namespace
            return bool(home) and user.name == f"{SERVICE_ACCOUNT}{home}:{self.name}"
        return False

    def describe(self, namespace: str) -> str:
        """The text in reasons."""
        if self.kind == "ServiceAccount":
            return f'{self.kind} "{self.name}/{self.namespace or namespace}"'
        return f'{self.kind} "{self.name}"'


class RbacBinding(NamedTuple):
    """A RoleBinding, or a ClusterRoleBinding whose namespace is ""."""

    name: str
    namespace: str
    role_kind: str
    role: str
    subjects: tuple[RbacSubject, ...]

    def source(self, subject: RbacSubject) -> str:
        """The text in reasons."""
        kind, name = "ClusterRoleBinding", self.name
        if self.namespace:
            kind, name = "RoleBinding", f"{self.name}/{self.namespace}"
        to = subject.describe(self.namespace)
        return f'{kind} "{name}" of {self.role_kind} "{self.role}" to {to}'


class RbacRole(NamedTuple):
    """A Role or ClusterRole. selectors: of aggregated roles; None: it has its own rules."""

    rules: tuple[PolicyRule, ...]
    labels: Mapping[str, str]
    selectors: tuple[LabelSelector, ...] | None


class RbacDecision(NamedTuple):
    """A decision. reason: why it is allowed, or which roles could not be resolved."""

    allowed: bool
    reason: str = ""


class RuleGrant(NamedTuple):
    """A rule of a user. source: the binding that grants it."""

    source: str
    rule: PolicyRule


class RbacAuthorizer:
    """The stored roles and bindings, and what they allow."""

    def __init__(self) -> None:
        self._roles: dict[tuple[str, str], RbacRole] = {}
        self._bindings: dict[str, dict[str, RbacBinding]] = {}
        self._remembered: OrderedDict[tuple[str, tuple[str, ...], Attributes], RbacDecision]
        self._remembered = OrderedDict()

    def put(self, kind: str, namespace: str, name: str, obj: Tree | None) -> None:
        """Update a role or binding; None: it was deleted. Other kinds are ignored."""
        if kind in ("Role", "ClusterRole"):
            # Removed first: a role that cannot be decoded grants nothing, not its former rules.
            self._remembered.clear()
            self._roles.pop((namespace, name), None)
            if obj is not None:
                self._roles[(namespace, name)] = _role(obj)
        elif kind in ("RoleBinding", "ClusterRoleBinding"):
            self._remembered.clear()
            bindings = self._bindings.setdefault(namespace, {})
            bindings.pop(name, None)
            if obj is not None:
                bindings[name] = _binding(namespace, name, obj)

    def authorize(self, user: User, wanted: Attributes) -> RbacDecision:
        """The decision about a request of `user`; system:masters are allowed everything."""
        if MASTERS_GROUP in user.groups:
            return RbacDecision(allowed=True)
        key = (user.name, user.groups, wanted)
        known = self._remembered.get(key)
        if known is not None:
            self._remembered.move_to_end(key)
            return known
        known = self._decide(user, wanted)
        if _cache_key_length(user, wanted) <= _CACHED_KEY_CHARS_MAX:
            self._remembered[key] = known
            if len(self._remembered) > _CACHED_DECISIONS_MAX:
                self._remembered.popitem(last=False)
        return known

    def _decide(self, user: User, wanted: Attributes) -> RbacDecision:
        missing: list[str] = []
        for grant in self.grants(user, wanted.namespace, missing):
            if grant.rule.allows(wanted):
                return RbacDecision(allowed=True, reason=f"RBAC: allowed by {grant.source}")
        if not missing:
            return RbacDecision(allowed=False)
        text = aggregated(list(dict.fromkeys(missing)))
        return RbacDecision(allowed=False, reason=f"RBAC: {text}")

    def grants(self, user: User, namespace: str, missing: list[str]) -> Iterator[RuleGrant]:
        """The rules of `user` in a namespace ("": cluster-wide), in order of the bindings.

        missing: gets a text for each role of a binding that does not exist.
        """
        for home in ("", namespace) if namespace else ("",):
            bindings = self._bindings.get(home, {})
            for name in sorted(bindings):
                binding = bindings[name]
                subject = next((s for s in binding.subjects if s.is_one_of(user, home)), None)
                if subject is None:
                    continue
                source = binding.source(subject)
                for rule in self._rules(binding, missing):
                    yield RuleGrant(source, rule)

    def rules_of(self, kind: str, name: str, namespace: str) -> list[PolicyRule] | None:
        """All rules of a role; None if it does not exist."""
        role = self._roles.get((namespace if kind == "Role" else "", name))
        return None if role is None else list(self._whole(name, role, seen=set()))

    def _rules(self, binding: RbacBinding, missing: list[str]) -> Iterator[PolicyRule]:
        home = binding.namespace if binding.role_kind == "Role" else ""
        role = self._roles.get((home, binding.role))
        if role is None:
            missing.append(f'{binding.role_kind.lower()}.{GROUP} "{binding.role}" not found')
            return
        yield from self._whole(binding.role, role, seen=set())

    def _whole(self, name: str, role: RbacRole, seen: set[str]) -> Iterator[PolicyRule]:
        """The rules of a role, aggregated roles included; cycles end."""
        if role.selectors is None:
            yield from role.rules
            return
        seen.add(name)
        for (namespace, other), chosen in sorted(self._roles.items(), key=lambda item: item[0]):
            if namespace or other in seen:
                continue
            if any(_selects(each, chosen.labels) for each in role.selectors):
                seen.add(other)
                yield from self._whole(other, chosen, seen)


def _cache_key_length(user: User, wanted: Attributes) -> int:
    """Length of the texts of a cache key."""
    texts = (*msgspec.structs.astuple(wanted), user.name, *user.groups)
    return sum(map(len, texts))


def _selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    try:
        return label_selector_matches(selector, labels)
    except SelectorError:
        # An invalid selector that is stored selects nothing: fewer permissions, not more.
        return False


def _role(obj: Tree) -> RbacRole:
    selectors = None
    if aggregation := obj.get("aggregationRule"):
        listed = aggregation.get("clusterRoleSelectors") or ()
        selectors = msgspec.convert(listed, tuple[LabelSelector, ...])
    rules = tuple(PolicyRule.of(rule) for rule in obj.get("rules") or ())
    return RbacRole(rules, obj.get("metadata", {}).get("labels") or {}, selectors)


def _binding(namespace: str, name: str, obj: Tree) -> RbacBinding:
    role = obj.get("roleRef") or {}
    subjects = tuple(
        RbacSubject(each.get("kind", ""), each.get("name", ""), each.get("namespace", ""))
        for each in obj.get("subjects") or ()
    )
    return RbacBinding(name, namespace, role.get("kind", ""), role.get("name", ""), subjects)


def forbidden_by_rbac(user: User, wanted: Attributes, reason: str = "") -> ApiError:
    """403 with the original's text."""
    tail = f": {reason}" if reason else ""
    who = f"User {json.dumps(user.name, ensure_ascii=False)} cannot {wanted.verb}"
    headers = (("X-Content-Type-Options", "nosniff"),)
    if wanted.path:
        text = f'forbidden: {who} path "{wanted.path}"{tail}'
        return ApiError(403, "Forbidden", text, {}, headers)
    whole = wanted.resource + (f"/{wanted.subresource}" if wanted.subresource else "")
    where = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    subject = qualified_resource(wanted.group, wanted.resource)
    details: Tree = {"kind": wanted.resource}
    if wanted.group:
        details["group"] = wanted.group
    if wanted.name:
        details["name"] = wanted.name
        subject += f' "{wanted.name}"'
    text = f'{subject} is forbidden: {who} resource "{whole}" in API group "{wanted.group}" {where}'
    return ApiError(403, "Forbidden", text + tail, details, headers)
