"""Pod creation from a template, and the order in which controllers delete pods.

Source: kube-controller-manager v1.36, pkg/controller/controller_utils.go.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence

from stowplan.controller_runtime.object_index import PodFacts
from stowplan.objects.encoding.tree import Tree

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def pod_from_template(template: Tree, owner: Tree, owner_ref: Tree, generate: str = "") -> Tree:
    """A pod to create for `owner`: labels, annotations, finalizers and spec of the template.

    generate: prefix of its name; "": the owner's name and a dash.
    """
    meta = template.get("metadata") or {}
    made: Tree = {
        "generateName": generate or f"{owner['metadata']['name']}-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [owner_ref],
    }
    for name in ("labels", "annotations", "finalizers"):
        if meta.get(name):
            made[name] = copy.deepcopy(meta[name])
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": made,
        "spec": copy.deepcopy(template["spec"]),
        "status": {},
    }


def _age_rank(since: float, now: float) -> int:
    """Logarithm (base 2) of the age in nanoseconds; -1 for the future."""
    age = int((now - since) * 1e9)
    return int(math.log2(age)) if age > 0 else -1


def deletion_order(
    pods: Sequence[PodFacts], related: Iterable[PodFacts], now: float
) -> list[PodFacts]:
    """`pods` in the order in which they are deleted when scaling down.

    related: active pods of the same application (those of sibling ReplicaSets included); a pod that
    shares its node with more ready ones of them comes earlier.
    """
    beside: dict[str, int] = {}
    for pod in related:
        if pod.ready and pod.node:
            beside[pod.node] = beside.get(pod.node, 0) + 1

    def rank(pod: PodFacts) -> tuple[object, ...]:
        return (
            bool(pod.node),
            _PHASES.get(pod.phase, 0),
            pod.ready,
            pod.cost,
            -beside.get(pod.node, 0) if pod.node else 0,
            _age_rank(pod.ready_since, now) if pod.ready else 0,
            -pod.restarts,
            _age_rank(pod.created, now),
            pod.uid,
        )

    return sorted(pods, key=rank)
