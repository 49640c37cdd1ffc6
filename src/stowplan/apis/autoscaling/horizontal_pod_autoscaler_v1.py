"""HorizontalPodAutoscaler of autoscaling/v1, stored as autoscaling/v2.

What v1 lacks (other metrics than CPU utilization, behavior, conditions) is kept in annotations.

Source: kubernetes v1.36, pkg/apis/autoscaling/v1/conversion.go.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from stowplan.apis.autoscaling.horizontal_pod_autoscaler import (
    PATH,
    STATUS_STRATEGY,
    STRATEGY,
    TABLE,
    set_defaults,
)
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.machinery.resource import TableColumn
from stowplan.objects.encoding.tree import Tree

TYPES = """
HorizontalPodAutoscaler -- scales a workload by the CPU utilization of its pods.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec HorizontalPodAutoscalerSpec
  status HorizontalPodAutoscalerStatus

HorizontalPodAutoscalerSpec
  scaleTargetRef CrossVersionObjectReference!
  minReplicas int32? =1
  maxReplicas int32!
  targetCPUUtilizationPercentage int32?

CrossVersionObjectReference
  kind string!
  name string!
  apiVersion string

HorizontalPodAutoscalerStatus
  observedGeneration int64?
  lastScaleTime Time?
  currentReplicas int32!
  desiredReplicas int32!
  currentCPUUtilizationPercentage int32?
"""
_METRICS = "autoscaling.alpha.kubernetes.io/metrics"
_CURRENT_METRICS = "autoscaling.alpha.kubernetes.io/current-metrics"
_BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
_CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
_ROUND_TRIP = (_METRICS, _CURRENT_METRICS, _BEHAVIOR, _CONDITIONS)
_SHARED = ("observedGeneration", "lastScaleTime", "desiredReplicas")


class HorizontalPodAutoscalerV1Alias:
    """Conversion between autoscaling/v1 and the stored autoscaling/v2 (`ResourceAlias`).

    Differs: the annotations have metrics in the words of v2, which no client of v1 reads.
    """

    path = PATH

    def from_stored(self, tree: Tree) -> Tree:
        """The object in v1."""
        spec, status = tree["spec"], tree.get("status") or {}
        others = [each for each in spec.get("metrics") or () if _cpu_target(each) is None]
        shares = (_cpu_target(each) for each in spec.get("metrics") or ())
        made_spec = {
            name: spec[name]
            for name in ("scaleTargetRef", "minReplicas", "maxReplicas")
            if name in spec
        }
        share = next((each for each in shares if each is not None), None)
        if share is not None:
            made_spec["targetCPUUtilizationPercentage"] = share
        made_status = {name: status[name] for name in _SHARED if name in status}
        made_status["currentReplicas"] = status.get("currentReplicas", 0)
        for each in status.get("currentMetrics") or ():
            current = (each.get("resource") or {}).get("current") or {}
            if (each.get("resource") or {}).get(
                "name"
            ) == "cpu" and "averageUtilization" in current:
                made_status["currentCPUUtilizationPercentage"] = current["averageUtilization"]
        kept = {
            _METRICS: others,
            _CURRENT_METRICS: status.get("currentMetrics"),
            _BEHAVIOR: spec.get("behavior"),
            _CONDITIONS: status.get("conditions"),
        }
        meta = _with_annotations(tree["metadata"], kept)
        head = {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1"}
        return {**head, "metadata": meta, "spec": made_spec, "status": made_status}

    def to_stored(self, tree: Tree) -> Tree:
        """The object in v2."""
        spec, status = dict(tree["spec"]), dict(tree.get("status") or {})
        notes = tree["metadata"].get("annotations") or {}
        share = spec.pop("targetCPUUtilizationPercentage", None)
        metrics = _list_of(notes, _METRICS)
        if share is not None:
            target = {"type": "Utilization", "averageUtilization": share}
            metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
        if metrics:
            spec["metrics"] = metrics
        behavior = _parsed(notes, _BEHAVIOR)
        if isinstance(behavior, dict):
            spec["behavior"] = behavior
        status.pop("currentCPUUtilizationPercentage", None)
        status["currentMetrics"] = _list_of(notes, _CURRENT_METRICS) or None
        conditions = _list_of(notes, _CONDITIONS)
        if conditions:
            status["conditions"] = conditions
        head = {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2"}
        made = {
            **head,
            "metadata": _with_annotations(tree["metadata"], {}),
            "spec": spec,
            "status": status,
        }
        set_defaults(made)
        return made


def _cpu_target(metric: Tree) -> int | None:
    """The CPU utilization that a metric asks for; None for another metric."""
    resource = metric.get("resource") or {}
    if metric["type"] != "Resource" or resource.get("name") != "cpu":
        return None
    share: int | None = resource["target"].get("averageUtilization")
    return share


def _with_annotations(meta: Tree, kept: Tree) -> Tree:
    """A copy of metadata with only these round-trip annotations."""
    made = copy.deepcopy(meta)
    notes = made.pop("annotations", None) or {}
    notes = {name: value for name, value in notes.items() if name not in _ROUND_TRIP}
    notes |= {
        name: json.dumps(value, separators=(",", ":")) for name, value in kept.items() if value
    }
    return {**made, "annotations": notes} if notes else made


def _parsed(notes: dict[str, str], name: str) -> Any:
    """The value in an annotation; None if it is absent or no JSON, as the original ignores it."""
    try:
        return json.loads(notes.get(name, "null"))
    except ValueError:
        return None


def _list_of(notes: dict[str, str], name: str) -> list[Tree]:
    found = _parsed(notes, name)
    is_list = isinstance(found, list) and all(isinstance(each, dict) for each in found)
    return list(found) if is_list else []


class _TableV1:
    """The table of v1, with the columns of v2."""

    columns: tuple[TableColumn, ...] = TABLE.columns

    def cells(self, obj: Tree, now: float) -> list[Any]:
        """The cells of an object of v1."""
        return TABLE.cells(HorizontalPodAutoscalerV1Alias().to_stored(obj), now)

    def conditions(self, obj: Tree) -> list[Tree]:
        """None."""
        return []


KIND = KindRegistration(
    group="autoscaling",
    kind="HorizontalPodAutoscaler",
    types=TYPES,
    strategy=STRATEGY,
    status=STATUS_STRATEGY,
    short_names=("hpa",),
    categories=("all",),
    table=_TableV1(),
    alias=HorizontalPodAutoscalerV1Alias(),
    stored_as="v2",
)
