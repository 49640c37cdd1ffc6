"""RuntimeClass.

Source: kubernetes v1.36, pkg/registry/node/runtimeclass, pkg/apis/node/validation.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.core import pod_scheduling
from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, immutable_fields
from stowplan.apis.machinery.errors import Cause
from stowplan.apis.validation import field_checks, resource_requirements
from stowplan.objects.encoding.tree import Tree

TYPES = """
RuntimeClass
  +PartialObjectMetadata
  handler string! -- configuration of the container runtime.
  overhead Overhead? -- resources of a pod besides its containers.
  scheduling Scheduling? -- nodes that support it.

Overhead
  podFixed core.ResourceList -- resources per pod.

Scheduling
  nodeSelector {string} -- added to the node selector of pods.
  tolerations [core.Toleration] -- added to the tolerations of pods.
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    yield from field_checks.needed(obj["handler"], field_checks.dns_label, "handler")
    fixed = obj.get("overhead", {}).get("podFixed", {})
    for name, value in sorted(fixed.items()):
        # The original names the limits that it converts the overhead to.
        here = f"overhead.limits[{name}]"
        yield from resource_requirements.validate_container_resource_name(name, here)
        yield from resource_requirements.validate_resource_quantity(name, value, here)
    scheduling = obj.get("scheduling", {})
    yield from field_checks.labels(scheduling.get("nodeSelector", {}), "scheduling.nodeSelector")
    yield from pod_scheduling.tolerations(
        scheduling.get("tolerations", []), "scheduling.tolerations"
    )


KIND = KindRegistration(
    group="node.k8s.io",
    kind="RuntimeClass",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(
        _validate,
        immutable_fields("handler", check=_validate),
        create_on_update=True,
        unconditional=False,
    ),
    table=PrintedTable("Name, Handler=handler, Age"),
)
