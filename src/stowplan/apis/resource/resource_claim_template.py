"""ResourceClaimTemplate.

Source: kubernetes v1.36, pkg/registry/resource, pkg/apis/resource/validation/validation.go,
pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import NAME_AND_AGE
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.machinery.errors import Cause, invalid
from stowplan.apis.resource.resource_claim import ResourceClaimStrategy, validate_claim_spec
from stowplan.apis.schema.internal_form import internal_form
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
ResourceClaimTemplate -- template of claims that are created per pod.
  +PartialObjectMetadata
  spec ResourceClaimTemplateSpec!

ResourceClaimTemplateSpec
  metadata ObjectMeta
  spec ResourceClaimSpec!
"""


def _validate(obj: Tree) -> Iterator[Cause]:
    """The spec of the claims."""
    return validate_claim_spec(obj["spec"]["spec"], "spec.spec")


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """The spec is immutable."""
    yield from _validate(new)
    if new["spec"] != old["spec"]:
        printed = internal_form("resource/v1.ResourceClaimTemplateSpec", new["spec"])
        yield invalid("spec", printed, field_checks.IMMUTABLE)


KIND = KindRegistration(
    group="resource.k8s.io",
    kind="ResourceClaimTemplate",
    types=TYPES,
    strategy=ResourceClaimStrategy(_validate, _validate_update, returns_deleted=True),
    table=NAME_AND_AGE,
)
