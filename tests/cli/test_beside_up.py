"""Commands beside a running `stowplan up` decide as its scheduler does, without --config."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stowplan.cli.runs.queue_models import unread_queues
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.responses import ApiResponse
from stowplan.driver import status_address
from stowplan.driver.client import one_shot_requests
from stowplan.driver.client.one_shot_requests import ClusterListing
from stowplan.driver.status_address import published_configuration
from tests.cli.run import Ran, run
from tests.contract.up_process import up

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  allocatable: {cpu: "8", memory: 32Gi, pods: "110", nvidia.com/gpu: "4"}
"""
KAI = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: red}
spec: {resources: {gpu: {quota: 2, limit: 3}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}
---
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: x, namespace: default}
spec: {minMember: 1, queue: red}
---
apiVersion: v1
kind: Pod
metadata: {name: x-0, namespace: default, annotations: {pod-group-name: x}}
spec:
  schedulerName: kai-scheduler
  containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: "4"}}}]
"""  # noqa: E501
KUEUE = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: f}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - {coveredResources: [cpu], flavors: [{name: f, resources: [{name: cpu, nominalQuota: 4}]}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
---
apiVersion: batch/v1
kind: Job
metadata: {name: big, namespace: default, labels: {kueue.x-k8s.io/queue-name: lq}}
spec:
  parallelism: 6
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: alone, namespace: default}
spec: {containers: [{name: c, image: i}]}
"""


@contextmanager
def cluster_of(folder: Path, objects: str, config: str) -> Iterator[str]:
    """A kubeconfig of a cluster whose scheduler has synced, and serves its status."""
    (folder / "objects.yaml").write_text(f"{NODE}\n---\n{objects}")
    (folder / "config.yaml").write_text(config)
    files = ("-f", str(folder / "objects.yaml"), "--config", str(folder / "config.yaml"))
    with up(folder, *files, schedules=True) as cluster:
        kubeconfig = str(cluster.kubeconfig)
        deadline = time.monotonic() + 60
        while run("status", "--kubeconfig", kubeconfig).code:
            assert time.monotonic() < deadline, "its scheduler serves no status"
            time.sleep(0.1)
        yield kubeconfig


def address_of(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Have the cluster publish this address of its scheduler's status."""

    async def published(_: ClientConfig) -> ApiResponse:
        return ApiResponse(200, json.dumps({"data": {"address": address}}).encode())

    monkeypatch.setattr(status_address, "_address_map", published)


def test_only_a_scheduler_of_this_computer_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it answers names Python files, which are run."""
    asked: list[str] = []
    monkeypatch.setattr(status_address, "fetch_configuration", asked.append)
    for address in ("far.example.com:10259", "10.0.0.1:10259", "127.0.0.1.example.com:1", ""):
        address_of(monkeypatch, address)
        assert published_configuration(ClientConfig("http://far", "test")) is None
    assert asked == []
    address_of(monkeypatch, "127.0.0.1:10259")
    published_configuration(ClientConfig("http://far", "test"))
    assert asked == ["127.0.0.1:10259"]


@pytest.mark.parametrize("words", ["queues", "explain --all-pending", "eta --all"])
def test_a_scheduler_that_does_not_answer(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://far'}}]\nusers: [{name: u, user: {}}]\n"
    )
    monkeypatch.setattr(one_shot_requests, "list_once", lambda *_, **__: ClusterListing())
    monkeypatch.setattr(unread_queues, "lists_with_objects", lambda *_: set())
    address_of(monkeypatch, "127.0.0.1:1")
    ran = run(*words.split(), "--kubeconfig", str(tmp_path / "config"))
    warning = (
        "Warning: the configuration of the running scheduler cannot be read (name it with --con"
    )
    assert ran.err.startswith(warning)
    assert len(ran.err.splitlines()) == 1
    assert ran.code != 2


def test_kai(tmp_path: Path) -> None:
    with cluster_of(tmp_path, KAI, "scheduler: kai\n") as kubeconfig:

        def ask(*words: str) -> Ran:
            return run(*words, "--kubeconfig", kubeconfig)

        assert "red" in ask("queues", "-o", "name").out
        assert "OverLimit" in ask("explain", "podgroup/x").out
        assert "(kai-scheduler, by sessions)" in ask("explain", "pod/x-0").out
        pending = ask("explain", "--all-pending")
        assert "OverLimit: queue red's limit nvidia.com/gpu 3, 0 in use, 4 asked" in pending.out
        assert "queue red's limit" in ask("eta", "--all").out
        # What is named holds.
        other = tmp_path / "kueue.yaml"
        other.write_text("scheduler: kueue\n")
        assert "no objects of Kueue" in ask("queues", "--config", str(other)).err


@pytest.mark.parametrize("names_config", [False, True])
def test_kueue(names_config: bool, tmp_path: Path) -> None:
    with cluster_of(tmp_path, KUEUE, "scheduler: kueue\n") as kubeconfig:
        config = ("--config", str(tmp_path / "config.yaml")) if names_config else ()

        def ask(*words: str) -> Ran:
            return run(*words, *config, "--kubeconfig", kubeconfig)

        assert ask("queues", "-o", "name").out == "clusterqueue/cq\n"
        job = ask("explain", "job/big")
        assert job.code == 1
        assert job.out.startswith("job/big in default: Pending\nQueue: lq, ClusterQueue cq")
        assert "Reason: ExceedsMaxQuota" in job.out
        # What asks for no quota is the scheduler's.
        assert ask("explain", "pod/alone").out.startswith("default/alone (default-scheduler): ")
        assert '"job/nope" not found among the workloads' in ask("explain", "job/nope").err
        assert ask("explain", "--all-pending").code != 2
        if not names_config:
            drained = ask("what-if", "--drain", "n1")
            assert drained.out.startswith("--drain n1: 1 node cordoned")
            assert "Kueue admits no jobs in it" in drained.err
            check_submissions(ask, tmp_path)


def check_submissions(ask: Callable[..., Ran], folder: Path) -> None:
    """Jobs that ask for quota are Kueue's, other pods the scheduler's."""
    job, alone = KUEUE.split("---")[3:]
    for name, text in {
        "large": job.replace("name: big", "name: large"),
        "small": job.replace("name: big", "name: small").replace(": 6", ": 4"),
        "big": job,
        "plain": alone.replace("name: alone", "name: plain"),
    }.items():
        (folder / f"{name}.yaml").write_text(text)
    large = ask("what-if", "--submit", str(folder / "large.yaml"))
    assert "job/large  -       Pending (ExceedsMaxQuota)" in large.out, large
    # It is admitted beside the one that has no room in any case, and no more with less quota.
    small = ask("what-if", "--delete", "job/big", "--submit", str(folder / "small.yaml"))
    assert "job/small  -                          Admitted in f" in small.out, small
    quota = "cq.nominalQuota[f/cpu]=3"
    less = ask("what-if", "--queue", quota, "--submit", str(folder / "small.yaml"))
    assert "job/small  -       Pending (ExceedsMaxQuota)" in less.out, less
    again = ask("what-if", "--submit", str(folder / "big.yaml"))
    assert again.err.endswith("Job default/big: exists already\n")
    drained = ask("what-if", "--drain", "n1", "--submit", str(folder / "small.yaml"))
    assert "Kueue answers changes by --queue, --submit, --delete only" in drained.err
    plain = ask("what-if", "--submit", str(folder / "plain.yaml"))
    assert "1 pod submitted" in plain.out
    assert "Kueue admits no jobs in it" in plain.err


SUBMITTED = """
apiVersion: v1
kind: Pod
metadata: {name: new, namespace: default, labels: {kai.scheduler/queue: red}}
spec:
  schedulerName: kai-scheduler
  containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: "1"}}}]
"""
PLAIN = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_what_if_lists_what_either_configuration_reads(tmp_path: Path) -> None:
    plain, new = tmp_path / "plain.yaml", tmp_path / "new.yaml"
    plain.write_text(PLAIN)
    new.write_text(SUBMITTED)
    with cluster_of(tmp_path, KAI, "scheduler: kai\n") as kubeconfig:
        config = str(tmp_path / "config.yaml")
        for words in (
            ("--submit", str(new)),
            ("--submit", str(new), "--config", config),
            ("--submit", str(new), "--base-config", str(plain), "--config", config),
        ):
            ran = run("what-if", *words, "--kubeconfig", kubeconfig, "-o", "json")
            assert "not found" not in ran.out
            pods = {one["pod"]: one for one in json.loads(ran.out)["pods"]}
            assert pods["default/new"]["to"] == "n1"
        ran = run("preempt-preview", "--submit", str(new), "--kubeconfig", kubeconfig)
        assert "not found" not in ran.out
