"""HorizontalPodAutoscalers: the algorithm, stabilization, behavior, status, versions, events.

Expected values: kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale (algorithm
details, default behavior), and kube-controller-manager v1.36, pkg/controller/podautoscaler
(replica_calculator_test.go, horizontal_test.go).
"""

from __future__ import annotations

import itertools

import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controllers.autoscaling.replica_calculator import (
    MetricsError,
    MetricTarget,
    PodSample,
    Tolerances,
    propose_replicas,
)
from stowplan.controllers.autoscaling.scaling_behavior import Limits, ScalingHistory
from tests.apiserver.small_cluster import DEPLOYMENTS, SmallCluster, Tree, deployment

PATH = "autoscaling/horizontalpodautoscalers"
NOW = 10_000.0


def sample(usage: int | None, request: int = 1000, **more: object) -> PodSample:
    """A pod that has been ready for long."""
    base = PodSample("", "Running", False, True, 100.0, 50.0, usage, request)
    return base._replace(**more)


def named(pods: list[PodSample]) -> list[PodSample]:
    return [pod._replace(name=f"p{at}") for at, pod in enumerate(pods)]


def young(usage: int) -> PodSample:
    return sample(usage, ready=False, ready_changed=NOW - 5, started=NOW - 10)


@pytest.mark.parametrize(
    ("pods", "current", "target", "expected"),
    [
        # TestReplicaCalcScaleUp: 300, 500, 700 of 1000 at 30 %: 5 replicas.
        ([sample(300), sample(500), sample(700)], 3, 30, 5),
        # TestReplicaCalcScaleUpUnreadyLessScale: one unready of three: 4.
        ([young(300), sample(500), sample(700)], 3, 30, 4),
        # TestReplicaCalcScaleUpHotCpuLessScale.
        ([young(0), sample(500), sample(700)], 3, 30, 4),
        # TestReplicaCalcScaleUpIgnoresFailedPods: 2 running, 2 failed.
        (
            [sample(500), sample(700), sample(1, phase="Failed"), sample(1, phase="Failed")],
            2,
            30,
            4,
        ),
        # TestReplicaCalcScaleUpIgnoresDeletionPods.
        (
            [sample(500), sample(700), sample(1, is_deleting=True), sample(1, is_deleting=True)],
            2,
            30,
            4,
        ),
        # TestReplicaCalcScaleDown: 100, 300, 500, 250, 250 at 50 %: 3.
        ([sample(100), sample(300), sample(500), sample(250), sample(250)], 5, 50, 3),
        # TestReplicaCalcTolerance: 1010, 1030, 1020 of 900, 1000, 1100 at 100 %: stays.
        ([sample(1010, 900), sample(1030, 1000), sample(1020, 1100)], 3, 100, 3),
        # TestReplicaCalcMissingMetricsNoChangeEq and ...LT, ...GT: stays.
        ([sample(1000), sample(None)], 2, 100, 2),
        ([sample(1900), sample(None)], 2, 100, 2),
        ([sample(600), sample(None)], 2, 100, 2),
        # TestReplicaCalcMissingMetrics.
        ([sample(400), sample(95), sample(None), sample(None)], 4, 100, 3),
        # TestReplicaCalcMissingMetricsUnreadyChange.
        ([young(100), sample(450), sample(None)], 3, 50, 3),
        # Unready pods count as idle: 32 % of 30 % is within the tolerance.
        ([sample(640), sample(640), young(1), young(1)], 4, 30, 4),
        # TestReplicaCalcScaleUpUnreadyNoScale.
        ([sample(400), young(500), young(700)], 3, 30, 3),
    ],
)
def test_replicas_for_a_utilization(
    pods: list[PodSample], current: int, target: int, expected: int
) -> None:
    wanted = MetricTarget(utilization=target)
    found = propose_replicas(named(pods), current, wanted, Tolerances(), "cpu", NOW)
    assert found.replicas == expected


def test_replicas_for_an_average_value_and_for_missing_metrics() -> None:
    pods = named([sample(20_000), sample(10_000), sample(30_000)])
    found = propose_replicas(pods, 3, MetricTarget(average=15_000), Tolerances(), "memory", NOW)
    assert (found.replicas, found.average, found.utilization) == (4, 20_000, None)
    with pytest.raises(MetricsError, match="did not receive metrics for targeted pods"):
        propose_replicas(
            named([young(1)]), 1, MetricTarget(utilization=50), Tolerances(), "cpu", NOW
        )
    with pytest.raises(MetricsError, match="no pods returned by selector"):
        propose_replicas([], 1, MetricTarget(utilization=50), Tolerances(), "cpu", NOW)


def behavior(
    up: list[tuple[str, int, int]] | None = None,
    down: list[tuple[str, int, int]] | None = None,
    select: str = "Max",
    up_s: int = 0,
    down_s: int = 0,
) -> Tree:
    def policies(of: list[tuple[str, int, int]] | None) -> list[Tree]:
        given = of or [("Percent", 1000, 15)]
        return [{"type": t, "value": v, "periodSeconds": p} for t, v, p in given]

    rules = {"selectPolicy": select}
    return {
        "scaleUp": {**rules, "policies": policies(up), "stabilizationWindowSeconds": up_s},
        "scaleDown": {**rules, "policies": policies(down), "stabilizationWindowSeconds": down_s},
    }


@pytest.mark.parametrize(
    ("rules", "wanted", "current", "expected", "reason"),
    [
        (None, 20, 3, 6, "ScaleUpLimit"),
        (None, 20, 1, 4, "ScaleUpLimit"),
        (None, 200, 60, 100, "TooManyReplicas"),
        (None, 1, 5, 2, "TooFewReplicas"),
        (None, 4, 5, 4, "DesiredWithinRange"),
        (behavior(up=[("Pods", 3, 60)]), 20, 5, 8, "ScaleUpLimit"),
        (behavior(up=[("Percent", 50, 60)]), 20, 5, 8, "ScaleUpLimit"),
        (behavior(up=[("Pods", 1, 60), ("Percent", 100, 60)]), 20, 5, 10, "ScaleUpLimit"),
        (
            behavior(up=[("Pods", 1, 60), ("Percent", 100, 60)], select="Min"),
            20,
            5,
            6,
            "ScaleUpLimit",
        ),
        (behavior(select="Disabled"), 20, 5, 5, "ScaleUpLimit"),
        (behavior(down=[("Percent", 10, 60)]), 2, 50, 45, "ScaleDownLimit"),
        (behavior(down=[("Pods", 4, 60), ("Percent", 10, 60)]), 2, 20, 16, "ScaleDownLimit"),
        (
            behavior(down=[("Pods", 4, 60), ("Percent", 10, 60)], select="Min"),
            2,
            20,
            18,
            "ScaleDownLimit",
        ),
    ],
)
def test_rates(rules: Tree | None, wanted: int, current: int, expected: int, reason: str) -> None:
    found = ScalingHistory().normalize(wanted, Limits(2, 100, current), rules, NOW)
    assert (found.replicas, found.limited[0]) == (expected, reason)


def test_a_rate_counts_the_changes_of_its_period() -> None:
    rules = behavior(up=[("Pods", 4, 60)])
    history = ScalingHistory()
    assert history.normalize(20, Limits(1, 100, 5), rules, NOW).replicas == 9
    history.note_scale(5, 9, rules, NOW)
    assert history.normalize(20, Limits(1, 100, 9), rules, NOW + 15).replicas == 9
    assert history.normalize(20, Limits(1, 100, 9), rules, NOW + 61).replicas == 13


def test_a_stabilization_window_keeps_the_highest_or_the_lowest_recommendation() -> None:
    history = ScalingHistory()
    assert history.normalize(8, Limits(1, 100, 8), None, NOW).replicas == 8
    held = history.normalize(3, Limits(1, 100, 8), None, NOW + 299)
    assert (held.replicas, held.able[0]) == (8, "ScaleDownStabilized")
    assert history.normalize(3, Limits(1, 100, 8), None, NOW + 301).replicas == 3
    rules = behavior(up_s=60)
    history = ScalingHistory()
    history.normalize(4, Limits(1, 100, 4), rules, NOW)
    held = history.normalize(9, Limits(1, 100, 4), rules, NOW + 30)
    assert (held.replicas, held.able[0]) == (4, "ScaleUpStabilized")
    assert history.normalize(9, Limits(1, 100, 4), rules, NOW + 91).replicas == 9


def autoscaler(least: int = 1, most: int = 10, share: int = 50, **spec: object) -> Tree:
    target = {"type": "Utilization", "averageUtilization": share}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    base = {"scaleTargetRef": reference, "minReplicas": least, "maxReplicas": most}
    return {"metadata": {"name": "web"}, "spec": {**base, "metrics": metrics, **spec}}


def web(replicas: int, load: str = "", usage: str = "") -> Tree:
    """Each pod requests 100m."""
    made = deployment("web", replicas, {"stowplan.dev/cpu-usage": usage} if usage else None)
    if load:
        made["metadata"]["annotations"] = {"stowplan.dev/load-cpu": load}
    return made


def replicas(cluster: SmallCluster) -> int:
    return int(cluster.the(DEPLOYMENTS, "web")["spec"]["replicas"])


def condition(cluster: SmallCluster, type_: str) -> tuple[str, str]:
    found = find_condition(cluster.the(PATH, "web")["status"]["conditions"], type_) or {}
    return found["status"], found["reason"]


def events(cluster: SmallCluster) -> set[tuple[str, str]]:
    kind = "HorizontalPodAutoscaler"
    found = [each for each in cluster.list("events") if each["involvedObject"]["kind"] == kind]
    return {(each["reason"], each["message"]) for each in found}


def set_load(cluster: SmallCluster, load: str) -> None:
    found = cluster.the(DEPLOYMENTS, "web")
    found["metadata"]["annotations"]["stowplan.dev/load-cpu"] = load
    cluster.api.update(DEPLOYMENTS, found)


def test_a_load_is_shared_until_the_target_is_met_and_shrinks_after_five_minutes() -> None:
    cluster = SmallCluster(3)
    cluster.create(DEPLOYMENTS, web(1, load="300m"))
    cluster.create(PATH, autoscaler())
    cluster.run(14)
    assert replicas(cluster) == 1
    cluster.run(180)
    # 300m at 50 % of 100m: 6 pods.
    assert replicas(cluster) == 6
    status = cluster.the(PATH, "web")["status"]
    assert (status["currentReplicas"], status["desiredReplicas"]) == (6, 6)
    current = {"averageUtilization": 50, "averageValue": "50m"}
    assert status["currentMetrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "current": current}}
    ]
    assert condition(cluster, "AbleToScale") == ("True", "ReadyForNewScale")
    assert condition(cluster, "ScalingActive") == ("True", "ValidMetricFound")
    assert condition(cluster, "ScalingLimited") == ("False", "DesiredWithinRange")
    text = "cpu resource utilization (percentage of request) above target"
    assert ("SuccessfulRescale", f"New size: 4; reason: {text}") in events(cluster)
    set_load(cluster, "100m")
    cluster.run(200)
    assert replicas(cluster) == 6
    assert condition(cluster, "AbleToScale") == ("True", "ScaleDownStabilized")
    cluster.run(200)
    assert replicas(cluster) == 2
    assert ("SuccessfulRescale", "New size: 2; reason: All metrics below target") in events(cluster)


def test_usage_of_the_template_scales_to_the_maximum() -> None:
    cluster = SmallCluster(3)
    cluster.create(DEPLOYMENTS, web(2, usage="100m"))
    cluster.create(PATH, autoscaler(most=5))
    cluster.run(300)
    assert replicas(cluster) == 5
    assert condition(cluster, "ScalingLimited") == ("True", "TooManyReplicas")


@pytest.mark.parametrize(
    ("start", "expected", "reason"),
    [
        (1, 2, "Current number of replicas below Spec.MinReplicas"),
        (9, 4, "Current number of replicas above Spec.MaxReplicas"),
    ],
)
def test_bounds_hold_without_metrics(start: int, expected: int, reason: str) -> None:
    cluster = SmallCluster(3)
    cluster.create(DEPLOYMENTS, web(start))
    cluster.create(PATH, autoscaler(least=2, most=4))
    cluster.run(16)
    assert replicas(cluster) == expected
    assert ("SuccessfulRescale", f"New size: {expected}; reason: {reason}") in events(cluster)


def test_what_fails_is_reported() -> None:
    cluster = SmallCluster(2)
    cluster.create(PATH, autoscaler())
    cluster.run(16)
    assert condition(cluster, "AbleToScale") == ("False", "FailedGetScale")
    assert ("FailedGetScale", 'deployments.apps "web" not found') in events(cluster)
    cluster.create(DEPLOYMENTS, web(1))
    cluster.run(60)
    assert condition(cluster, "ScalingActive") == ("False", "FailedGetResourceMetric")
    cause = (
        "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics"
        " returned from resource metrics API"
    )
    assert ("FailedGetResourceMetric", cause) in events(cluster)
    text = (
        "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric"
        f" value: {cause}"
    )
    assert ("FailedComputeMetricsReplicas", text) in events(cluster)
    cluster.change(DEPLOYMENTS, "web", replicas=0)
    cluster.run(30)
    assert condition(cluster, "ScalingActive") == ("False", "ScalingDisabled")


@pytest.mark.parametrize(
    ("version", "kind", "cause"),
    [
        ("foo/v1", "Bar", 'no matches for kind "Bar" in group "foo"'),
        ("apps/v1", "DaemonSet", "the server could not find the requested resource"),
        # Targets are looked up by their group.
        ("apps/v1beta1", "StatefulSet", 'statefulsets.apps "web" not found'),
        ("v1", "ReplicationController", 'replicationcontrollers "web" not found'),
    ],
)
def test_a_target_without_a_scale_is_reported(version: str, kind: str, cause: str) -> None:
    cluster = SmallCluster(1)
    made = autoscaler()
    made["spec"]["scaleTargetRef"] = {"apiVersion": version, "kind": kind, "name": "web"}
    cluster.create(PATH, made)
    cluster.run(16)
    assert ("FailedGetScale", cause) in events(cluster)


def test_a_load_that_is_no_quantity_is_reported() -> None:
    cluster = SmallCluster(2)
    cluster.create(DEPLOYMENTS, web(1, load="much"))
    cluster.create(PATH, autoscaler())
    cluster.run(60)
    assert condition(cluster, "ScalingActive") == ("False", "FailedGetResourceMetric")
    cause = "annotation stowplan.dev/load-cpu of Deployment web: quantity 'much': expected"
    assert any(cause in text for _, text in events(cluster))


@pytest.mark.parametrize("load", ["1G", "1e400"])
def test_a_huge_load_scales_to_the_maximum(load: str) -> None:
    cluster = SmallCluster(2)
    cluster.create(DEPLOYMENTS, web(1, load=load))
    cluster.create(PATH, autoscaler(most=3))
    cluster.run(90)
    assert replicas(cluster) == 3
    metric = cluster.the(PATH, "web")["status"]["currentMetrics"][0]["resource"]["current"]
    assert metric["averageUtilization"] == 2**31 - 1


def test_a_behavior_limits_the_rate() -> None:
    cluster = SmallCluster(3)
    cluster.create(DEPLOYMENTS, web(1, load="500m"))
    rules = {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}
    cluster.create(PATH, autoscaler(behavior=rules))
    seen: list[tuple[float, int]] = []

    def watch(of: SmallCluster) -> None:
        if not seen or seen[-1][1] != replicas(of):
            seen.append((of.now, replicas(of)))

    cluster.run(330, watch)
    assert [number for _, number in seen[:6]] == [1, 2, 3, 4, 5, 6]
    gaps = [later[0] - sooner[0] for sooner, later in itertools.pairwise(seen[1:])]
    assert min(gaps) >= 60


def test_both_versions_show_the_same_object() -> None:
    cluster = SmallCluster(1)
    v1 = cluster.server.registry.find("autoscaling", "v1", "horizontalpodautoscalers")
    assert v1 is not None
    assert v1.alias is not None
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": reference, "maxReplicas": 4, "targetCPUUtilizationPercentage": 70}
    stored = v1.alias.to_stored({"metadata": {"name": "web"}, "spec": spec, "status": {}})
    target = {"type": "Utilization", "averageUtilization": 70}
    assert stored["spec"]["metrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    ]
    made = cluster.create(
        PATH, autoscaler(share=70, behavior={"scaleDown": {"selectPolicy": "Min"}})
    )
    assert made["spec"]["behavior"]["scaleUp"]["policies"][0]["value"] == 4
    served = v1.alias.from_stored(made)
    assert served["spec"]["targetCPUUtilizationPercentage"] == 70
    assert "behavior" not in served["spec"]
    back = v1.alias.to_stored(served)
    assert back["spec"] == made["spec"]
    assert back["metadata"].get("annotations") is None


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"maxReplicas": 0}, "spec.maxReplicas: Required value: must be set and greater than 0"),
        ({"minReplicas": 5, "maxReplicas": 4}, "must be greater than or equal to `minReplicas`"),
        ({"minReplicas": 0}, "must be greater than or equal to 1"),
        ({"metrics": [{"type": "Nope"}]}, 'Unsupported value: "Nope"'),
        (
            {"metrics": [{"type": "Resource"}]},
            "must populate information for the given metric source",
        ),
        (
            {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 3601}}},
            "must be less than or equal to 3600",
        ),
    ],
)
def test_validation(spec: Tree, text: str) -> None:
    cluster = SmallCluster(1)
    with pytest.raises(ApiError) as refused:
        cluster.create(PATH, autoscaler(**spec))
    assert text in refused.value.message


def test_without_metrics_the_target_is_80_percent_of_cpu() -> None:
    cluster = SmallCluster(1)
    tree = autoscaler()
    del tree["spec"]["metrics"]
    made = cluster.create(PATH, tree)
    assert made["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 80


@pytest.mark.parametrize(
    ("amount", "is_valid"), [("1e300", True), ("1e30", True), ("1n", True), ("0", False)]
)
def test_a_target_beyond_int64_is_positive(amount: str, is_valid: bool) -> None:
    cluster = SmallCluster(0)
    target = {"type": "AverageValue", "averageValue": amount}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    wanted = autoscaler(metrics=[metric])
    if is_valid:
        made = cluster.create(PATH, wanted)
        assert made["spec"]["metrics"][0]["resource"]["target"]["averageValue"] == amount
        return
    with pytest.raises(ApiError, match="must be positive"):
        cluster.create(PATH, wanted)
