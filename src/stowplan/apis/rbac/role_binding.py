"""RoleBinding.

Source: kubernetes v1.36, pkg/registry/rbac, pkg/apis/rbac/validation/validation.go,
pkg/printers/internalversion/printers.go.
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

BINDING_COLUMNS = "Name, Role, Age, Users+, Groups+, ServiceAccounts+"

TYPES = """
RoleBinding
  +PartialObjectMetadata
  subjects [Subject]
  roleRef RoleRef!

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


def set_role_ref_defaults(one: Tree) -> None:
    """roleRef.apiGroup is rbac.authorization.k8s.io."""
    if not one["roleRef"]["apiGroup"]:
        one["roleRef"]["apiGroup"] = "rbac.authorization.k8s.io"


def _set_subject_defaults(one: Tree) -> None:
    """apiGroup of users and groups is rbac.authorization.k8s.io."""
    if one["kind"] in ("User", "Group"):
        one.setdefault("apiGroup", "rbac.authorization.k8s.io")


def validate_binding(obj: Tree, kinds: list[str], namespaced: bool) -> Iterator[Cause]:
    """Role reference and subjects. kinds: the kinds of roles that can be bound."""
    role = obj["roleRef"]
    if role["apiGroup"] != GROUP:
        yield not_supported("roleRef.apiGroup", role["apiGroup"], [GROUP])
    if role["kind"] not in kinds:
        yield not_supported("roleRef.kind", role["kind"], kinds)
    if not role["name"]:
        yield required("roleRef.name")
    else:
        yield from field_checks.path_segment(role["name"], "roleRef.name")
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
            kinds = ["ServiceAccount", "User", "Group"]
            yield not_supported(f"{path}.kind", other, kinds)


def _validate(obj: Tree) -> Iterator[Cause]:
    return validate_binding(obj, ["Role", "ClusterRole"], namespaced=True)


def validate_same_role(new: Tree, old: Tree) -> Iterator[Cause]:
    """`roleRef` is immutable."""
    if new["roleRef"] != old["roleRef"]:
        role = new["roleRef"]
        printed = {"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]}
        yield invalid("roleRef", printed, "cannot change roleRef")


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _validate(new)
    yield from validate_same_role(new, old)


def binding_cells(obj: Tree, now: float) -> list[Any]:
    """The cells of a binding, in the order of `BINDING_COLUMNS`."""
    role = f"{obj['roleRef']['kind']}/{obj['roleRef']['name']}"
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for one in obj.get("subjects", ()):
        name = one["name"]
        if one["kind"] == "ServiceAccount" and one.get("namespace"):
            name = f"{one['namespace']}/{name}"
        by_kind.setdefault(one["kind"], []).append(name)
    return [role, *(", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount"))]


KIND = KindRegistration(
    group=GROUP,
    kind="RoleBinding",
    types=TYPES,
    defaults={
        "rbac/v1.RoleBinding": set_role_ref_defaults,
        "rbac/v1.Subject": _set_subject_defaults,
    },
    strategy=BuiltinStrategy(
        _validate, _validate_update, names=PATH_SEGMENT_NAME, create_on_update=True
    ),
    table=PrintedTable(BINDING_COLUMNS, binding_cells),
)
