"""Warnings about valid fields of pods and pod templates that are probably a mistake.

Source: kubernetes v1.36, pkg/api/pod/warnings.go, pkg/api/node/util.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from stowplan.apis.machinery.errors import value_text
from stowplan.apis.machinery.names import label_value_problems
from stowplan.apis.schema import canonical_quantity
from stowplan.objects.encoding.tree import Tree

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OLD_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": (
        'deprecated since v1.17; use "topology.kubernetes.io/region" instead'
    ),
    "failure-domain.beta.kubernetes.io/zone": (
        'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'
    ),
    "beta.kubernetes.io/instance-type": (
        'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead'
    ),
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": (
        "deprecated since v1.22; use Taints and Tolerations instead"
    ),
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_OLD_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_OLD_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": (
        'non-functional in v1.11+; use the "sysctls" field instead'
    ),
    "security.alpha.kubernetes.io/unsafe-sysctls": (
        'non-functional in v1.11+; use the "sysctls" field instead'
    ),
}
_BYTES = ("memory", "ephemeral-storage")


def pod_warnings(spec: Tree, meta: Tree, prefix: str = "") -> Iterator[str]:
    """All warnings in the original's order. prefix: "" or the template's path and a dot."""
    yield from _placement(spec, prefix)
    annotations = meta.get("annotations", {})
    for key, text in _OLD_ANNOTATIONS.items():
        if key in annotations:
            yield f"{prefix}metadata.annotations[{key}]: {text}"
    for at, volume in enumerate(spec.get("volumes", ())):
        for kind, text in _OLD_VOLUMES.items():
            if kind in volume:
                name = "storageOS" if kind == "storageos" else kind
                yield f"{prefix}spec.volumes[{at}].{name}: {text}"
    yield from _repeated(spec, prefix)
    if "overhead" in spec:
        yield from _fractions(spec["overhead"], f"{prefix}spec.overhead")
    for one, path in _containers(spec, prefix):
        for which in ("limits", "requests"):
            amounts = one["resources"].get(which)
            if amounts:
                yield from _fraction(amounts, "memory", f"{path}.resources.{which}")
        for which in ("limits", "requests"):
            amounts = one["resources"].get(which)
            if amounts:
                yield from _fraction(amounts, "ephemeral-storage", f"{path}.resources.{which}")
        yield from _env(one.get("env", []), path)
    yield from _ports(spec, prefix)
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        text = "must be >= 0; negative values are invalid and will be treated as 1"
        yield f"{prefix}spec.terminationGracePeriodSeconds: {text}"
    yield from _null_selectors(spec, prefix)


def _containers(spec: Tree, prefix: str) -> Iterator[tuple[Tree, str]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for at, one in enumerate(spec.get(kind) or ()):
            yield one, f"{prefix}spec.{kind}[{at}]"


def _placement(spec: Tree, prefix: str) -> Iterator[str]:
    for key in spec.get("nodeSelector", {}):
        if key in _OLD_LABELS:
            yield f"{prefix}spec.nodeSelector[{key}]: {_OLD_LABELS[key]}"
    nodes = spec.get("affinity", {}).get("nodeAffinity", {})
    path = f"{prefix}spec.affinity.nodeAffinity"
    for at, term in enumerate(nodes.get(_REQUIRED, {}).get("nodeSelectorTerms") or ()):
        yield from node_term_warnings(term, f"{path}.{_REQUIRED}.nodeSelectorTerms[{at}]", False)
    for at, term in enumerate(nodes.get(_PREFERRED, ())):
        yield from node_term_warnings(
            term["preference"], f"{path}.{_PREFERRED}[{at}].preference", True
        )
    for at, one in enumerate(spec.get("topologySpreadConstraints", ())):
        here = f"{prefix}spec.topologySpreadConstraints[{at}]"
        key = one["topologyKey"]
        if key in _OLD_LABELS:
            yield f"{here}.topologyKey: {key} is {_OLD_LABELS[key]}"
        if "labelSelector" not in one:
            yield f"{here}.labelSelector: a null labelSelector results in matching no pod"


def node_term_warnings(term: Tree, path: str, preferred: bool) -> Iterator[str]:
    """Warnings about one node selector term. preferred: its values were not checked as labels."""
    for at, one in enumerate(term.get("matchExpressions", ())):
        here = f"{path}.matchExpressions[{at}].key"
        if one["key"] in _OLD_LABELS:
            yield f"{here}: {one['key']} is {_OLD_LABELS[one['key']]}"
        for index, value in enumerate(one.get("values", ()) if preferred else ()):
            for text in label_value_problems(value):
                yield f"{path}.matchExpressions[{at}].values[{index}]: {value} is invalid, {text}"


def _repeated(spec: Tree, prefix: str) -> Iterator[str]:
    for field, key in (("hostAliases", "ip"), ("imagePullSecrets", "name")):
        seen: set[str] = set()
        for at, one in enumerate(spec.get(field, ())):
            value = one.get(key, "")
            if value in seen:
                yield f"{prefix}spec.{field}[{at}].{key}: duplicate {key} {value_text(value)}"
            seen.add(value)
    for at, one in enumerate(spec.get("imagePullSecrets", ())):
        if not one.get("name"):
            yield f'{prefix}spec.imagePullSecrets[{at}].name: invalid empty name ""'


def _fractions(amounts: Tree, path: str) -> Iterator[str]:
    for name in _BYTES:
        yield from _fraction(amounts, name, path)


def _fraction(amounts: Tree, name: str, path: str) -> Iterator[str]:
    value = amounts.get(name)
    if value is not None and canonical_quantity.has_fraction(value):
        text = f"fractional byte value {value_text(value)} is invalid, must be an integer"
        yield f"{path}[{name}]: {text}"


def _env(given: list[Tree], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for at, one in enumerate(given):
        name, value = one["name"], one.get("value", "")
        reference = f"$({name})"
        if name in seen and ("valueFrom" in one or value == reference or reference not in value):
            yield (
                f"{path}.env[{at}]: hides previous definition of {value_text(name)}, which may be "
                "dropped when using apply"
            )
        seen.add(name)


def _ports(spec: Tree, prefix: str) -> Iterator[str]:
    seen: dict[tuple[int, str], _PortIndex] = {}
    for one, path in _containers(spec, prefix):
        for at, port in enumerate(one.get("ports", ())):
            here = f"{path}.ports[{at}]"
            others = seen.setdefault((port["containerPort"], port["protocol"]), _PortIndex())
            for there, other in others.may_clash(port):
                text = _clash(port, other)
                if text:
                    yield f"{here}: {text} port definition with {there}"
            others.add(here, port)
    names: dict[str, str] = {}
    for one, path in _containers(spec, prefix):
        for at, port in enumerate(one.get("ports", ())):
            name, here = port.get("name"), f"{path}.ports[{at}]"
            if name and name in names:
                there = names[name]
                yield (
                    f"{here}: duplicate port name {value_text(name)} with {there}, services and "
                    f"probes that select ports by name will use {there}"
                )
            elif name:
                names[name] = here


class _PortIndex:
    """Ports of one number and protocol, indexed by host port and address."""

    def __init__(self) -> None:
        self._all: list[tuple[str, Tree]] = []
        self._places: dict[tuple[int, str | None], list[int]] = {}

    def add(self, path: str, port: Tree) -> None:
        """Add a port. path: of the field."""
        host, address = port.get("hostPort", 0), port.get("hostIP", "")
        for key in ((host, None), (host, address)):
            self._places.setdefault(key, []).append(len(self._all))
        self._all.append((path, port))

    def may_clash(self, port: Tree) -> Iterator[tuple[str, Tree]]:
        """The ports, in order, that may conflict with a port (`_clash` decides)."""
        host, address = port.get("hostPort", 0), port.get("hostIP", "")
        if not host:
            yield from self._all
            return
        wanted = [(0, None), (host, address), (host, "")] if address else [(0, None), (host, None)]
        for at in merge(*(self._places.get(key, ()) for key in wanted)):
            yield self._all[at]


def _clash(port: Tree, other: Tree) -> str:
    host, other_host = port.get("hostPort", 0), other.get("hostPort", 0)
    address, other_address = port.get("hostIP", ""), other.get("hostIP", "")
    if address == other_address and host == other_host:
        return "duplicate"
    if not host or not other_host:
        return "overlapping"
    if host == other_host and bool(address) != bool(other_address):
        return "dangerously ambiguous"
    return ""


def _null_selectors(spec: Tree, prefix: str) -> Iterator[str]:
    text = "a null labelSelector results in matching no pod"
    for kind in ("podAffinity", "podAntiAffinity"):
        given = spec.get("affinity", {}).get(kind, {})
        path = f"{prefix}spec.affinity.{kind}"
        for at, term in enumerate(given.get(_REQUIRED, ())):
            if "labelSelector" not in term:
                yield f"{path}.{_REQUIRED}[{at}].labelSelector: {text}"
        for at, one in enumerate(given.get(_PREFERRED, ())):
            if "labelSelector" not in one["podAffinityTerm"]:
                yield f"{path}.{_PREFERRED}[{at}].podAffinityTerm.labelSelector: {text}"
