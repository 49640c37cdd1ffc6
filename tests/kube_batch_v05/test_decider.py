"""kube-batch v0.5 where the scheduler runs sessions, chosen by `compat`."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.assembly.watched_kinds import kinds_read
from stowplan.batch import Session, SessionAction
from stowplan.config.session_configuration import KUBE_BATCH_0_5
from stowplan.forecast.explain_job import explain_job, explain_pod_group
from stowplan.forecast.queue_shares import shares_of
from stowplan.framework import ContractError
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.kube_batch_v05.decider import KubeBatchDecider
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.podgroup import PodGroup
from stowplan.objects.storage import PersistentVolume
from stowplan.simulation.session_runner import SessionRunner
from stowplan.simulation.simulate_jobs import simulate_jobs
from tests.batch.session_driver import SessionDriver, binds, member
from tests.scenarios import group_commands

CONFIGURATION = group_commands.configured(())
CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "2", memory: 8Gi, pods: "10"}}
---
apiVersion: scheduling.incubator.k8s.io/v1alpha1
kind: Queue
metadata: {name: default}
spec: {weight: 1, capability: {cpu: "1"}}
---
apiVersion: scheduling.incubator.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: fits}
spec: {minMember: 2}
---
apiVersion: scheduling.incubator.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: large}
spec: {minMember: 1}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {scheduling.k8s.io/group-name: %s}}
spec: {schedulerName: kube-batch, containers: [{name: c, resources: {requests: {cpu: "%s"}}}]}
"""
BUDGET = """
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: b
  ownerReferences: [{apiVersion: v1, kind: Crew, name: c, uid: u, controller: true}]
spec: {minAvailable: 2}
"""


def cluster(folder: Path, more: str = "") -> Cluster:
    """Two pods that fit together, and one that needs more than the node."""
    pods = "".join(POD % one for one in (("a", "fits", 1), ("b", "fits", 1), ("c", "large", 5)))
    file = folder / "cluster.yaml"
    file.write_text(CLUSTER + pods + more)
    return read_cluster(file)


def configured(folder: Path) -> Path:
    file = folder / "batch.yaml"
    file.write_text(CONFIGURATION)
    return file


def driver(cpu: str = "2") -> SessionDriver:
    return SessionDriver(cpu, compat=KUBE_BATCH_0_5)


def decider(driver: SessionDriver) -> KubeBatchDecider:
    (lane,) = driver.scheduler.lanes.batch
    found = lane.decider
    assert isinstance(found, KubeBatchDecider)
    return found


def test_a_gang_is_bound_and_counted() -> None:
    made = driver()
    assert binds(made.handle(*made.gang("g", 2))) == {"g-0": "n1", "g-1": "n1"}
    assert decider(made).n_waiting == 0
    assert len(list(decider(made).known())) == 2
    counted = made.metrics.counters["volcano_schedule_attempts_total", (("result", "scheduled"),)]
    assert counted == 2
    # The binds are under way: their resources are taken.
    assert binds(made.handle(*made.gang("late", 1))) == {}


def test_a_refused_bind_is_tried_again() -> None:
    made = driver("1")
    asked = made.handle(*made.gang("g", 1))
    (bind,) = [one for one in asked if isinstance(one, to_do.Bind)]
    effects = made.handle(happened.BindFailed(bind.effect, bind.uid, 409, "no"))
    # The pod is read; that it is still pending makes the refusal certain.
    effects += made.handle()
    read = next(one for one in effects if isinstance(one, to_do.ReadPod))
    again = made.handle(happened.PodRead(read.effect, bind.uid, member("g-0", "g")))
    assert decider(made).failures(bind.uid) == 1
    assert binds([*again, *made.handle()]) == {"g-0": "n1"}


def test_the_status_of_a_group_is_written_in_every_session() -> None:
    made = driver("1")
    made.handle(*made.gang("g", 1, cpu="2"))
    written = made.handle(happened.PodAdded(member("g-1", "g", "2")))
    (patch,) = [one for one in written if isinstance(one, to_do.PatchGroup)]
    assert (patch.name, patch.status.phase) == ("g", "Pending")


def test_other_actions_can_be_loaded_and_another_queue_cannot() -> None:
    found = decider(driver())
    assert found.reload(group_commands.configured(["actions=allocate"]), "f") == ""
    assert found.plan.options.actions == ("allocate",)
    assert "only actions" in found.reload(group_commands.configured(["defaultQueue=other"]), "f")
    assert "did you mean 'allocate'?" in found.reload("actions: alocate", "f")


def test_custom_actions_are_refused() -> None:
    class Evacuate(SessionAction):
        name = "evacuate"

        def run(self, session: Session) -> None:
            """Nothing."""

    texts = [ConfigText(CONFIGURATION, "batch.yaml")]
    assert deciders_of(texts, [Evacuate])
    with pytest.raises(ContractError, match=r"do not run in kube-batch-0.5: expected no --compat"):
        deciders_of(texts, [Evacuate], KUBE_BATCH_0_5)


def test_the_kinds_of_its_predicates_are_watched() -> None:
    found = kinds_read(deciders_of([ConfigText(CONFIGURATION, "b")], (), KUBE_BATCH_0_5))
    assert {PodGroup, PersistentVolume} <= set(found)


def test_a_simulation_reports_its_jobs(tmp_path: Path) -> None:
    run = simulate_jobs(cluster(tmp_path), config=configured(tmp_path), compat=KUBE_BATCH_0_5)
    jobs = {job.name: job for job in run.jobs}
    assert jobs["default/fits"].placed == {"default/a": "n1", "default/b": "n1"}
    assert jobs["default/large"].waiting == ("default/c",)
    assert jobs["default/large"].reason == "NotEnoughResources"
    assert jobs["default/large"].message.endswith("0 nodes are available")


def test_it_is_explained(tmp_path: Path) -> None:
    given = cluster(tmp_path)
    config = configured(tmp_path)
    one = explain_job("default/c", given, config=config, compat=KUBE_BATCH_0_5)
    assert one.never == ("needs 5 cpu, the cluster has 2",)
    assert one.nodes[0].reasons == ("Insufficient cpu (needs 5, 0 left)",)
    assert one.evictions == ()
    group = explain_pod_group("default/fits", given, config=config, compat=KUBE_BATCH_0_5)
    assert group.is_placed


def test_shares_of_queues_know_no_capability(tmp_path: Path) -> None:
    found = deciders_of([ConfigText(CONFIGURATION, "b")], (), KUBE_BATCH_0_5)
    (queue,) = shares_of(SessionRunner(cluster(tmp_path), found)).queues
    assert queue.capability == {}
    assert queue.deserved is not None
    # Where nothing but cpu and memory exists a queue deserves all of it.
    assert queue.deserved["memory"] == 8 * 2**30


def test_a_panic_is_an_error_of_the_cluster(tmp_path: Path) -> None:
    given = cluster(tmp_path, BUDGET)
    with pytest.raises(InputError, match=r"a panic .*nil pointer.* or no --compat"):
        simulate_jobs(given, config=configured(tmp_path), compat=KUBE_BATCH_0_5)
    assert simulate_jobs(given, config=configured(tmp_path)).jobs


def test_an_assumed_pod_counts_until_it_is_forgotten() -> None:
    found = decider(driver())
    pod = member("x", "g")
    found.pod_updated(pod)
    found.assumed(pod, "n1")
    assert found.cache.nodes["n1"].idle.cpu == 1000
    found.forgotten(pod.uid)
    assert found.cache.nodes["n1"].idle.cpu == 2000
    found.cache.evicting(pod.uid)
    found.pod_updated(
        replace(
            pod, spec=replace(pod.spec, node_name="n1"), status=replace(pod.status, phase="Running")
        )
    )
    assert found.cache.nodes["n1"].releasing.cpu == 1000
    found.pod_not_evicted(pod.uid)
    assert found.cache.nodes["n1"].releasing.cpu == 0
