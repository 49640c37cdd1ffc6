"""`explain` and `eta` of a Volcano Job whose pods are made only once it is admitted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.run import Ran, run

OBJECTS = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: test}
spec: {weight: 1, capability: {cpu: 2}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata:
  name: train-0001
  namespace: default
  ownerReferences:
  - {apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: train, uid: u1, controller: true}
spec: {minMember: 3, minResources: {cpu: 3}, queue: test}
status: {phase: Pending}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata:
  name: train-t-0
  namespace: default
  annotations: {scheduling.k8s.io/group-name: train-0001}
  ownerReferences:
  - {apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: train, uid: u1, controller: true}
spec:
  schedulerName: volcano
  containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]
"""
REASON = "not inqueue: queue test's capability cpu 2, 0 in use, 3 asked"


def asked(directory: Path, *words: str, objects: str = OBJECTS) -> Ran:
    (directory / "volcano.yaml").write_text("scheduler: volcano\n")
    (directory / "cluster.yaml").write_text(objects)
    files = "-f", str(directory / "cluster.yaml"), "--config", str(directory / "volcano.yaml")
    return run(*words, *files)


@pytest.mark.parametrize("name", ["job/train", "vj/train", "train", "podgroup/train-0001"])
def test_explain_has_the_reason_of_its_pod_group(name: str, tmp_path: Path) -> None:
    found = asked(tmp_path, "explain", name)
    assert found.out.startswith("podgroup default/train-0001 (volcano, by sessions): pending")
    assert f"NotInqueue: {REASON}" in found.out
    assert found.code == 1


@pytest.mark.parametrize(
    "words", [("job/other",), ("deploy/train",), ("job/train", "--namespace", "other")]
)
def test_what_is_not_there(words: tuple[str, ...], tmp_path: Path) -> None:
    assert asked(tmp_path, "explain", *words).err.startswith("error: no pods found for ")
    assert asked(tmp_path, "eta", *words).err.startswith("error: no pods found for ")


def test_eta_lists_it(tmp_path: Path) -> None:
    text = f"job/train in default has no pods yet: {REASON}"
    every = asked(tmp_path, "eta", "--all")
    assert every.out == f"No pending pods.\n{text}\n"
    assert every.code == 1
    tree = json.loads(asked(tmp_path, "eta", "--all", "-o", "json").out)
    assert tree["assumptions"][-1] == f"{text}; its pods are not in the forecast"
    for name in ("job/train", "train", "podgroup/train-0001"):
        assert asked(tmp_path, "eta", name).err == f"error: {text}\n"
    other = asked(tmp_path, "eta", "--all", "--namespace", "other")
    assert (other.out, other.code) == ("No pending pods.\n", 0)


def test_all_that_is_pending_has_it_as_a_note(tmp_path: Path) -> None:
    found = asked(tmp_path, "explain", "--all-pending")
    assert found.err == f"Note: job/train in default has no pods yet: {REASON}\n"
    assert (found.out, found.code) == ("No pending pods\n", 1)
    other = asked(tmp_path, "explain", "--all-pending", "--namespace", "other")
    assert (other.err, other.code) == ("", 0)
    assert "has no pods yet" not in asked(
        tmp_path, "explain", "--all-pending", objects=OBJECTS + POD
    ).err  # fmt: skip


def test_with_pods_it_is_a_job_as_any_other(tmp_path: Path) -> None:
    found = asked(tmp_path, "eta", "--all", "-o", "json", objects=OBJECTS + POD)
    tree = json.loads(found.out)
    assert [one["pod"] for one in tree["pods"]] == ["default/train-t-0"]
    assert not any("has no pods yet" in text for text in tree["assumptions"])
    explained = asked(tmp_path, "explain", "job/train", objects=OBJECTS + POD)
    assert explained.out.startswith("default/train-t-0 (volcano, by sessions): pending")
