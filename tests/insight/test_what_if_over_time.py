"""What-if in virtual time with controllers, and with an autoscaler."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stowplan.forecast.what_if.over_time import Timing
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.insight.autoscaling.autoscale_config import AutoscaleConfig, ScaledPool
from stowplan.insight.what_if.result import WhatIf
from stowplan.objects.encoding.json_codec import untyped
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import simulate
from tests.insight.test_what_if import NOW, asked, deployment, effects, low, node, pod, write

Tree = dict[str, Any]

HOUR = Timing(3600.0)
RUNS = {"stowplan.dev/run-seconds": "600"}


def job(name: str, parallelism: int, completions: int, cpu: str = "1") -> Tree:
    template = {"metadata": {"annotations": RUNS}, "spec": pod(name, cpu)["spec"]}
    template["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": parallelism, "completions": completions, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def pool(max_nodes: int) -> AutoscaleConfig:
    return AutoscaleConfig((ScaledPool("p", max_nodes, startup_delay=timedelta(seconds=90)),))


def created(found: WhatIf) -> list[str]:
    return [note for note in found.notes if note.startswith("controllers create")]


def test_a_job_creates_its_next_pods(tmp_path: Path) -> None:
    objects = [node("n1"), job("etl", 2, 6)]
    found = asked(tmp_path, objects, ("label", "n1=a=b"), timing=HOUR)
    assert created(found) == ["controllers create 4 pods more in this time, 4 of them get a node"]
    assert found.pods == ()
    short = asked(tmp_path, objects, ("label", "n1=a=b"), timing=Timing(700.0))
    assert created(short) == ["controllers create 2 pods more in this time, 2 of them get a node"]


def test_a_deployment_creates_the_pod_again_that_preemption_evicts(tmp_path: Path) -> None:
    objects = [node("n1"), node("n2"), deployment("web", 2, "4")]
    urgent = pod("urgent", "4", priority=9, annotations=RUNS)
    urgent["spec"]["restartPolicy"] = "Never"
    new = write(tmp_path, urgent, name="new.json")
    soon = asked(tmp_path, objects, ("submit", str(new)), timing=Timing(300.0))
    evicted = [one for one in soon.pods if one.effect == "evicted"]
    assert not evicted or evicted[0].target == ""
    assert soon.summary["pending"] == 1
    later = asked(tmp_path, objects, ("submit", str(new)), timing=HOUR)
    # When the urgent pod has ended, the pod that takes the place of the victim has its node.
    assert later.summary["pending"] == 0


def test_a_bare_victim_is_not_created_again(tmp_path: Path) -> None:
    bare = pod("old", "4", on="n1", priority=0)
    new = write(tmp_path, pod("new", "4", priority=9, annotations=RUNS), name="new.json")
    for more in ([], [deployment("other", 0)]):
        found = asked(tmp_path, [node("n1"), bare, *more], ("submit", str(new)), timing=HOUR)
        assert effects(found)["old"] == ("evicted", "n1", "")
        assert effects(found)["new"] == ("placed", "", "n1")


def test_a_victim_of_an_owner_that_is_not_in_the_input_is_created_again(tmp_path: Path) -> None:
    new = write(tmp_path, pod("new", "4", priority=9, annotations=RUNS), name="new.json")
    objects = [node("n1"), low("old", "n1"), deployment("other", 0)]
    objects[1]["spec"]["restartPolicy"] = "Always"
    found = asked(tmp_path, objects, ("submit", str(new)), timing=HOUR)
    one = next(one for one in found.pods if one.pod == "default/old")
    assert (one.effect, one.by) == ("evicted", "default/new")


@pytest.mark.parametrize(("kind", "name"), [("deploy", "web"), ("job", "etl")])
def test_the_answer_is_that_of_a_replay_of_changed_manifests(
    tmp_path: Path, kind: str, name: str
) -> None:
    """As many pods have a node as when the manifests are changed by hand and replayed."""
    objects = [node("n1"), node("n2"), deployment("web", 3), job("etl", 2, 6)]
    found = asked(tmp_path, objects, ("scale", f"{kind}/{name}=5"), timing=HOUR)
    changed = untyped((tmp_path / "cluster.json").read_bytes())["items"]
    spec = next(one["spec"] for one in changed if one["metadata"]["name"] == name)
    spec["replicas" if kind == "deploy" else "parallelism"] = 5
    path = write(tmp_path, *changed, name="changed.json")
    by_hand = simulate(
        read_cluster(path, validate="ignore", keep_manifests=True),
        replay=ReplayOptions(until_s=3600.0),
    )
    owners = Counter(one.pod.split("/")[1].split("-")[0] for one in by_hand.placements if one.node)
    (note,) = created(found)
    n_created = int(note.split()[2])
    assert owners.total() == 3 + 2 + found.summary["placed"] + n_created
    assert found.summary["pending"] == sum(not one.node for one in by_hand.placements) == 0


# Autoscalers.


def test_an_autoscaler_adds_the_nodes_that_a_drain_needs(tmp_path: Path) -> None:
    objects = [
        node("n1"),
        node("n2"),
        *(pod(f"w{i}", "2", on=f"n{1 + i % 2}", owner="web") for i in range(4)),
    ]
    without = asked(tmp_path, objects, ("drain", "n2"))
    assert (without.summary["unplaced"], without.autoscaler) == (2, None)
    found = asked(tmp_path, objects, ("drain", "n2"), autoscale=pool(3))
    assert (found.summary["moved"], found.summary["unplaced"]) == (2, 0)
    assert found.autoscaler is not None
    assert (found.autoscaler.after.by_pool, found.autoscaler.before.added) == ({"p": 1}, 0)
    assert (found.summary["autoscaled"], found.summary["autoscaled_before"]) == (1, 0)
    assert any("only adds nodes here" in note for note in found.notes)
    full = asked(tmp_path, objects, ("drain", "n2"), autoscale=pool(2))
    assert full.summary["unplaced"] == 2


def test_an_autoscaler_in_virtual_time_takes_its_delay(tmp_path: Path) -> None:
    objects = [node("n1"), deployment("web", 2, "2"), deployment("api", 1, "4")]
    found = asked(
        tmp_path, objects, ("label", "n1=a=b"), timing=Timing(60.0), autoscale=pool(2), now=NOW
    )
    assert found.summary["pending"] > 0
    found = asked(
        tmp_path, objects, ("label", "n1=a=b"), timing=Timing(300.0), autoscale=pool(2), now=NOW
    )
    assert found.summary["pending"] == 0
    assert found.autoscaler is not None
    assert found.autoscaler.after.by_pool == {"p": 1}


def test_labels_of_an_autoscaler_are_noted(tmp_path: Path) -> None:
    labelled = node("n1")
    labelled["metadata"]["labels"]["karpenter.sh/nodepool"] = "p"
    (note,) = asked(tmp_path, [labelled], ("label", "n1=a=b")).notes
    assert note.endswith("it was not modelled")
    found = asked(tmp_path, [labelled], ("label", "n1=a=b"), autoscale=pool(2))
    assert found.notes[0].endswith("its pools were modelled as in the file")


# Templates of owners.


def test_new_pods_have_the_template_of_the_replica_set(tmp_path: Path) -> None:
    """The Deployment is not in the input; its ReplicaSet is, and asks for more than its pods."""
    spec = deployment("web-7d", 1, "3")["spec"]
    labels = {"app": "web", "pod-template-hash": "7d"}
    spec["template"]["metadata"]["labels"] = spec["selector"]["matchLabels"] = labels
    owned = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-7d"}}
    old = pod("web-7d-1", "1", on="n1", owner="web-7d")
    old["metadata"]["labels"] = labels
    objects = [node("n1"), node("n2"), {**owned, "spec": spec}, old]
    found = asked(tmp_path, objects, ("scale", "deploy/web=3"))
    assert found.summary["placed"] == 2
    # One CPU of the old pod, three of each new one.
    assert found.resources["cpu"].after.requested == 7000
    text = "deployment/web is not in the input: new pods have the template of replicaset web-7d"
    assert text in found.notes
