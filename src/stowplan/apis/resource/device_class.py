"""DeviceClass.

Source: kubernetes v1.36, pkg/registry/resource, pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import NAME_AND_AGE
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, invalid
from stowplan.apis.resource.device_validation import (
    CONFIG_MAX,
    validate_device_config,
    validate_device_selectors,
    validate_list,
)
from stowplan.apis.validation import resource_requirements
from stowplan.objects.encoding.tree import Tree

TYPES = """
DeviceSelector
  cel CELDeviceSelector? -- an expression on a device.

CELDeviceSelector
  expression string! -- reads device.driver, device.attributes, device.capacity.

OpaqueDeviceConfiguration
  driver string! -- driver that reads it.
  parameters JSON! -- an object of the driver's own kind.

DeviceClass -- a class of devices that claims request.
  +PartialObjectMetadata
  spec DeviceClassSpec! -- selectors and configuration.

DeviceClassSpec
  selectors [DeviceSelector] -- CEL expressions; all must be true of a device.
  config [DeviceClassConfiguration] -- parameters for the drivers.
  extendedResourceName string? -- resource of containers that it serves.

DeviceClassConfiguration
  opaque OpaqueDeviceConfiguration? -- parameters that only the driver reads.
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from validate_device_selectors(spec.get("selectors", []), "spec.selectors")
    config = spec.get("config", [])
    yield from validate_list(config, CONFIG_MAX, validate_device_config, "spec.config")
    name = spec.get("extendedResourceName")
    if name is not None and not resource_requirements.is_extended_resource(name):
        yield invalid("spec.extendedResourceName", name, "must be a valid extended resource name")


KIND = KindRegistration(
    group="resource.k8s.io",
    kind="DeviceClass",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(_validate, counted=("spec",), returns_deleted=True),
    table=NAME_AND_AGE,
)
