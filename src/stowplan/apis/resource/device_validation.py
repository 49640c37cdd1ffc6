"""Validation that the kinds of resource.k8s.io share. CEL expressions are stored, not compiled.

Source: kubernetes v1.36, pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.machinery.errors import Cause, invalid, required
from stowplan.apis.machinery.names import subdomain_problems
from stowplan.objects.encoding.tree import Tree


def validate_driver_name(name: str, path: str) -> Iterator[Cause]:
    """A DNS subdomain of at most 63 characters."""
    if not name:
        yield required(path)
        return
    if len(name) > 63:
        yield Cause(path, "FieldValueTooLong", "Too long: may not be more than 63 bytes")
    for text in subdomain_problems(name):
        yield invalid(path, name, text)


def validate_device_selectors(given: list[Tree], path: str) -> Iterator[Cause]:
    """Each selector has a CEL expression."""
    for at, one in enumerate(given):
        cel = one.get("cel")
        if cel is None:
            yield required(f"{path}[{at}].cel")
        elif not cel["expression"]:
            yield required(f"{path}[{at}].cel.expression")


def validate_device_config(one: Tree, path: str) -> Iterator[Cause]:
    """Opaque parameters of a driver."""
    opaque = one.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from validate_driver_name(opaque["driver"], f"{path}.opaque.driver")
    if opaque["parameters"] is None:
        yield required(f"{path}.opaque.parameters")
    elif not isinstance(opaque["parameters"], dict):
        yield invalid(f"{path}.opaque.parameters", "<value omitted>", "must be a valid JSON object")
