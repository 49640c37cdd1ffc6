"""Claims of StatefulSets that their containers mount, as the API server checks them."""

from __future__ import annotations

import pytest

from stowplan.apis.machinery.errors import ApiError
from tests.apiserver.small_cluster import SmallCluster
from tests.controllers.test_stateful_sets import STATEFUL_SETS, claim_template, names, stateful_set


def test_containers_mount_the_claims_of_the_set() -> None:
    cluster = SmallCluster(3)
    made = stateful_set("web", 1, volumeClaimTemplates=[claim_template("www")])
    pod_spec = made["spec"]["template"]["spec"]
    pod_spec["containers"][0]["volumeMounts"] = [{"name": "www", "mountPath": "/data"}]
    # What pods get anyway is not checked.
    pod_spec["hostname"] = pod_spec["subdomain"] = "No Name"
    cluster.create(STATEFUL_SETS, made)
    cluster.run(10)
    assert names(cluster) == ["web-0*"]
    cluster.change(STATEFUL_SETS, "web", replicas=2)
    cluster.run(10)
    assert names(cluster) == ["web-0*", "web-1*"]


def test_a_mount_of_no_volume_is_refused() -> None:
    made = stateful_set("web", 1, volumeClaimTemplates=[claim_template("www")])
    pod_spec = made["spec"]["template"]["spec"]
    pod_spec["containers"][0]["volumeMounts"] = [{"name": "other", "mountPath": "/data"}]
    pod_spec["activeDeadlineSeconds"] = 5
    with pytest.raises(ApiError) as raised:
        SmallCluster(1).create(STATEFUL_SETS, made)
    causes = {one["field"]: one["message"] for one in raised.value.details["causes"]}
    assert causes == {
        "spec.template.spec.containers[0].volumeMounts[0].name": 'Not found: "other"',
        "spec.template.spec.activeDeadlineSeconds": (
            "Forbidden: activeDeadlineSeconds in StatefulSet is not Supported"
        ),
    }
