"""Pod groups in a replay with the controllers, kubelets and scheduler of `up`: Jobs that are gangs,
groups made from the templates of one Workload, and claims that a group shares."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from stowplan.assembly.deciders import deciders_of
from stowplan.framework.feature_gates import FeatureGates
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.workload_replay import WorkloadReplay
from tests.simulation.test_device_claims import CARDS, claim_template, device_class, node_with
from tests.simulation.test_workload_replay import Tree, node, run, template

SCHEDULING = "scheduling.k8s.io/v1alpha2"
GATES = FeatureGates(
    generic_workload=True,
    gang_scheduling=True,
    workload_with_job=True,
    dra_workload_resource_claims=True,
)


class GroupReplay:
    """A replay with the gates, and the events of its pods."""

    def __init__(
        self, folder: Path, *objects: Tree, compat: tuple[str, ...] = (), until_s: float = 400
    ) -> None:
        file = folder / "objects.json"
        whole = {"apiVersion": "v1", "kind": "List", "items": objects}
        file.write_bytes(msgspec.json.encode(whole))
        cluster = read_cluster(file, keep_manifests=True)
        deciders = deciders_of((), (), compat, GATES)
        options = ReplayOptions(until_s=until_s)
        self.replay = WorkloadReplay(cluster, deciders, deciders.scheduler(), options)
        self.notes: list[str] = []
        self.replay.on_effects = self._observe
        run(self.replay)

    def _observe(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, to_do.RecordEvent) and effect.reason == "FailedScheduling":
                self.notes.append(effect.note)

    def starts(self) -> dict[str, list[float]]:
        """Prefix of the names of pods -> the seconds at which they were bound."""
        found: dict[str, list[float]] = {}
        for history in self.replay.pod_histories.values():
            if history.bound is not None:
                name = history.pod.name.partition("-")[0]
                found.setdefault(name, []).append(history.bound / 1e9)
        return found

    def stored(self, path: str) -> list[Tree]:
        server = self.replay._api.server
        resource = server.registry.by_path(path)
        assert resource is not None
        return list(server.list(resource))

    def scheduled(self) -> list[str]:
        """Status of the condition of each PodGroup."""
        groups = self.stored("scheduling.k8s.io/podgroups")
        found = (one.get("status", {}).get("conditions", ()) for one in groups)
        return [condition["status"] for conditions in found for condition in conditions]


def gang(name: str, pods: int, cpu: str, **spec: Any) -> Tree:
    """A Job whose pods run all at the same time, for 60 seconds."""
    notes = {"stowplan.dev/run-seconds": "60"}
    shape = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    pod = template(cpu, notes, restartPolicy="Never", **spec)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {**shape, "template": pod},
    }


def group(name: str, **spec: Any) -> Tree:
    return {
        "apiVersion": SCHEDULING,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_jobs_that_do_not_fit_together_run_one_after_the_other(tmp_path: Path) -> None:
    # Room for four pods: two gangs of three would block each other with two pods each.
    jobs = [gang("first", 3, "4"), gang("second", 3, "4")]
    found = GroupReplay(tmp_path, node("n1"), node("n2"), *jobs)
    starts = found.starts()
    assert [len(set(starts[name])) for name in ("first", "second")] == [1, 1]
    (first,), (second,) = set(starts["first"]), set(starts["second"])
    assert abs(first - second) >= 60
    assert found.scheduled() == ["True", "True"]
    assert [job["status"]["succeeded"] for job in found.stored("batch/jobs")] == [3, 3]


def test_groups_of_one_workload_for_the_jobs_of_a_set(tmp_path: Path) -> None:
    policy = {"gang": {"minCount": 2}}
    workload: Tree = {
        "apiVersion": SCHEDULING,
        "kind": "Workload",
        "metadata": {"name": "set"},
        "spec": {
            "podGroupTemplates": [
                {"name": "driver", "schedulingPolicy": {"basic": {}}},
                {"name": "workers", "schedulingPolicy": policy},
            ]
        },
    }
    groups = [
        group(
            f"set-{name}",
            schedulingPolicy=of,
            podGroupTemplateRef={"workload": {"workloadName": "set", "podGroupTemplateName": name}},
        )
        for name, of in (("driver", {"basic": {}}), ("workers", policy))
    ]
    jobs = [
        gang("driver", 1, "1", schedulingGroup={"podGroupName": "set-driver"}),
        gang("workers", 2, "7", schedulingGroup={"podGroupName": "set-workers"}),
    ]
    found = GroupReplay(tmp_path, node("n1"), node("n2"), workload, *groups, *jobs)
    assert {name: len(times) for name, times in found.starts().items()} == {
        "driver": 1,
        "workers": 2,
    }
    assert found.scheduled() == ["True", "True"]
    # The Job controller makes none for pods that name a group.
    assert len(found.stored("scheduling.k8s.io/workloads")) == 1


def sharing(n_pods: int) -> list[Tree]:
    """Two nodes with two cards each, and a gang whose pods share one card."""
    use = {"name": "gpu", "resourceClaimTemplateName": "one"}
    policy = {"gang": {"minCount": n_pods}}
    job = gang("train", n_pods, "1", schedulingGroup={"podGroupName": "g"}, resourceClaims=[use])
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["resources"]["claims"] = [{"name": "gpu"}]
    of_group = group("g", schedulingPolicy=policy, resourceClaims=[use])
    nodes = [node_with(name, CARDS) for name in ("n1", "n2")]
    return [*nodes, device_class(), claim_template(), of_group, job]


def test_a_claim_that_a_group_shares_is_allocated_once_for_all(tmp_path: Path) -> None:
    found = GroupReplay(tmp_path, *sharing(4), until_s=30)
    (claim,) = found.stored("resource.k8s.io/resourceclaims")
    (user,) = claim["status"]["reservedFor"]
    assert (user["resource"], user["name"]) == ("podgroups", "g")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    pods = found.stored("pods")
    assert {pod["spec"]["nodeName"] for pod in pods} == {result["pool"]}
    assert len({pod["status"]["startTime"] for pod in pods}) == 1
    assert not found.notes


def test_with_compat_all_but_one_fail_in_the_cycle_that_allocates(tmp_path: Path) -> None:
    found = GroupReplay(tmp_path, *sharing(4), compat=("kube-scheduler-1.36",), until_s=30)
    text = "got allocated elsewhere in the meantime"
    assert sum(note.endswith(text) for note in found.notes) >= 3
