"""Kueue's documented examples with several flavors, cohorts, places and jobs of other kinds, by
kubectl on `stowplan up`.

Restated from kueue's site/content/en/docs: tasks/manage/administer_cluster_quotas.md (several
flavors; dedicated and fallback flavors), concepts/fair_sharing.md, and site/static/examples:
tas/sample-queues.yaml, tas/sample-job-required.yaml, jobs/sample-jobset.yaml,
jobs/sample-pytorchjob.yaml; tasks/run/kubeflow/trainjobs.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.driver.embedded import Tree
from tests.driver.kueue_cluster import (
    KUBECTL,
    KubectlCluster,
    cluster_queue,
    custom_kind,
    flavors_of,
    in_queue,
    local_queue,
    run_on_kueue,
)
from tests.driver.test_kueue_up import kueue, sample_job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("embedded"),
    pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl"),
]
SELECTOR = ".spec.template.spec.nodeSelector"


def architectures() -> list[Tree]:
    made = [kueue("ResourceFlavor", name, nodeLabels={"cpu-arch": name}) for name in ("x86", "arm")]
    return [*made, kueue("ResourceFlavor", "default-flavor")]


def job(name: str, queue: str, pods: int = 3, **labels: str) -> Tree:
    made = sample_job(name)
    made["spec"] |= {"parallelism": pods, "completions": pods}
    return in_queue(made, queue, {f"kueue.x-k8s.io/{key}": value for key, value in labels.items()})


def test_jobs_fall_over_to_the_next_flavor(tmp_path: Path) -> None:
    """Several flavors: x86 for three jobs of three CPUs, arm from the fourth on."""
    cpu = flavors_of(("x86", {"cpu": 9}), ("arm", {"cpu": 12}))
    memory = flavors_of(("default-flavor", {"memory": "84Gi"}))

    async def steps(cluster: KubectlCluster) -> None:
        for number, name in ((1, "x86"), (2, "arm"), (3, "arm")):
            await cluster.kubectl("label", "node", f"node-{number}", f"cpu-arch={name}")
        queue = cluster_queue("cluster-queue", cpu, memory)
        await cluster.apply(architectures(), queue, local_queue("user-queue", "cluster-queue"))
        for number in range(5):
            await cluster.apply(job(f"sample-{number}", "user-queue"))
            await cluster.states({f"sample-{number}": "Admitted"})
        chosen = [
            json.loads(await cluster.field(SELECTOR, "job", f"sample-{number}"))["cpu-arch"]
            for number in range(5)
        ]
        assert chosen == ["x86", "x86", "x86", "arm", "arm"]
        admission = json.loads(await cluster.kubectl("get", "workloads", "-o", "json"))
        flavors = {
            one["metadata"]["ownerReferences"][0]["name"]: one["status"]["admission"][
                "podSetAssignments"
            ][0]["flavors"]
            for one in admission["items"]
        }
        assert flavors["sample-4"] == {"cpu": "arm", "memory": "default-flavor"}

    run_on_kueue(tmp_path, steps)


def test_dedicated_and_fallback_flavors(tmp_path: Path) -> None:
    """Each team has arm nodes of its own, and borrows x86 nodes from a queue that all share."""

    def team(name: str, cpu: int, memory: str) -> Tree:
        own = {"nominalQuota": cpu, "borrowingLimit": 0}
        flavors = flavors_of(("arm", {"cpu": own}), ("x86", {"cpu": 0}))
        rest = flavors_of(("default-flavor", {"memory": memory}))
        return cluster_queue(name, flavors, rest, cohortName="team-ab")

    shared = cluster_queue(
        "shared-cq",
        flavors_of(("x86", {"cpu": 6})),
        flavors_of(("default-flavor", {"memory": "24Gi"})),
        cohortName="team-ab",
    )

    async def steps(cluster: KubectlCluster) -> None:
        for number, name in ((1, "x86"), (2, "arm"), (3, "arm")):
            await cluster.kubectl("label", "node", f"node-{number}", f"cpu-arch={name}")
        teams = team("team-a-cq", 9, "36Gi"), team("team-b-cq", 12, "48Gi")
        queues = local_queue("team-a", "team-a-cq"), local_queue("team-b", "team-b-cq")
        await cluster.apply(architectures(), *teams, shared, *queues)
        for number in range(5):
            await cluster.apply(job(f"a-{number}", "team-a"))
            await cluster.states({f"a-{number}": "Admitted"})
        chosen = [
            json.loads(await cluster.field(SELECTOR, "job", f"a-{number}"))["cpu-arch"]
            for number in range(5)
        ]
        assert chosen == ["arm", "arm", "arm", "x86", "x86"]
        # The shared quota is used up: team-b has its own nodes, and no more.
        await cluster.apply(job("a-5", "team-a"), job("b-0", "team-b"))
        await cluster.states({"a-5": "WaitingForQuota", "b-0": "Admitted"})
        # Jobs of one second are in the order of their uids, so this one comes once it has lost.
        await cluster.apply(job("b-1", "team-b", 12))
        await cluster.states({"b-1": "WaitingForQuota"})
        usage = json.loads(await cluster.field(".status.flavorsUsage", "cq", "team-a-cq"))
        held = {one["name"]: one["resources"][0] for one in usage}
        assert (held["x86"]["total"], held["x86"]["borrowed"]) == ("6", "6")

    run_on_kueue(tmp_path, steps)


def test_a_fair_share_is_taken_back(tmp_path: Path) -> None:
    """Of three queues with a third each one has borrowed all: another one preempts for its own."""
    config = "scheduler: kueue\nfairSharing: {}\n"
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}

    def team(name: str) -> Tree:
        flavors = flavors_of(("default-flavor", {"cpu": 3, "memory": "9Gi"}))
        return cluster_queue(name, flavors, cohortName="team-abc", preemption=preemption)

    async def steps(cluster: KubectlCluster) -> None:
        names = [f"team-{letter}" for letter in "abc"]
        await cluster.apply(kueue("ResourceFlavor", "default-flavor"))
        await cluster.apply([team(name) for name in names], [local_queue(n, n) for n in names])
        for number in range(3):
            await cluster.apply(job(f"a-{number}", "team-a"))
            await cluster.states({f"a-{number}": "Admitted"})
        share = await cluster.field(".status.fairSharing.weightedShare", "cq", "team-a")
        assert int(share) > 0
        await cluster.apply(job("b-0", "team-b"))
        # The latest one goes first.
        await cluster.states({"b-0": "Admitted", "a-0": "Admitted", "a-1": "Admitted"})
        workloads = json.loads(await cluster.kubectl("get", "workloads", "-o", "json"))["items"]
        victim = next(
            one for one in workloads if one["metadata"]["ownerReferences"][0]["name"] == "a-2"
        )
        evicted = {one["type"]: one for one in victim["status"]["conditions"]}
        assert evicted["Preempted"]["reason"] in ("InCohortReclamation", "InCohortFairSharing")
        events = await cluster.kubectl("get", "events")
        assert "PreemptedWorkload" in events
        columns = await cluster.kubectl("get", "workloads")
        assert columns.split("\n")[0].split() == [
            "NAME", "QUEUE", "RESERVED", "IN", "ADMITTED", "FINISHED", "AGE",
        ]  # fmt: skip

    run_on_kueue(tmp_path, steps, config)


def test_pods_stay_in_one_rack(tmp_path: Path) -> None:
    """A topology of blocks, racks and hosts; a job that requires one rack, and one that is too
    large for any."""
    block, rack, host = (
        "cloud.provider.com/topology-block",
        "cloud.provider.com/topology-rack",
        "kubernetes.io/hostname",
    )
    levels = [{"nodeLabel": one} for one in (block, rack, host)]
    queues = [
        kueue("Topology", "default", levels=levels),
        kueue(
            "ResourceFlavor",
            "tas-flavor",
            nodeLabels={"cloud.provider.com/node-group": "tas-group"},
            topologyName="default",
        ),
        cluster_queue(
            "tas-cluster-queue", flavors_of(("tas-flavor", {"cpu": 100, "memory": "100Gi"}))
        ),
        local_queue("tas-user-queue", "tas-cluster-queue"),
    ]

    def placed(name: str, pods: int, cpu: int, level: str = rack) -> Tree:
        made = job(name, "tas-user-queue", pods)
        template = made["spec"]["template"]
        template["metadata"]["annotations"] |= {"kueue.x-k8s.io/podset-required-topology": level}
        template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
        return made

    async def steps(cluster: KubectlCluster) -> None:
        for number in range(1, 5):
            labels = f"{block}=b1", f"{rack}=r{(number + 1) // 2}"
            group = "cloud.provider.com/node-group=tas-group"
            await cluster.kubectl("label", "node", f"node-{number}", group, *labels)
        await cluster.apply(queues)
        cpu = int(await cluster.field(".status.allocatable.cpu", "node", "node-1"))
        # Two pods fill the two nodes of a rack.
        await cluster.apply(placed("one-rack", 2, cpu - 1))
        await cluster.states({"one-rack": "Admitted"})
        pods = json.loads(await cluster.kubectl("get", "pods", "-o", "json"))["items"]
        nodes = {one["spec"]["nodeSelector"][host] for one in pods}
        assert len(nodes) == 2
        racks = {
            (await cluster.field(f".metadata.labels.{rack.replace('.', chr(92) + '.')}", "node", n))
            for n in nodes
        }
        assert len(racks) == 1
        await cluster.apply(placed("too-large", 3, cpu - 1))
        await cluster.states({"too-large": "TopologyPlacementFailed"})

    run_on_kueue(tmp_path, steps, nodes=4)


KINDS = [
    custom_kind("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    custom_kind("kubeflow.org", "v1", "PyTorchJob"),
    custom_kind("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
    custom_kind("trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime", is_global=True),
]


def template(cpu: int, name: str = "sleep") -> Tree:
    requests = {"cpu": cpu, "memory": "200Mi"}
    container = {"name": name, "image": "busybox", "resources": {"requests": requests}}
    # Their controllers run here: the pods do until the test ends the jobs.
    notes = {"annotations": {"stowplan.dev/run-seconds": "3600"}}
    return {"metadata": notes, "spec": {"restartPolicy": "Never", "containers": [container]}}


def replicated(name: str, cpu: int, **more: int) -> Tree:
    spec = {"parallelism": 1, "completions": 1, "template": template(cpu, "node")}
    return {"name": name, "template": {"spec": spec}, **more}


def made(version: str, kind: str, name: str, **spec: object) -> Tree:
    tree = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return in_queue(tree, "user-queue")


def other_jobs() -> tuple[Tree, Tree, Tree, Tree]:
    """A JobSet, a PyTorchJob, and a runtime and a TrainJob."""
    jobs = [replicated("workers", 1, replicas=1), replicated("driver", 2)]
    job_set = made("jobset.x-k8s.io/v1alpha2", "JobSet", "sleep-job", replicatedJobs=jobs)
    replicas = {
        name: {"replicas": 1, "restartPolicy": "OnFailure", "template": template(1, "pytorch")}
        for name in ("Master", "Worker")
    }
    torch = made("kubeflow.org/v1", "PyTorchJob", "pytorch-simple", pytorchReplicaSpecs=replicas)
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch-distributed"},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {"spec": {"replicatedJobs": [replicated("node", 1)]}},
        },
    }
    train = made(
        "trainer.kubeflow.org/v1alpha1", "TrainJob", "pytorch-trainjob",
        runtimeRef={"name": "torch-distributed", "kind": "ClusterTrainingRuntime"},
        trainer={"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": 2, "memory": "200Mi"}}},
    )  # fmt: skip
    return job_set, torch, runtime, train


def test_jobs_of_other_controllers(tmp_path: Path) -> None:
    """A JobSet, a PyTorchJob and a TrainJob are admitted as a whole, with their flavor's labels."""
    job_set, torch, runtime, train = other_jobs()

    async def steps(cluster: KubectlCluster) -> None:
        labels = {"kubernetes.io/hostname": "node-2"}
        await cluster.apply(KINDS)
        await cluster.apply(
            kueue("ResourceFlavor", "default-flavor", nodeLabels=labels),
            cluster_queue(
                "cluster-queue", flavors_of(("default-flavor", {"cpu": 9, "memory": "36Gi"}))
            ),
            local_queue("user-queue", "cluster-queue"),
        )
        await cluster.apply(job_set, torch, runtime, train)
        names = ("sleep-job", "pytorch-simple", "pytorch-trainjob")
        await cluster.states(dict.fromkeys(names, "Admitted"))
        kinds_of = {"jobset": names[0], "pytorchjob": names[1], "trainjob": names[2]}
        for kind, name in kinds_of.items():
            text = await cluster.kubectl("get", kind, name, "-o", "json")
            spec = json.loads(text)["spec"]
            assert (spec.get("runPolicy") or spec)["suspend"] is False
            assert text.count('"kubernetes.io/hostname": "node-2"') == (1 if "train" in kind else 2)
        # Nine CPUs are taken.
        again = {**train, "metadata": {**train["metadata"], "name": "next"}}
        await cluster.apply(again)
        await cluster.states({"next": "WaitingForQuota"})
        reserved = await cluster.field(
            ".status.flavorsReservation[0].resources[0].total", "cq", "cluster-queue"
        )
        assert reserved == "9"
        done = {
            "status": {
                "conditions": [
                    {
                        "type": "Completed",
                        "status": "True",
                        "reason": "r",
                        "message": "all jobs completed successfully",
                    }
                ]
            }
        }
        patch = "--subresource=status", "--type=merge", "-p", json.dumps(done)
        await cluster.kubectl("patch", "jobset", "sleep-job", *patch)
        done["status"]["conditions"][0]["type"] = "Succeeded"
        patch = "--subresource=status", "--type=merge", "-p", json.dumps(done)
        await cluster.kubectl("patch", "pytorchjob", "pytorch-simple", *patch)
        await cluster.states({"next": "Admitted"})

    run_on_kueue(tmp_path, steps)
