"""Validation of resource names and quantities.

Source: kubernetes v1.36, pkg/apis/core/validation and pkg/apis/core/helper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import repeat

from stowplan.apis.machinery.errors import (
    NOT_FOUND,
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.machinery.names import qualified_name_problems
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

HUGE_PAGES = "hugepages-"
_OBJECT_COUNTS = frozenset(
    {
        "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
        "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
    }
)  # fmt: skip
_CONTAINER_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_STANDARD = (
    _OBJECT_COUNTS
    | _CONTAINER_RESOURCES
    | {"requests.cpu", "requests.memory", "requests.ephemeral-storage", "requests.storage"}
    | {"limits.cpu", "limits.memory", "limits.ephemeral-storage", "storage"}
)

ResourceNameCheck = Callable[[str, str], Iterator[Cause]]


def is_native_resource(name: str) -> bool:
    """True for names without a domain, or of the Kubernetes domain."""
    return "/" not in name or "kubernetes.io/" in name


def is_huge_page_resource(name: str) -> bool:
    """True for huge pages."""
    return name.startswith(HUGE_PAGES)


def is_extended_resource(name: str) -> bool:
    """True for extended resources: integers, with a domain other than kubernetes.io."""
    if is_native_resource(name) or name.startswith("requests."):
        return False
    return not qualified_name_problems(f"requests.{name}")


def is_overcommit_allowed(name: str) -> bool:
    """True if requests may be less than limits."""
    return is_native_resource(name) and not is_huge_page_resource(name)


def validate_resource_quantity(name: str, value: str, path: str) -> Iterator[Cause]:
    """A quantity: not negative, and an integer for resources that are counted."""
    if canonical_quantity.is_negative(value):
        yield invalid(path, value, field_checks.NOT_NEGATIVE)
    if (name in _OBJECT_COUNTS or is_extended_resource(name)) and canonical_quantity.has_fraction(
        value
    ):
        yield invalid(path, value, "must be an integer")


def validate_resource_name(name: str, path: str) -> Iterator[Cause]:
    """Any resource's name."""
    problems = qualified_name_problems(name)
    for text in problems:
        yield invalid(path, name, text)
    if (
        not problems
        and "/" not in name
        and name not in _STANDARD
        and not is_huge_page_resource(name)
    ):
        yield invalid(path, name, "must be a standard resource type or fully qualified")


def validate_container_resource_name(name: str, path: str) -> Iterator[Cause]:
    """The name of a resource that a container can request."""
    if name in _CONTAINER_RESOURCES:
        return
    yield from validate_resource_name(name, path)
    if "/" not in name:
        if not is_huge_page_resource(name):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not is_native_resource(name) and not is_extended_resource(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def validate_pod_resource_name(name: str, path: str) -> Iterator[Cause]:
    """The name of a resource that a pod as a whole can request."""
    found = list(validate_resource_name(name, path))
    yield from found
    if not found and name not in ("cpu", "memory") and not is_huge_page_resource(name):
        yield not_supported(path, name, ["cpu", "hugepages-", "memory"])


def validate_resource_requirements(
    given: Tree,
    claims: frozenset[str],
    path: str,
    name_check: ResourceNameCheck = validate_container_resource_name,
) -> Iterator[Cause]:
    """Limits and requests. claims: the names of the pod's resource claims."""
    limits = given.get("limits", {})
    requests = given.get("requests", {})
    for name in sorted(limits):
        yield from _amount(name, limits[name], f"{path}.limits[{name}]", name_check)
    for name in sorted(requests):
        value = requests[name]
        yield from _amount(name, value, f"{path}.requests[{name}]", name_check)
        yield from _request_within_limit(name, value, limits, path)
    named = {*limits, *requests}
    if any(map(is_huge_page_resource, named)) and not named & {"cpu", "memory"}:
        yield forbidden_field(path, "HugePages require cpu or memory")
    if "claims" in given:
        yield from _claims(given["claims"], claims, f"{path}.claims")


def _amount(name: str, value: str, path: str, name_check: ResourceNameCheck) -> Iterator[Cause]:
    yield from name_check(name, path)
    yield from validate_resource_quantity(name, value, path)
    if is_huge_page_resource(name):
        size = name.removeprefix(HUGE_PAGES)
        if not _divides(size, value):
            yield invalid(path, value, f"{value} is not positive integer multiple of {name}")


def _divides(size: str, value: str) -> bool:
    try:
        page = canonical_quantity.amount(size).value()
    except ValueError:
        return False
    return page > 0 and canonical_quantity.amount(value).value() % page == 0


def _request_within_limit(
    name: str, value: str, limits: dict[str, str], path: str
) -> Iterator[Cause]:
    limit = limits.get(name)
    if limit is None:
        if not is_overcommit_allowed(name):
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        return
    order = canonical_quantity.compare(value, limit)
    if order != 0 and not is_overcommit_allowed(name):
        yield invalid(f"{path}.requests", value, f"must be equal to {name} limit of {limit}")
    elif order > 0:
        yield invalid(
            f"{path}.requests", value, f"must be less than or equal to {name} limit of {limit}"
        )


def _claims(given: list[Tree], known: frozenset[str], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    requests: Counter[str] = Counter()
    for at, claim in enumerate(given):
        name, request = claim["name"], claim.get("request", "")
        here = f"{path}[{at}]"
        if not name:
            yield required(here)
            continue
        if name in seen:
            yield duplicate(here, name)
        else:
            yield from _claim_once(name, request, seen, requests, here)
        if name not in known:
            text = "must be one of the names in pod.spec.resourceClaims"
            text += f": {', '.join(sorted(known))}" if known else " which is empty"
            yield Cause(here, NOT_FOUND, f"Not found: {field_checks.quoted(name)}: {text}")


def _claim_once(
    name: str, request: str, seen: set[str], requests: Counter[str], path: str
) -> Iterator[Cause]:
    """seen: names and name/request. requests: of each name, how many of the latter."""
    key = name
    if request:
        yield from field_checks.dns_label(request, f"{path}.request")
        key = f"{name}/{request}"
    if key in seen:
        yield duplicate(path, key)
    elif not request:
        yield from repeat(duplicate(path, name), requests[name])
    if key not in seen and "/" in key:
        requests[key.partition("/")[0]] += 1
    seen.add(key)
