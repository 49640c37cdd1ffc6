"""CSIDriver.

Source: kubernetes v1.36, pkg/registry/storage, pkg/apis/storage/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.printing import NONE, UNSET, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, duplicate, invalid
from stowplan.apis.machinery.names import subdomain_problems
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
FSGroupPolicy VolumeLifecycleMode = string

CSIDriver
  +PartialObjectMetadata
  spec CSIDriverSpec!

CSIDriverSpec
  attachRequired bool? =true
  podInfoOnMount bool? =false
  volumeLifecycleModes [VolumeLifecycleMode] =["Persistent"]
  storageCapacity bool? =false
  fsGroupPolicy FSGroupPolicy? =ReadWriteOnceWithFSType
  tokenRequests [TokenRequest]
  requiresRepublish bool? =false
  seLinuxMount bool? =false
  nodeAllocatableUpdatePeriodSeconds int64?
  serviceAccountTokenInSecrets bool?
  preventPodSchedulingIfMissing bool?

TokenRequest
  audience string!
  expirationSeconds int64?
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    policies = ("File", "None", "ReadWriteOnceWithFSType")
    yield from field_checks.one_of(spec["fsGroupPolicy"], policies, "spec.fsGroupPolicy")
    audiences: set[str] = set()
    for at, one in enumerate(spec.get("tokenRequests", ())):
        here = f"spec.tokenRequests[{at}]"
        if one["audience"] in audiences:
            yield duplicate(f"{here}.audience", one["audience"])
            continue
        audiences.add(one["audience"])
        seconds = one.get("expirationSeconds")
        if seconds is not None and seconds < 600:
            text = "may not specify a duration less than 10 minutes"
            yield invalid(f"{here}.expirationSeconds", seconds, text)
    for mode in spec["volumeLifecycleModes"]:
        yield from field_checks.one_of(
            mode, ("Persistent", "Ephemeral"), "spec.volumeLifecycleModes"
        )
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        text = "must be greater than or equal to 10 seconds"
        yield invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, text)


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _validate(new)
    spec, before = new["spec"], old["spec"]
    yield from field_checks.immutable(
        spec["attachRequired"], before["attachRequired"], "spec.attachedRequired"
    )
    modes = "volumeLifecycleModes"
    yield from field_checks.immutable(spec[modes], before[modes], f"spec.{modes}")


def _name_problems(name: str, prefix: bool) -> list[str]:
    return subdomain_problems(name.lower(), prefix)


def _cells(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    tokens = spec.get("tokenRequests")
    return [
        spec.get("attachRequired", True),
        ",".join(one["audience"] for one in tokens) if tokens is not None else UNSET,
        ",".join(spec.get("volumeLifecycleModes", ())) or NONE,
    ]


KIND = KindRegistration(
    group="storage.k8s.io",
    kind="CSIDriver",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(
        _validate,
        _validate_update,
        counted=("spec",),
        first=0,
        names=_name_problems,
        unconditional=False,
        returns_deleted=True,
    ),
    table=PrintedTable(
        "Name, AttachRequired:boolean, PodInfoOnMount:boolean=spec.podInfoOnMount, "
        "StorageCapacity:boolean=spec.storageCapacity, TokenRequests, "
        "RequiresRepublish:boolean=spec.requiresRepublish, Modes, Age",
        _cells,
    ),
)
