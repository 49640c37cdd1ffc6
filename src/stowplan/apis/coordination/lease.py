"""Lease.

Source: kubernetes v1.36, pkg/registry/coordination/lease, pkg/apis/coordination/validation.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid, not_supported
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
    strategy = spec.get("strategy")
    if strategy is not None:
        if "/" in strategy:
            yield from field_checks.qualified_name(strategy, "spec.strategy.strategy")
        elif strategy != "OldestEmulationVersion":
            yield not_supported("spec.strategy.strategy", strategy, ["OldestEmulationVersion"])
    if spec.get("preferredHolder") and not strategy:
        text = "may only be specified if `strategy` is defined"
        yield forbidden_field("spec.preferredHolder", text)


KIND = KindRegistration(
    group="coordination.k8s.io",
    kind="Lease",
    types=TYPES,
    strategy=BuiltinStrategy(_validate, create_on_update=True, unconditional=False),
    table=PrintedTable("Name, Holder=spec.holderIdentity, Age"),
)
