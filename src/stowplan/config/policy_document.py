"""A Policy file as written: its fields and their types.

Source: kube-scheduler v1.13, scheduler/api/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from stowplan.config.model import INT32_MAX, Extender, ExtenderTLS, ManagedResource, Setting

Int32 = Annotated[int, Meta(ge=-INT32_MAX - 1, le=INT32_MAX)]

_NANOS_PER_MICRO = 1000


class ServiceAffinityArgument(Setting, frozen=True):
    """`serviceAffinity`: node labels whose values must be equal for all pods of a service."""

    labels: tuple[str, ...] = ()


class LabelsPresenceArgument(Setting, frozen=True):
    """`labelsPresence`: labels that a node must, or must not, have."""

    labels: tuple[str, ...] = ()
    presence: bool = False


class PredicateArgument(Setting, frozen=True, omit_defaults=True):
    """Argument of a custom predicate; exactly one field is set."""

    service_affinity: ServiceAffinityArgument | None = None
    labels_presence: LabelsPresenceArgument | None = None


class PredicatePolicy(Setting, frozen=True, omit_defaults=True):
    """An entry of `predicates`."""

    name: str = ""
    argument: PredicateArgument | None = None


class ServiceAntiAffinityArgument(Setting, frozen=True):
    """`serviceAntiAffinity`: label over whose values the pods of a service are spread."""

    label: str = ""


class LabelPreferenceArgument(Setting, frozen=True):
    """`labelPreference`: label that is preferred, or avoided, on nodes."""

    label: str = ""
    presence: bool = False


class UtilizationShapePointArgument(Setting, frozen=True):
    """A point of a shape."""

    utilization: int = 0
    score: int = 0


class RequestedToCapacityRatioArguments(Setting, frozen=True):
    """`requestedToCapacityRatioArguments`: score as a piecewise linear function of utilization."""

    shape: tuple[UtilizationShapePointArgument, ...] = ()


class PriorityArgument(Setting, frozen=True, omit_defaults=True):
    """Argument of a custom priority; exactly one field is set."""

    service_anti_affinity: ServiceAntiAffinityArgument | None = None
    label_preference: LabelPreferenceArgument | None = None
    requested_to_capacity_ratio_arguments: RequestedToCapacityRatioArguments | None = None


class PriorityPolicy(Setting, frozen=True, omit_defaults=True):
    """An entry of `priorities`."""

    name: str = ""
    weight: int = 0
    argument: PriorityArgument | None = None


class ExtenderConfig(Setting, frozen=True):
    """An entry of `extenders`. http_timeout: nanoseconds."""

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    enable_https: bool = field(default=False, name="enableHttps")
    tls_config: ExtenderTLS | None = None
    http_timeout: int = 0
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False

    def extender(self) -> Extender:
        """The extender in the configuration model; a timeout of 0 or below is the default."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        given = timedelta(microseconds=max(1, self.http_timeout // _NANOS_PER_MICRO))
        named["http_timeout"] = given if self.http_timeout > 0 else Extender().http_timeout
        return Extender(**named)

    @classmethod
    def of(cls, extender: Extender) -> ExtenderConfig:
        """The entry of an extender of the configuration model."""
        named = {name: getattr(extender, name) for name in cls.__struct_fields__}
        named["http_timeout"] = round(extender.http_timeout.total_seconds() * 10**9)
        return cls(**named)


class PolicyDocument(Setting, frozen=True):
    """The document. An absent list is replaced by the provider's; an empty list has no entries."""

    predicates: tuple[PredicatePolicy, ...] | None = None
    priorities: tuple[PriorityPolicy, ...] | None = None
    extenders: tuple[ExtenderConfig, ...] = ()
    hard_pod_affinity_symmetric_weight: Int32 = 0
    always_check_all_predicates: bool = False


def arguments_of(argument: PredicateArgument | PriorityArgument) -> dict[str, Setting]:
    """The fields that are set, by their names in files."""
    given = (
        (one.encode_name, getattr(argument, one.name))
        for one in msgspec.structs.fields(type(argument))
    )
    return {name: value for name, value in given if value is not None}


def with_known_cases(tree: dict[str, Any]) -> dict[str, Any]:
    """The document with the keys of its extenders in canonical case."""
    extenders = tree.get("extenders")
    if not isinstance(extenders, list):
        return tree
    return {**tree, "extenders": [_with_known_case(one, ExtenderConfig) for one in extenders]}


_INSIDE: Mapping[str, type[msgspec.Struct]] = {
    "tlsConfig": ExtenderTLS,
    "managedResources": ManagedResource,
}


def _with_known_case(tree: Any, kind: type[msgspec.Struct]) -> Any:
    if isinstance(tree, list):
        return [_with_known_case(item, kind) for item in tree]
    return dict(_entries(tree, kind)) if isinstance(tree, dict) else tree


def _entries(tree: dict[str, Any], kind: type[msgspec.Struct]) -> Iterator[tuple[str, Any]]:
    canonical = {one.encode_name.lower(): one.encode_name for one in msgspec.structs.fields(kind)}
    for key, value in tree.items():
        name = canonical.get(str(key).lower(), key)
        yield name, _with_known_case(value, _INSIDE[name]) if name in _INSIDE else value
