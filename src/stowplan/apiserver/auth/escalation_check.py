"""Privilege escalation check of roles and bindings: users grant only permissions that they hold.

Users with the verb `escalate` or `bind` on the role, and administrators, are exempt. Any change of
a role is checked, of labels too: aggregated roles select rules by label.

Source: kube-apiserver v1.36, pkg/registry/rbac (role/policybased, rolebinding/policybased and their
cluster-wide twins), pkg/registry/rbac/validation, component-helpers auth/rbac/validation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice

import msgspec

from stowplan.apis.machinery.access import Attributes
from stowplan.apis.machinery.errors import ApiError, aggregated, forbidden
from stowplan.apis.machinery.http_messages import User
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.auth.rbac import GROUP, MASTERS_GROUP, PolicyRule, RbacAuthorizer
from stowplan.apiserver.auth.rule_coverage import MISSING_RULES_MAX, OwnerRules
from stowplan.apiserver.auth.token_rbac import TokenRbacAccess
from stowplan.objects.encoding.tree import Tree

_ROLES = ("Role", "ClusterRole")
_BINDINGS = ("RoleBinding", "ClusterRoleBinding")
_OWNERSHIP_FIELDS = ("ownerReferences", "finalizers", "managedFields", "selfLink")
_ALL_RULES = (
    PolicyRule(verbs=("*",), groups=("*",), resources=("*",)),
    PolicyRule(verbs=("*",), urls=("*",)),
)


class EscalationCheck:
    """`resource.AdmissionPlugin`, the last one; does nothing without RBAC."""

    repeatable = True

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403, or 404 for a binding to a missing role.

        Before validation, as in the original: without permission there are no other errors.
        """
        access = call.access
        kind = call.resource.kind
        if call.resource.group != GROUP or obj is None or not isinstance(access, TokenRbacAccess):
            return
        if MASTERS_GROUP in call.user.groups or (
            old is not None and _changes_ownership_only(obj, old)
        ):
            return
        if kind in _ROLES:
            self._role(call, access.rbac, obj, old)
        elif kind in _BINDINGS:
            self._binding(call, access.rbac, obj)

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Does nothing."""

    def _role(self, call: ApiCall, rbac: RbacAuthorizer, obj: Tree, old: Tree | None) -> None:
        # A POST has no name in its path: `escalate` on resourceNames does not allow it.
        if _is_allowed(rbac, call, "escalate", call.resource.plural, call.name):
            return
        name = obj["metadata"].get("name", "")
        _confirm_held(call, rbac, name, [PolicyRule.of(rule) for rule in obj.get("rules") or ()])
        if not _aggregates(obj) and not _aggregates(old):
            return
        # It aggregates roles that are created later; once it is removed, the rules stay.
        if any(True for rule in _ALL_RULES for _ in _held_rules(call, rbac, []).missing(rule)):
            text = "must have cluster-admin privileges to use the aggregationRule"
            raise forbidden(GROUP, call.resource.plural, name, text)

    def _binding(self, call: ApiCall, rbac: RbacAuthorizer, obj: Tree) -> None:
        ref = obj.get("roleRef") or {}
        kind, role = ref.get("kind", ""), ref.get("name", "")
        if kind not in _ROLES:
            # Differs: 422 by validation instead of 500 for another kind.
            return
        if _is_allowed(rbac, call, "bind", "roles" if kind == "Role" else "clusterroles", role):
            return
        rules = rbac.rules_of(kind, role, call.namespace)
        if rules is None:
            text = f'{kind.lower()}.{GROUP} "{role}" not found'
            details = {"name": role, "group": GROUP, "kind": kind.lower()}
            raise ApiError(404, "NotFound", text, details)
        _confirm_held(call, rbac, obj["metadata"].get("name", ""), rules)


def _aggregates(obj: Tree | None) -> bool:
    return bool(((obj or {}).get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _changes_ownership_only(obj: Tree, old: Tree) -> bool:
    """True if only owner references and finalizers change (garbage collection)."""

    def rest(tree: Tree) -> Tree:
        meta = {
            key: value for key, value in tree["metadata"].items() if key not in _OWNERSHIP_FIELDS
        }
        kept = {key: value for key, value in tree.items() if key not in ("kind", "apiVersion")}
        return kept | {"metadata": meta}

    return rest(obj) == rest(old)


def _is_allowed(rbac: RbacAuthorizer, call: ApiCall, verb: str, plural: str, name: str) -> bool:
    wanted = Attributes(verb, GROUP, "v1", plural, "", call.namespace, name)
    return rbac.authorize(call.user, wanted).allowed


def _held_rules(call: ApiCall, rbac: RbacAuthorizer, unresolved: list[str]) -> OwnerRules:
    return OwnerRules([grant.rule for grant in rbac.grants(call.user, call.namespace, unresolved)])


def _confirm_held(
    call: ApiCall, rbac: RbacAuthorizer, name: str, rules: Iterable[PolicyRule]
) -> None:
    """Raises ApiError 403 unless the user holds all permissions of `rules`."""
    unresolved: list[str] = []
    held = _held_rules(call, rbac, unresolved)
    missing = list(
        islice((part for rule in rules for part in held.missing(rule)), MISSING_RULES_MAX)
    )
    if not missing:
        return
    rules_text = "\n".join(sorted({rule_text(rule) for rule in compact_rules(missing)}))
    text = (
        f"{_user_text(call.user)} is attempting to grant RBAC permissions "
        f"not currently held:\n{rules_text}"
    )
    if unresolved:
        text += f"; resolution errors: [{aggregated(list(dict.fromkeys(unresolved)))}]"
    raise forbidden(GROUP, call.resource.plural, name, text)


def _user_text(user: User) -> str:
    groups = " ".join(json.dumps(group) for group in user.groups)
    return f"user {json.dumps(user.name)} (groups=[{groups}])"


def compact_rules(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Merge rules of the same resource into one with all verbs; URL rules are kept."""
    verbs: dict[PolicyRule, list[str]] = {}
    paths: list[PolicyRule] = []
    for rule in rules:
        if rule.urls:
            paths.append(rule)
            continue
        about = msgspec.structs.replace(rule, verbs=())
        verbs.setdefault(about, []).extend(rule.verbs)
    return paths + [
        msgspec.structs.replace(about, verbs=tuple(dict.fromkeys(listed)))
        for about, listed in verbs.items()
    ]


def rule_text(rule: PolicyRule) -> str:
    """The rule as errors print it."""
    fields = {
        "APIGroups": rule.groups,
        "Resources": rule.resources,
        "NonResourceURLs": rule.urls,
        "ResourceNames": rule.names,
        "Verbs": rule.verbs,
    }
    fields_text = (
        f"{name}:[{' '.join(json.dumps(value) for value in values)}]"
        for name, values in fields.items()
        if values
    )
    return "{" + ", ".join(fields_text) + "}"
