"""ClusterRoleBinding.

Source: kubernetes v1.36, pkg/registry/rbac, pkg/apis/rbac/validation/validation.go,
pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import PATH_SEGMENT_NAME, BuiltinStrategy
from stowplan.apis.machinery.errors import Cause
from stowplan.apis.rbac.role import GROUP
from stowplan.apis.rbac.role_binding import (
    BINDING_COLUMNS,
    binding_cells,
    set_role_ref_defaults,
    validate_binding,
    validate_same_role,
)
from stowplan.objects.encoding.tree import Tree

TYPES = """
ClusterRoleBinding
  +PartialObjectMetadata
  subjects [Subject]
  roleRef RoleRef!
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    return validate_binding(obj, ["ClusterRole"], namespaced=False)


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _validate(new)
    yield from validate_same_role(new, old)


KIND = KindRegistration(
    group=GROUP,
    kind="ClusterRoleBinding",
    types=TYPES,
    defaults={"rbac/v1.ClusterRoleBinding": set_role_ref_defaults},
    namespaced=False,
    strategy=BuiltinStrategy(
        _validate, _validate_update, names=PATH_SEGMENT_NAME, create_on_update=True
    ),
    table=PrintedTable(BINDING_COLUMNS, binding_cells),
)
