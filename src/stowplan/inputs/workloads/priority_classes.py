"""Priority classes: resolution of priorityClassName to a priority.

Source: Kubernetes v1.36, the admission plugin Priority and scheduling/v1's system classes.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from stowplan.inputs.input_error import mismatch
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import PodSpec
from stowplan.objects.workload import PriorityClass

SYSTEM_CLASSES = (
    PriorityClass(metadata=ObjectMeta(name="system-cluster-critical"), value=2_000_000_000),
    PriorityClass(metadata=ObjectMeta(name="system-node-critical"), value=2_000_001_000),
)


class UnknownPriorityClassError(LookupError):
    """A pod names a PriorityClass that does not exist."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(mismatch(repr(name), f"a PriorityClass: {', '.join(known)}"))


class PriorityClasses:
    """The priority classes of a cluster, including the system classes."""

    def __init__(self, classes: Iterable[PriorityClass] = ()) -> None:
        given = tuple(classes)
        self._classes = {c.name: c for c in (*SYSTEM_CLASSES, *given)}
        defaults = [c for c in given if c.global_default]
        # Of several global defaults the one with the lowest value applies.
        self._default = min(defaults, key=lambda c: c.value, default=None)
        self._resolved: dict[int, tuple[PodSpec, PodSpec]] = {}

    def resolved(self, spec: PodSpec) -> PodSpec:
        """The spec with its priority; the same object when nothing changes.

        Pods of one spec share the result. Raises UnknownPriorityClassError.
        """
        if spec.priority is not None:
            return spec
        kept = self._resolved.get(id(spec))
        if kept is None:
            # The spec is kept with the answer, so that its id is not reused.
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
