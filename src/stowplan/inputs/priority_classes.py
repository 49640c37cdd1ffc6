"""Priorities: what a pod's priority class comes to.

Source: Kubernetes v1.36, the admission plugin Priority and scheduling/v1's system classes.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import PodSpec
from stowplan.objects.workload import PriorityClass

SYSTEM_CLASSES = (
    PriorityClass(metadata=ObjectMeta(name="system-cluster-critical"), value=2_000_000_000),
    PriorityClass(metadata=ObjectMeta(name="system-node-critical"), value=2_000_001_000),
)


class UnknownPriorityClassError(LookupError):
    """A pod names a priority class that is not there."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"got {name!r}, wanted a PriorityClass that is here: {', '.join(known)}")


class PriorityClasses:
    """The priority classes of a cluster, those of the system included."""

    def __init__(self, classes: Iterable[PriorityClass] = ()) -> None:
        given = tuple(classes)
        self._classes = {c.name: c for c in (*SYSTEM_CLASSES, *given)}
        defaults = [c for c in given if c.global_default]
        # Of several defaults the lowest counts.
        self._default = min(defaults, key=lambda c: c.value, default=None)
        self._resolved: dict[int, tuple[PodSpec, PodSpec]] = {}

    def resolved(self, spec: PodSpec) -> PodSpec:
        """The spec with its priority; the same object where it has one or none is due.

        The pods of one spec share the result. Raises UnknownClassError.
        """
        if spec.priority is not None:
            return spec
        kept = self._resolved.get(id(spec))
        if kept is None:
            # The spec is kept with the answer, so that its id is not used again.
            kept = self._resolved[id(spec)] = (spec, self._resolve(spec))
        return kept[1]

    def _resolve(self, spec: PodSpec) -> PodSpec:
        name = spec.priority_class_name
        found = self._classes.get(name) if name else self._default
        if found is None:
            if name:
                raise UnknownPriorityClassError(name, self._classes)
            return spec
        return replace(
            spec,
            priority_class_name=found.name,
            priority=found.value,
            preemption_policy=spec.preemption_policy or found.preemption_policy,
        )
