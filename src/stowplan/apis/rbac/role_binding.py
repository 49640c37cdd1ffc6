"""RoleBinding and ClusterRoleBinding.

Source: kubernetes v1.36, pkg/registry/rbac, pkg/apis/rbac/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import PATH_SEGMENT_NAME, BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, invalid, not_supported, required
from stowplan.apis.rbac.role import GROUP
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
RoleBinding
  +PartialObjectMetadata
  subjects [Subject]
  roleRef RoleRef!

ClusterRoleBinding
  +RoleBinding

Subject
  kind string!
  apiGroup string
  name string!
  namespace string

RoleRef
  apiGroup string!
  kind string!
  name string!
"""


def _set_role_ref_defaults(one: Tree) -> None:
    if not one["roleRef"]["apiGroup"]:
        one["roleRef"]["apiGroup"] = GROUP


def _set_subject_defaults(one: Tree) -> None:
    if one["kind"] in ("User", "Group"):
        one.setdefault("apiGroup", GROUP)


def _validate_binding(obj: Tree, kinds: list[str], namespaced: bool) -> Iterator[Cause]:
    """Role reference and subjects. kinds: the kinds of roles that can be bound."""
    role = obj["roleRef"]
    if role["apiGroup"] != GROUP:
        yield not_supported("roleRef.apiGroup", role["apiGroup"], [GROUP])
    yield from field_checks.one_of(role["kind"], kinds, "roleRef.kind")
    yield from field_checks.needed(role["name"], field_checks.path_segment, "roleRef.name")
    for at, subject in enumerate(obj.get("subjects", ())):
        yield from _validate_subject(subject, namespaced, f"subjects[{at}]")


def _validate_subject(one: Tree, namespaced: bool, path: str) -> Iterator[Cause]:
    if not one["name"]:
        yield required(f"{path}.name")
    group = one.get("apiGroup", "")
    match one["kind"]:
        case "ServiceAccount":
            if one["name"]:
                yield from field_checks.dns_subdomain(one["name"], f"{path}.name")
            if group:
                yield not_supported(f"{path}.apiGroup", group, [""])
            if not namespaced and not one.get("namespace"):
                yield required(f"{path}.namespace")
        case "User" | "Group":
            if group != GROUP:
                yield not_supported(f"{path}.apiGroup", group, [GROUP])
        case other:
            yield not_supported(f"{path}.kind", other, ["ServiceAccount", "User", "Group"])


def _binding_strategy(kinds: list[str], namespaced: bool) -> BuiltinStrategy:
    def validate(obj: Tree) -> Iterator[Cause]:
        return _validate_binding(obj, kinds, namespaced)

    def validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
        yield from validate(new)
        if new["roleRef"] != old["roleRef"]:
            role = new["roleRef"]
            printed = {"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]}
            yield invalid("roleRef", printed, "cannot change roleRef")

    return BuiltinStrategy(
        validate, validate_update, names=PATH_SEGMENT_NAME, create_on_update=True
    )


def _cells(obj: Tree, now: float) -> list[Any]:
    role = f"{obj['roleRef']['kind']}/{obj['roleRef']['name']}"
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for one in obj.get("subjects", ()):
        name = one["name"]
        if one["kind"] == "ServiceAccount" and one.get("namespace"):
            name = f"{one['namespace']}/{name}"
        by_kind.setdefault(one["kind"], []).append(name)
    return [role, *(", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount"))]


_TABLE = PrintedTable("Name, Role, Age, Users+, Groups+, ServiceAccounts+", _cells)
KIND = KindRegistration(
    group=GROUP,
    kind="RoleBinding",
    types=TYPES,
    defaults={
        "rbac/v1.RoleBinding": _set_role_ref_defaults,
        "rbac/v1.Subject": _set_subject_defaults,
    },
    strategy=_binding_strategy(["Role", "ClusterRole"], namespaced=True),
    table=_TABLE,
)
CLUSTER_ROLE_BINDING_KIND = KindRegistration(
    group=GROUP,
    kind="ClusterRoleBinding",
    defaults={"rbac/v1.ClusterRoleBinding": _set_role_ref_defaults},
    namespaced=False,
    strategy=_binding_strategy(["ClusterRole"], namespaced=False),
    table=_TABLE,
)
