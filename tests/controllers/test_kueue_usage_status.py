"""Admission scope of Kueue on a cluster: status of LocalQueues, and the order in which jobs start.

Expected values: KEP-4136 and Kueue of 2026-08-22, worked out by hand.
"""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions, UsageOptions
from stowplan.controllers.kueue.kueue_kinds import CLUSTER_QUEUES, LOCAL_QUEUES
from stowplan.objects.quantity import nanos
from tests.controllers.test_kueue_jobs import KueueCluster

SCOPE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
MINUTE = KueueOptions(usage=UsageOptions(half_life_s=60.0, interval_s=60.0))


def cluster(cpu: str, options: KueueOptions = MINUTE, **weights: Any) -> KueueCluster:
    """A ClusterQueue q, and LocalQueues with weights."""
    made = KueueCluster(options)
    made.queue("q", cpu, **SCOPE)
    for name, weight in weights.items():
        spec = {"clusterQueue": "q", "fairSharing": {"weight": weight}}
        made.create(LOCAL_QUEUES, {"metadata": {"name": name}, "spec": spec})
    return made


def consumed(of: KueueCluster, name: str) -> float:
    """CPUs."""
    status = of.the(LOCAL_QUEUES, name)["status"]["fairSharing"]
    assert status["weightedShare"] == 0
    return nanos(status["admissionFairSharingStatus"]["consumedResources"].get("cpu", "0")) / 1e9


def test_the_status_of_a_local_queue_shows_what_it_used() -> None:
    made = cluster("4", a=1, b=1)
    made.run(5)
    assert consumed(made, "a") == 0
    made.job("one", 4, queue="a", run=1000)
    # Half of 4 at once; and as in Kueue the five seconds before count too: 4 * (1 - 0.5^(5/60)).
    assert consumed(made, "a") == pytest.approx(2 + 0.22450, abs=1e-4)
    # It comes near to 4, by half of what is left each minute.
    made.run(60)
    assert consumed(made, "a") == pytest.approx(3.11225, abs=1e-4)
    made.run(60)
    assert consumed(made, "a") == pytest.approx(3.55613, abs=1e-4)
    assert consumed(made, "b") == 0
    at = made.the(LOCAL_QUEUES, "a")["status"]["fairSharing"]["admissionFairSharingStatus"]
    made.run(60)
    assert (
        at["lastUpdate"]
        < (
            made.the(LOCAL_QUEUES, "a")["status"]["fairSharing"]["admissionFairSharingStatus"][
                "lastUpdate"
            ]
        )
    )


def test_without_a_configuration_there_is_no_status() -> None:
    made = cluster("4", KueueOptions(), a=1)
    made.job("one", 2, queue="a")
    assert "fairSharing" not in made.the(LOCAL_QUEUES, "a")["status"]


@pytest.mark.parametrize(("weight", "second"), [(1, "b0"), (0, "a1")])
def test_jobs_of_the_queue_that_used_less_start_first(weight: int, second: str) -> None:
    """With weight 0 a queue is always last."""
    made = cluster("2", a=1, b=weight)
    for name, queue in (("a0", "a"), ("a1", "a"), ("b0", "b")):
        made.job(name, 2, queue=queue, run=40)
    assert made.running() == {"a0": 2}
    made.run(50)
    assert made.running() == {second: 2}


def test_usage_is_kept_when_queues_change_and_weights_count_at_once() -> None:
    made = cluster("2", a=1, b=1)
    made.job("a0", 2, queue="a", run=40)
    made.job("a1", 2, queue="a", run=40)
    made.job("b0", 2, queue="b", run=40)
    before = consumed(made, "a")
    made.change(CLUSTER_QUEUES, "q", stopPolicy="None")
    made.run(1)
    assert consumed(made, "a") == before > 0
    made.change(LOCAL_QUEUES, "b", fairSharing={"weight": 0})
    made.run(60)
    assert made.running() == {"a1": 2}


def test_a_head_loses_its_place_while_nothing_else_happens() -> None:
    """Under StrictFIFO a large job keeps others out until its queue has used more than theirs."""
    made = cluster("4", a=1, b=1)
    made.change(CLUSTER_QUEUES, "q", queueingStrategy="StrictFIFO")
    made.job("past", 4, queue="b", run=5)
    made.run(10)
    assert made.running() == {}
    made.job("first", 2, queue="a", run=1000)
    made.job("large", 3, queue="a", run=1000)
    made.job("small", 1, queue="b", run=1000)
    assert made.running() == {"first": 2}
    # By then a has used 1 and something, b 2.
    made.run(20)
    assert made.running() == {"first": 2}
    made.run(50)
    assert made.running() == {"first": 2, "small": 1}
