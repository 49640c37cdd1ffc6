"""DeviceClass.

Source: kubernetes v1.36, pkg/registry/resource, pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import NAME_AND_AGE
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause
from stowplan.apis.resource.device_validation import (
    validate_device_config,
    validate_device_selectors,
)
from stowplan.objects.encoding.tree import Tree

TYPES = """
DeviceSelector
  cel CELDeviceSelector?

CELDeviceSelector
  expression string!

OpaqueDeviceConfiguration
  driver string!
  parameters JSON!

DeviceClass -- a class of devices that claims request.
  +PartialObjectMetadata
  spec DeviceClassSpec!

DeviceClassSpec
  selectors [DeviceSelector]
  config [DeviceClassConfiguration]
  extendedResourceName string?

DeviceClassConfiguration
  opaque OpaqueDeviceConfiguration?
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from validate_device_selectors(spec.get("selectors", []), "spec.selectors")
    for at, one in enumerate(spec.get("config", ())):
        yield from validate_device_config(one, f"spec.config[{at}]")


KIND = KindRegistration(
    group="resource.k8s.io",
    kind="DeviceClass",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(_validate, counted=("spec",), returns_deleted=True),
    table=NAME_AND_AGE,
)
