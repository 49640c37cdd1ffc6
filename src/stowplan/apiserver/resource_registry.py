"""Registry of the served resources.

Source: kubernetes v1.36, discovery of a server with its default APIs, as recorded.
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.apis.builtin_kinds import KINDS
from stowplan.apis.kind.registration import KindRegistration, register
from stowplan.apis.machinery.resource import Resource, Subresource
from stowplan.apis.resource import device_taint_rule
from stowplan.apis.scheduling import workload_groups
from stowplan.apis.schema import kind_schema
from stowplan.apiserver.admission.policies import policy_kinds
from stowplan.apiserver.admission.webhooks import webhook_kinds
from stowplan.apiserver.auth import access_reviews
from stowplan.apiserver.auth.token_request import TOKEN_SUBRESOURCE
from stowplan.apiserver.crd import definition_strategy
from stowplan.framework.problems import ContractError

GROUPS = (
    "apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling", "batch", "certificates.k8s.io", "networking.k8s.io", "policy",
    "rbac.authorization.k8s.io", "storage.k8s.io",
    "admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io",
    "coordination.k8s.io", "node.k8s.io", "discovery.k8s.io", "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
)  # fmt: skip
"""The named groups, in the order of discovery."""


BUILTIN_KINDS = (
    *KINDS,
    *register(
        *webhook_kinds.KINDS, definition_strategy.KIND, *access_reviews.KINDS, *policy_kinds.KINDS
    ),
)
"""The kinds of apis/, and those that are part of the API server."""
WORKLOAD_KINDS = register(workload_groups.KIND, workload_groups.POD_GROUP_KIND)
"""Kinds of scheduling.k8s.io/v1alpha2, which is off by default."""
TAINT_RULE_KINDS = register(device_taint_rule.KIND)
"""The kind of resource.k8s.io/v1beta2, which is off by default."""


class BuiltInRegistry:
    """The served resources, built-in and custom (`resource.ResourceRegistry`)."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self._by_name: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str, str], Resource] = {}
        self._by_path: dict[str, Resource] = {}
        self._listed: list[Resource] = []
        self.changes = 0
        for one in resources:
            self.add(one)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_name.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> Resource | None:
        return self._by_kind.get((group, version, kind))

    def by_path(self, path: str) -> Resource | None:
        return self._by_path.get(path)

    def all(self) -> Iterable[Resource]:
        """Every resource, core first, then by group in the order of discovery."""
        return [*self._by_name.values(), *self._listed]

    def has_group(self, group: str, version: str) -> bool:
        return any(key[:2] == (group, version) for key in self._by_name)

    def add(self, resource: Resource) -> None:
        self._by_name[(resource.group, resource.version, resource.plural)] = resource
        if resource.act is None:
            self._by_kind[(resource.group, resource.version, resource.kind)] = resource
        if resource.alias is None and resource.act is None:
            self._by_path[resource.path] = resource
        self.changes += 1

    def add_listed(self, resource: Resource) -> None:
        """Add a resource that others answer for; it is in `all` alone."""
        self._listed.append(resource)
        self.changes += 1

    def remove(self, resource: Resource) -> None:
        self._by_name.pop((resource.group, resource.version, resource.plural), None)
        self._by_kind.pop((resource.group, resource.version, resource.kind), None)
        if self._by_path.get(resource.path) is resource:
            del self._by_path[resource.path]
        self.changes += 1


def built_in_registry(
    *, workloads: bool = False, device_taint_rules: bool = False
) -> BuiltInRegistry:
    """A new registry of the built-in kinds. workloads: with scheduling.k8s.io/v1alpha2.
    device_taint_rules: with that kind of resource.k8s.io/v1beta2.

    Raises ContractError for a kind without a group of `GROUPS`.
    """
    kinds = [*BUILTIN_KINDS]
    kinds += WORKLOAD_KINDS if workloads else ()
    kinds += TAINT_RULE_KINDS if device_taint_rules else ()
    made = sorted(kinds, key=_discovery_order)
    return BuiltInRegistry(resource_of(kind) for kind in made)


def _discovery_order(kind: KindRegistration) -> tuple[int, str]:
    if kind.group and kind.group not in GROUPS:
        raise ContractError(
            f"kind {kind.kind!r}: unknown group {kind.group!r}: "
            f"expected one of GROUPS in {__name__}"
        )
    return (GROUPS.index(kind.group) + 1 if kind.group else 0, kind.plural)


def resource_of(kind: KindRegistration, plural: str = "") -> Resource:
    """The resource of a registered kind. plural: if it is not that of the kind."""
    subresources = {one.name: one for one in kind.subresources}
    if kind.kind == "ServiceAccount":
        subresources[TOKEN_SUBRESOURCE.name] = TOKEN_SUBRESOURCE
    if kind.status is not None:
        subresources["status"] = Subresource("status", ("get", "patch", "update"), kind.status)
    return Resource(
        group=kind.group,
        version=kind.version,
        plural=plural or kind.plural,
        kind=kind.kind,
        namespaced=kind.namespaced,
        schema=kind_schema(f"{kind.package}.{kind.kind}", kind.group),
        strategy=kind.strategy,
        verbs=kind.verbs,
        singular=kind.kind.lower(),
        short_names=kind.short_names,
        categories=kind.categories,
        list_kind=f"{kind.kind}List",
        subresources=dict(sorted(subresources.items())),
        table=kind.table,
        fields=kind.fields,
        act=kind.act,
        ttl_s=kind.ttl_s,
        alias=kind.alias,
        deprecation=kind.deprecation,
        stored_as=kind.stored_as,
    )
