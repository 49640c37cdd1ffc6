"""HorizontalPodAutoscaler controller: scales workloads by simulated CPU and memory usage.

Differs: metrics are those of `simulated_metrics`; of metrics of containers, pods (custom metrics),
objects and external systems none exists, so they fail as they do without a metrics adapter. Targets
are Deployments, ReplicaSets, StatefulSets and ReplicationControllers. Pods that several autoscalers
select are not noticed. Scaling to zero (an alpha feature) is off.

Source: kube-controller-manager v1.36, pkg/controller/podautoscaler/horizontal.go.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

from stowplan.apis.kind.conditions import find_condition
from stowplan.apis.limits.resource_amounts import format_billionths
from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import (
    is_deleting,
    parse_label_selector,
    selector_matches,
)
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.object_times import format_time
from stowplan.controller_runtime.resource_paths import (
    AUTOSCALERS,
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from stowplan.controllers.autoscaling.replica_calculator import (
    MetricsError,
    MetricTarget,
    Proposal,
    Tolerances,
    propose_replicas,
)
from stowplan.controllers.autoscaling.scaling_behavior import Limits, ScalingHistory
from stowplan.controllers.autoscaling.simulated_metrics import (
    milli_amount,
    pod_samples,
    with_requests,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent

COMPONENT = "horizontal-pod-autoscaler"
PERIOD_SECONDS = 15.0
"""How often an autoscaler is synced."""
_SCALABLE = {
    ("apps", "Deployment"): DEPLOYMENTS,
    ("apps", "ReplicaSet"): REPLICA_SETS,
    ("apps", "StatefulSet"): STATEFUL_SETS,
    ("", "ReplicationController"): REPLICATION_CONTROLLERS,
}
"""Group and kind -> path. A target is found by its group; its version is not compared."""
_UNKNOWN_METRICS = {
    "ContainerResource": "FailedGetContainerResourceMetric",
    "External": "FailedGetExternalMetric",
    "Object": "FailedGetObjectMetric",
    "Pods": "FailedGetPodsMetric",
}


class _Metric(NamedTuple):
    """A metric that gives a number of replicas. name: in events and conditions."""

    name: str
    replicas: int
    status: Tree


class _Decision(NamedTuple):
    """Replicas to scale to, and why, in the words of the event."""

    replicas: int
    reason: str


class HorizontalPodAutoscalerController(Controller):
    """Syncs every autoscaler every 15 s."""

    name = "horizontalpodautoscaler"
    path = AUTOSCALERS
    observed = (AUTOSCALERS,)

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._histories: dict[Key, ScalingHistory] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue an autoscaler for a period after it was created; later it is queued already."""
        if change.path == AUTOSCALERS:
            key = split_key(change)
            if change.type == "DELETED":
                self._histories.pop(key, None)
            else:
                self.queue.add(key, self.api.now + PERIOD_SECONDS)

    def sync(self, key: Key) -> None:
        """Compute the number of replicas from the metrics, scale the target, write the status."""
        autoscaler = self.api.get(AUTOSCALERS, *key)
        if autoscaler is None or is_deleting(autoscaler):
            return
        self.queue.add(key, self.api.now + PERIOD_SECONDS)
        old = copy.deepcopy(autoscaler.get("status") or {})
        self._reconcile(key, autoscaler)
        if autoscaler["status"] != old:
            self.api.update_status(AUTOSCALERS, autoscaler)

    def _reconcile(self, key: Key, autoscaler: Tree) -> None:
        target = self._target(key, autoscaler)
        if target is None:
            return
        path, workload = target
        text = "the HPA controller was able to get the target's current scale"
        self._set(autoscaler, "AbleToScale", True, "SucceededGetScale", text)
        current = _replicas(workload)
        history = self._histories.setdefault(key, ScalingHistory())
        history.note_first(current, self.api.now)
        status = autoscaler["status"]
        status["currentReplicas"], status["currentMetrics"] = current, None
        decision = self._decide(autoscaler, workload, current, history)
        if decision is None:
            return
        if decision.replicas == current:
            status["desiredReplicas"] = current
            return
        size = f"New size: {decision.replicas}; reason: {decision.reason}"
        workload["spec"]["replicas"] = decision.replicas
        try:
            self.api.update(path, workload)
        except ApiError as error:
            self._record(autoscaler, "FailedRescale", f"{size}; error: {error.message}", "Warning")
            text = f"the HPA controller was unable to update the target scale: {error.message}"
            self._set(autoscaler, "AbleToScale", False, "FailedUpdateScale", text)
            return
        text = f"the HPA controller was able to update the target scale to {decision.replicas}"
        self._set(autoscaler, "AbleToScale", True, "SucceededRescale", text)
        self._record(autoscaler, "SuccessfulRescale", size)
        behavior = autoscaler["spec"].get("behavior")
        history.note_scale(current, decision.replicas, behavior, self.api.now)
        status["desiredReplicas"] = decision.replicas
        status["lastScaleTime"] = format_time(self.api.now)

    def _target(self, key: Key, autoscaler: Tree) -> tuple[str, Tree] | None:
        """Path and object of the target; None, with event and condition, if it has no scale."""
        reference = autoscaler["spec"]["scaleTargetRef"]
        version = reference.get("apiVersion", "")
        group = version.rpartition("/")[0]
        kind, name = reference["kind"], reference["name"]
        path = _SCALABLE.get((group, kind))
        workload = None if path is None else self.api.get(path, key[0], name)
        if path is not None and workload is not None:
            return path, workload
        if path is not None:
            plural = path.rpartition("/")[2]
            text = f'{plural}{"." if group else ""}{group} "{name}" not found'
        elif version.count("/") > 1:
            text = f"unexpected GroupVersion string: {version}"
        elif self.api.path_of(version, kind) is None:
            text = f'no matches for kind "{kind}" in group "{group}"'
        else:
            text = "the server could not find the requested resource"
        self._record(autoscaler, "FailedGetScale", text, "Warning")
        text = f"the HPA controller was unable to get the target's current scale: {text}"
        self._set(autoscaler, "AbleToScale", False, "FailedGetScale", text)
        return None

    def _decide(
        self, autoscaler: Tree, workload: Tree, current: int, history: ScalingHistory
    ) -> _Decision | None:
        """The number of replicas; None, with event and condition, if no metric gives one."""
        spec = autoscaler["spec"]
        least, most = spec.get("minReplicas", 1), spec["maxReplicas"]
        if current == 0:
            text = "scaling is disabled since the replica count of the target is zero"
            self._set(autoscaler, "ScalingActive", False, "ScalingDisabled", text)
            return _Decision(0, "")
        if current > most:
            return _Decision(most, "Current number of replicas above Spec.MaxReplicas")
        if current < least:
            return _Decision(least, "Current number of replicas below Spec.MinReplicas")
        metric = self._compute(autoscaler, workload, current)
        if metric is None:
            return None
        # Empty if only an earlier, stabilized recommendation asks for a change, as in the original.
        reason = ""
        if metric.replicas > current:
            reason = f"{metric.name} above target"
        elif metric.replicas < current:
            reason = "All metrics below target"
        limits = Limits(least, most, current)
        found = history.normalize(metric.replicas, limits, spec.get("behavior"), self.api.now)
        self._set(autoscaler, "AbleToScale", True, *found.able)
        self._set(autoscaler, "ScalingLimited", found.is_limited, *found.limited)
        return _Decision(found.replicas, reason)

    def _compute(self, autoscaler: Tree, workload: Tree, current: int) -> _Metric | None:
        """The metric that asks for most replicas; None if it is not known whether that is so."""
        metrics = autoscaler["spec"].get("metrics") or []
        found: list[_Metric] = []
        statuses: list[Tree] = []
        failures: list[tuple[str, str]] = []
        for spec in metrics:
            try:
                metric = self._proposal(autoscaler, spec, workload, current)
            except MetricsError as error:
                reason = _UNKNOWN_METRICS.get(spec["type"], "FailedGetResourceMetric")
                self._record(autoscaler, reason, str(error), "Warning")
                failures.append((reason, str(error)))
                statuses.append({"type": ""})
            else:
                found.append(metric)
                statuses.append(metric.status)
        autoscaler["status"]["currentMetrics"] = statuses
        best = max(found, key=lambda each: each.replicas, default=None)
        if best is None or (failures and best.replicas < current):
            reason, first = failures[0]
            text = f"the HPA was unable to compute the replica count: {first}"
            self._set(autoscaler, "ScalingActive", False, reason, text)
            count = f"{len(failures)} invalid out of {len(metrics)}"
            text = f"invalid metrics ({count}), first error is: {_wrapped(metrics, first)}"
            self._record(autoscaler, "FailedComputeMetricsReplicas", text, "Warning")
            return None
        text = f"the HPA was able to successfully calculate a replica count from {best.name}"
        self._set(autoscaler, "ScalingActive", True, "ValidMetricFound", text)
        return best

    def _proposal(self, autoscaler: Tree, spec: Tree, workload: Tree, current: int) -> _Metric:
        """The replicas that one metric asks for. Raises MetricsError."""
        if spec["type"] != "Resource":
            raise MetricsError("unable to get metric: no metrics are simulated for this type")
        resource, target = spec["resource"]["name"], spec["resource"]["target"]
        is_share = target.get("averageValue") is None
        kind = "utilization" if is_share else "usage"
        tolerances = _tolerances(autoscaler["spec"].get("behavior"))
        pods = self._pods_of(workload)
        try:
            samples = pod_samples(workload, pods, resource)
            if is_share:
                samples = with_requests(samples, pods, resource)
                wanted = MetricTarget(utilization=target["averageUtilization"])
            else:
                wanted = MetricTarget(average=milli_amount(target["averageValue"]))
            now = self.api.now
            found = propose_replicas(samples, current, wanted, tolerances, resource, now)
        except MetricsError as error:
            raise MetricsError(f"failed to get {resource} {kind}: {error}") from None
        name = f"{resource} resource"
        if is_share:
            name += " utilization (percentage of request)"
        return _Metric(name, found.replicas, _metric_status(resource, found))

    def _pods_of(self, workload: Tree) -> list[Tree]:
        """The pods that the target's selector matches, by name."""
        selector = workload["spec"].get("selector") or {}
        if workload["kind"] == "ReplicationController":
            selector = {"matchLabels": selector}
        wanted = parse_label_selector(selector)
        facts = self.index.in_namespace(workload["metadata"]["namespace"])
        keys = sorted(each.key for each in facts if selector_matches(wanted, each.labels))
        found = (self.api.get(PODS, *key) for key in keys)
        return [pod for pod in found if pod is not None]

    def _set(self, autoscaler: Tree, type_: str, holds: bool, reason: str, message: str) -> None:
        """Set a condition; its time changes with its status only."""
        conditions = autoscaler["status"].setdefault("conditions", [])
        found = find_condition(conditions, type_)
        status = "True" if holds else "False"
        if found is None:
            found = {"type": type_}
            conditions.append(found)
        if found.get("status") != status:
            found["lastTransitionTime"] = format_time(self.api.now)
        found |= {"status": status, "reason": reason, "message": message}

    def _record(self, about: Tree, reason: str, message: str, type_: str = "Normal") -> None:
        self.recorder.record(about, COMPONENT, reason, message, type=type_)


def _replicas(workload: Tree) -> int:
    return int(workload["spec"].get("replicas", 1))


def _wrapped(metrics: list[Tree], error: str) -> str:
    """An error with the metric that it is about, as the original's event has it."""
    resources = [each["resource"]["name"] for each in metrics if each["type"] == "Resource"]
    name = next((each for each in resources if error.startswith(f"failed to get {each} ")), "")
    return f"failed to get {name} resource metric value: {error}" if name else error


def _tolerances(behavior: Tree | None) -> Tolerances:
    found = Tolerances()
    for field, name in (("down", "scaleDown"), ("up", "scaleUp")):
        given = ((behavior or {}).get(name) or {}).get("tolerance")
        if given is not None:
            found = found._replace(**{field: milli_amount(given) / 1000})
    return found


def _metric_status(resource: str, found: Proposal) -> Tree:
    """The entry of `status.currentMetrics`."""
    like = "1Ki" if resource == "memory" else "1"
    current: Tree = {"averageValue": format_billionths(found.average * 10**6, like)}
    if found.utilization is not None:
        current["averageUtilization"] = found.utilization
    return {"type": "Resource", "resource": {"name": resource, "current": current}}
