"""CSIStorageCapacity.

Source: kubernetes v1.36, pkg/registry/storage, pkg/apis/storage/validation.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import CREATED_AT
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, immutable_fields
from stowplan.apis.machinery.errors import Cause, invalid
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
CSIStorageCapacity
  +PartialObjectMetadata
  nodeTopology LabelSelector? -- nodes that it applies to.
  storageClassName string! -- StorageClass that it applies to.
  capacity Quantity? -- what is left.
  maximumVolumeSize Quantity? -- greatest volume that can be made.
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    yield from field_checks.selector(obj.get("nodeTopology"), "nodeTopology")
    yield from field_checks.dns_subdomain(obj["storageClassName"], "storageClassName")
    for name in ("capacity", "maximumVolumeSize"):
        value = obj.get(name)
        if value is not None and canonical_quantity.is_negative(value):
            yield invalid(name, value, field_checks.NOT_NEGATIVE)


KIND = KindRegistration(
    group="storage.k8s.io",
    kind="CSIStorageCapacity",
    types=TYPES,
    strategy=BuiltinStrategy(
        _validate,
        immutable_fields("nodeTopology", "storageClassName", check=_validate),
        unconditional=False,
    ),
    table=CREATED_AT,
)
