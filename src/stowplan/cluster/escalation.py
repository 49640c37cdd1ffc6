"""Nobody grants what they do not have: checked when roles and bindings are written.

Who may `escalate` the role, or `bind` it, is let through, and so are administrators.

Source: kube-apiserver v1.36, pkg/registry/rbac (role/policybased, rolebinding/policybased and their
cluster-wide twins), pkg/registry/rbac/validation, component-helpers auth/rbac/validation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import msgspec

from stowplan.cluster.access import Attributes
from stowplan.cluster.errors import ApiError, forbidden
from stowplan.cluster.guard import Guard
from stowplan.cluster.rbac import GROUP, MASTERS, Rbac, Rule
from stowplan.cluster.resource import Call, Tree
from stowplan.cluster.wire import User

_ROLES = ("Role", "ClusterRole")
_BINDINGS = ("RoleBinding", "ClusterRoleBinding")
PARTS_MAX = 10_000
"""Permissions in the rules of one write. Differs: no limit there; a short rule makes billions."""
_EVERYTHING = (
    Rule(verbs=("*",), groups=("*",), resources=("*",)),
    Rule(verbs=("*",), urls=("*",)),
)


class NoEscalation:
    """`resource.Admission`; does nothing where no rights are kept."""

    def admit(self, call: Call, obj: Tree | None, old: Tree | None) -> None:
        """Nothing is changed."""

    def validate(self, call: Call, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403, or 404 for a binding to a role that is not there."""
        access = call.server.options.access
        kind = call.resource.kind
        if call.resource.group != GROUP or obj is None or not isinstance(access, Guard):
            return
        if MASTERS in call.user.groups:
            return
        if kind in _ROLES:
            self._role(call, access.rbac, obj, old)
        elif kind in _BINDINGS:
            self._binding(call, access.rbac, obj)

    def _role(self, call: Call, rbac: Rbac, obj: Tree, old: Tree | None) -> None:
        changing = ("rules", "aggregationRule")
        if old is not None and all(obj.get(key) == old.get(key) for key in changing):
            return
        name = obj["metadata"].get("name", "")
        if _may(rbac, call, "escalate", call.resource.plural, name):
            return
        rules = [Rule.of(rule) for rule in obj.get("rules") or ()]
        if obj.get("aggregationRule"):
            # It will have the rules of roles that nobody knows yet.
            rules += _EVERYTHING
        _confirm(call, rbac, name, rules)

    def _binding(self, call: Call, rbac: Rbac, obj: Tree) -> None:
        ref = obj.get("roleRef") or {}
        kind, role = ref.get("kind", ""), ref.get("name", "")
        plural = "roles" if kind == "Role" else "clusterroles"
        if _may(rbac, call, "bind", plural, role):
            return
        rules = rbac.rules_of(kind, role, call.namespace)
        if rules is None:
            text = f'{kind.lower()}.{GROUP} "{role}" not found'
            details = {"name": role, "group": GROUP, "kind": kind.lower()}
            raise ApiError(404, "NotFound", text, details)
        _confirm(call, rbac, obj["metadata"].get("name", ""), rules)


def _may(rbac: Rbac, call: Call, verb: str, plural: str, name: str) -> bool:
    wanted = Attributes(verb, GROUP, "v1", plural, "", call.namespace, name)
    return rbac.verdict(call.user, wanted).allowed


def _confirm(call: Call, rbac: Rbac, name: str, rules: Iterable[Rule]) -> None:
    rules = list(rules)
    if sum(map(_count, rules)) > PARTS_MAX:
        text = f"the rules come to more than {PARTS_MAX} permissions, which are not compared"
        raise forbidden(GROUP, call.resource.plural, name, text)
    held = [grant.rule for grant in rbac.grants(call.user, call.namespace, [])]
    missing = [
        part
        for rule in rules
        for part in parts(rule)
        if not any(covers(mine, part) for mine in held)
    ]
    if missing:
        told = "\n".join(sorted({shown(rule) for rule in compacted(missing)}))
        text = (
            f"{_user(call.user)} is attempting to grant RBAC permissions not currently held:\n"
            f"{told}"
        )
        raise forbidden(GROUP, call.resource.plural, name, text)


def _user(user: User) -> str:
    groups = " ".join(json.dumps(group) for group in user.groups)
    return f"user {json.dumps(user.name)} (groups=[{groups}])"


def _count(rule: Rule) -> int:
    """How many `parts` a rule has."""
    resources = len(rule.groups) * len(rule.resources) * max(1, len(rule.names))
    return len(rule.verbs) * (len(rule.urls) + resources)


def parts(rule: Rule) -> Iterator[Rule]:
    """The rule as rules of one verb, group, resource and name each."""
    for verb in rule.verbs:
        for url in rule.urls:
            yield Rule(verbs=(verb,), urls=(url,))
        for group in rule.groups:
            for resource in rule.resources:
                for name in rule.names or ("",):
                    names = (name,) if name else ()
                    yield Rule((verb,), (group,), (resource,), names)


def covers(mine: Rule, part: Rule) -> bool:
    """True if a rule that is held allows all that a `part` would."""
    if not _holds(mine.verbs, part.verbs):
        return False
    if part.urls:
        (url,) = part.urls
        return any(
            own == url or (own.endswith("*") and url.startswith(own[:-1])) for own in mine.urls
        )
    (resource,) = part.resources
    _, _, subresource = resource.partition("/")
    return (
        _holds(mine.groups, part.groups)
        and (
            _holds(mine.resources, part.resources)
            or (bool(subresource) and f"*/{subresource}" in mine.resources)
        )
        and (not mine.names or (bool(part.names) and set(part.names) <= set(mine.names)))
    )


def _holds(mine: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return "*" in mine or set(wanted) <= set(mine)


def compacted(rules: Iterable[Rule]) -> list[Rule]:
    """Rules about the same thing as one, with all their verbs."""
    verbs: dict[Rule, list[str]] = {}
    for rule in rules:
        about = msgspec.structs.replace(rule, verbs=())
        verbs.setdefault(about, []).extend(rule.verbs)
    return [
        msgspec.structs.replace(about, verbs=tuple(dict.fromkeys(said)))
        for about, said in verbs.items()
    ]


def shown(rule: Rule) -> str:
    """The rule as refusals print it."""
    fields = {
        "APIGroups": rule.groups,
        "Resources": rule.resources,
        "NonResourceURLs": rule.urls,
        "ResourceNames": rule.names,
        "Verbs": rule.verbs,
    }
    told = (
        f"{name}:[{' '.join(json.dumps(value) for value in values)}]"
        for name, values in fields.items()
        if values
    )
    return "{" + ", ".join(told) + "}"
