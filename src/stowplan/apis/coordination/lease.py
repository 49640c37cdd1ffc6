"""Lease.

Source: kubernetes v1.36, pkg/registry/coordination/lease, pkg/apis/coordination/validation.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, invalid
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
CoordinatedLeaseStrategy = string

Lease -- a lease, as for leader election and node heartbeats.
  +PartialObjectMetadata
  spec LeaseSpec

LeaseSpec
  holderIdentity string?
  leaseDurationSeconds int32?
  acquireTime MicroTime?
  renewTime MicroTime?
  leaseTransitions int32?
  strategy CoordinatedLeaseStrategy?
  preferredHolder string?
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    changes = spec.get("leaseTransitions")
    if changes is not None and changes < 0:
        yield invalid("spec.leaseTransitions", changes, field_checks.NOT_NEGATIVE)


class LeaseStrategy(BuiltinStrategy):
    """Leases: the fields of coordinated leader election, which is off by default, are dropped."""

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        for name in ("strategy", "preferredHolder"):
            obj["spec"].pop(name, None)

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        self.prepare_create(new, call)


KIND = KindRegistration(
    group="coordination.k8s.io",
    kind="Lease",
    types=TYPES,
    strategy=LeaseStrategy(_validate, create_on_update=True, unconditional=False),
    table=PrintedTable("Name, Holder=spec.holderIdentity, Age"),
)
