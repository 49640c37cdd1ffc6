"""RuntimeClass.

Source: kubernetes v1.36, pkg/registry/node/runtimeclass, pkg/apis/node/validation,
pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.core import pod_scheduling
from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, required
from stowplan.apis.validation import field_checks, resource_requirements
from stowplan.objects.encoding.tree import Tree

TYPES = """
RuntimeClass
  +PartialObjectMetadata
  handler string!
  overhead Overhead?
  scheduling Scheduling?

Overhead
  podFixed core.ResourceList

Scheduling
  nodeSelector {string}
  tolerations [core.Toleration]
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    """Handler, overhead, node selector and tolerations."""
    if not obj["handler"]:
        yield required("handler")
    else:
        yield from field_checks.dns_label(obj["handler"], "handler")
    fixed = obj.get("overhead", {}).get("podFixed", {})
    for name, value in sorted(fixed.items()):
        here = f"overhead.podFixed[{name}]"
        yield from resource_requirements.validate_container_resource_name(name, here)
        yield from resource_requirements.validate_resource_quantity(name, value, here)
    scheduling = obj.get("scheduling", {})
    yield from field_checks.labels(scheduling.get("nodeSelector", {}), "scheduling.nodeSelector")
    yield from pod_scheduling.tolerations(
        scheduling.get("tolerations", []), "scheduling.tolerations"
    )


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """The handler is immutable."""
    yield from field_checks.immutable(new["handler"], old["handler"], "handler")


KIND = KindRegistration(
    group="node.k8s.io",
    kind="RuntimeClass",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(
        _validate, _validate_update, create_on_update=True, unconditional=False
    ),
    table=PrintedTable("Name, Handler=handler, Age"),
)
