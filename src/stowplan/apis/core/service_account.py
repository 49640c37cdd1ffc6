"""ServiceAccount.

Source: kubernetes v1.36, pkg/registry/core/serviceaccount.
"""

from __future__ import annotations

from stowplan.apis.kind.printing import NAME_AND_AGE
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy

TYPES = """
ServiceAccount -- an identity for processes in pods.
  +PartialObjectMetadata
  secrets [ObjectReference] ~merge:name
  imagePullSecrets [LocalObjectReference]
  automountServiceAccountToken bool?
"""


KIND = KindRegistration(
    kind="ServiceAccount",
    types=TYPES,
    strategy=BuiltinStrategy(returns_deleted=True),
    short_names=("sa",),
    table=NAME_AND_AGE,
)
