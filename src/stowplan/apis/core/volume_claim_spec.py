"""Validation of the spec of claims; shared by claims, ephemeral volumes and claim templates.

Source: kubernetes v1.36, pkg/apis/core/validation: ValidatePersistentVolumeClaimSpec.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid, required
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.validation import field_checks, resource_requirements
from stowplan.objects.encoding.tree import Tree

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
_SINGLE_POD = "ReadWriteOncePod"


def access_modes(given: list[str], path: str) -> Iterator[Cause]:
    """Access modes."""
    for mode in given:
        yield from field_checks.one_of(mode, ACCESS_MODES, path)
    others = [mode for mode in given if mode != _SINGLE_POD and mode in ACCESS_MODES]
    if _SINGLE_POD in given and others:
        yield forbidden_field(path, "may not use ReadWriteOncePod with other access modes")


def volume_claim_spec(spec: Tree, path: str) -> Iterator[Cause]:
    """The spec of a claim."""
    modes = spec.get("accessModes", [])
    if not modes:
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    yield from field_checks.selector(spec.get("selector"), f"{path}.selector")
    yield from access_modes(modes, f"{path}.accessModes")
    yield from _storage(spec["resources"].get("requests", {}).get("storage"), path)
    if spec.get("storageClassName"):
        yield from field_checks.dns_subdomain(spec["storageClassName"], f"{path}.storageClassName")
    mode = spec.get("volumeMode")
    yield from field_checks.one_of(mode, VOLUME_MODES, f"{path}.volumeMode")
    for name in ("dataSource", "dataSourceRef"):
        if name in spec:
            yield from _source(spec[name], f"{path}.{name}")
    yield from _sources_agree(spec, path)
    if spec.get("volumeAttributesClassName"):
        yield from field_checks.dns_subdomain(
            spec["volumeAttributesClassName"], f"{path}.volumeAttributesClassName"
        )


def _storage(size: str | None, path: str) -> Iterator[Cause]:
    here = f"{path}.resources[storage]"
    if size is None:
        yield required(here)
    elif canonical_quantity.is_zero(size) or canonical_quantity.is_negative(size):
        yield invalid(here, size, field_checks.POSITIVE)
    else:
        yield from resource_requirements.validate_resource_quantity("storage", size, here)


def _source(one: Tree, path: str) -> Iterator[Cause]:
    for name in ("name", "kind"):
        if not one[name]:
            yield required(f"{path}.{name}")
    group = one.get("apiGroup") or ""
    if not group and one["kind"] != "PersistentVolumeClaim":
        text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield invalid(path, one["kind"], text)
    if group:
        yield from field_checks.dns_subdomain(group, f"{path}.apiGroup")
    if one.get("namespace"):
        yield from field_checks.dns_label(one["namespace"], f"{path}.namespace")


def _sources_agree(spec: Tree, path: str) -> Iterator[Cause]:
    one, other = spec.get("dataSource"), spec.get("dataSourceRef")
    if one is None or other is None:
        return
    if other.get("namespace"):
        text = "may not be specified when dataSourceRef.namespace is specified"
        yield invalid(path, f"{path}.dataSource", text)
    elif any(one.get(name) != other.get(name) for name in ("apiGroup", "kind", "name")):
        yield invalid(path, f"{path}.dataSource", "must match dataSourceRef")
