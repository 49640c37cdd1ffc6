"""Simulated metrics of pods: usage from annotations of pods, or a load that the target's share.

`stowplan.dev/load-cpu: "4"` on the target of an autoscaler (a Deployment, say) is spread evenly
over its ready pods; `stowplan.dev/cpu-usage: "250m"` on a pod (by its template) is that pod's.
The same for memory. Without any of them a pod has no metric; one that is no quantity is an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.apis.limits.resource_amounts import to_billionths
from stowplan.controller_runtime.object_fields import find_condition, is_deleting
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controllers.autoscaling.replica_calculator import MetricsError, PodSample
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.quantity import QuantityError

USAGE_ANNOTATIONS = {"cpu": "stowplan.dev/cpu-usage", "memory": "stowplan.dev/memory-usage"}
LOAD_ANNOTATIONS = {"cpu": "stowplan.dev/load-cpu", "memory": "stowplan.dev/load-memory"}
_PER_MILLI = 10**6
_MILLI_MAX = 2**63 - 1
"""Larger quantities count as this one, as in the original."""


def pod_samples(target: Tree, pods: Sequence[Tree], resource: str) -> list[PodSample]:
    """The pods with their usage of a resource.

    Raises MetricsError if none has a metric, or one is no quantity.
    """
    load = _amount_in(target, LOAD_ANNOTATIONS.get(resource, ""))
    serving = [pod for pod in pods if _serves(pod)]
    share = None if load is None or not serving else load // len(serving)
    names = {pod["metadata"]["name"] for pod in serving}
    samples = []
    for pod in pods:
        usage = _amount_in(pod, USAGE_ANNOTATIONS.get(resource, ""))
        if share is not None:
            usage = share if pod["metadata"]["name"] in names else 0
        samples.append(_sample(pod, usage if pod["status"].get("phase") == "Running" else None))
    if all(sample.usage is None for sample in samples):
        text = "no metrics returned from resource metrics API"
        raise MetricsError(f"unable to get metrics for resource {resource}: {text}")
    return samples


def with_requests(
    samples: Sequence[PodSample], pods: Sequence[Tree], resource: str
) -> list[PodSample]:
    """The samples with the requests of their pods. Raises MetricsError if one is missing."""
    return [
        sample._replace(request=_request(pod, resource))
        for sample, pod in zip(samples, pods, strict=True)
    ]


def milli_amount(quantity: str | int) -> int:
    """A quantity in thousandths of a unit, rounded up, an int64. Raises QuantityError."""
    return min(-(-to_billionths(quantity) // _PER_MILLI), _MILLI_MAX)


def _sample(pod: Tree, usage: int | None) -> PodSample:
    status = pod["status"]
    ready = find_condition(status.get("conditions") or (), "Ready")
    return PodSample(
        name=pod["metadata"]["name"],
        phase=status.get("phase", ""),
        is_deleting=is_deleting(pod),
        ready=None if ready is None else ready["status"] == "True",
        ready_changed=unix_seconds((ready or {}).get("lastTransitionTime")),
        started=unix_seconds(status.get("startTime")),
        usage=usage,
    )


def _serves(pod: Tree) -> bool:
    ready = find_condition(pod["status"].get("conditions") or (), "Ready")
    return not is_deleting(pod) and ready is not None and ready["status"] == "True"


def _amount_in(obj: Tree, annotation: str) -> int | None:
    """The amount in an annotation, in thousandths; None if it is absent. Raises MetricsError."""
    text = (obj["metadata"].get("annotations") or {}).get(annotation)
    if text is None:
        return None
    try:
        return max(0, milli_amount(text))
    except QuantityError as error:
        kind, name = obj.get("kind", ""), obj["metadata"]["name"]
        raise MetricsError(f"annotation {annotation} of {kind} {name}: {error}") from None


def _request(pod: Tree, resource: str) -> int:
    spec = pod["spec"]
    of_pod = ((spec.get("resources") or {}).get("requests") or {}).get(resource)
    if of_pod is not None:
        return milli_amount(of_pod)
    sidecars = (
        each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"
    )
    total = 0
    for container in (*spec["containers"], *sidecars):
        amount = ((container.get("resources") or {}).get("requests") or {}).get(resource)
        if amount is None:
            name = pod["metadata"]["name"]
            where = f"container {container['name']} of Pod {name}"
            raise MetricsError(f"missing request for {resource} in {where}")
        total += milli_amount(amount)
    return total
