"""IngressClass.

Source: kubernetes v1.36, pkg/registry/networking/ingressclass, pkg/apis/networking/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.printing import NONE, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import (
    Cause,
    forbidden_field,
    not_supported,
    required,
    too_long,
)
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
IngressClass -- names the controller of ingresses.
  +PartialObjectMetadata
  spec IngressClassSpec

IngressClassSpec
  controller string
  parameters IngressClassParametersReference?

IngressClassParametersReference
  apiGroup string?
  kind string!
  name string!
  scope string?! =Cluster
  namespace string?
"""
PATH = "networking.k8s.io/ingressclasses"
DEFAULT_ANNOTATION = "ingressclass.kubernetes.io/is-default-class"
_CONTROLLER_MAX = 250


def is_default_class(obj: Tree) -> bool:
    """True for the class of ingresses that name none."""
    return bool(obj["metadata"].get("annotations", {}).get(DEFAULT_ANNOTATION) == "true")


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    controller = spec.get("controller", "")
    if len(controller) > _CONTROLLER_MAX:
        yield too_long("spec.controller", _CONTROLLER_MAX)
    yield from field_checks.domain_prefixed_path(controller, "spec.controller")
    if "parameters" in spec:
        yield from _validate_parameters(spec["parameters"], "spec.parameters")


def _validate_parameters(given: Tree, path: str) -> Iterator[Cause]:
    if "apiGroup" in given:
        yield from field_checks.dns_subdomain(given["apiGroup"], f"{path}.apiGroup")
    for name in ("kind", "name"):
        yield from field_checks.needed(given[name], field_checks.path_segment, f"{path}.{name}")
    scope, here = given["scope"], f"{path}.namespace"
    if scope not in ("Cluster", "Namespace"):
        yield not_supported(f"{path}.scope", scope, ["Cluster", "Namespace"])
    elif scope == "Namespace" and "namespace" not in given:
        yield required(here, "`parameters.scope` is set to 'Namespace'")
    elif scope == "Namespace":
        yield from field_checks.dns_label(given["namespace"], here)
    elif "namespace" in given:
        yield forbidden_field(here, "`parameters.scope` is set to 'Cluster'")


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    controller, before = (one["spec"].get("controller", "") for one in (new, old))
    yield from field_checks.immutable(controller, before, "spec.controller")
    yield from _validate(new)


def _cells(obj: Tree, now: float) -> list[Any]:
    name = obj["metadata"].get("name", "") + (" (default)" if is_default_class(obj) else "")
    given = obj["spec"].get("parameters")
    if given is None:
        return [name, NONE]
    group = f".{given['apiGroup']}" if "apiGroup" in given else ""
    return [name, f"{given['kind']}{group}/{given['name']}"]


KIND = KindRegistration(
    group="networking.k8s.io",
    kind="IngressClass",
    types=TYPES,
    namespaced=False,
    strategy=BuiltinStrategy(_validate, _validate_update, counted=("spec",)),
    table=PrintedTable("Name=, Controller=spec.controller, Parameters, Age", _cells),
)
