"""Messages about the input: ignored kinds, orphans, errors in manifests; exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run import run

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 4, memory: 16Gi, pods: 110}}
---
"""
ROLLOUT = "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: r}\n---\n"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n---\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {%s}\n---\n"
COMMANDS = (["simulate"], ["explain", "p"], ["queues"])


def path_of(folder: Path, *texts: str) -> str:
    path = folder / "a.yaml"
    path.write_text(NODE + "".join(texts))
    return str(path)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_ignored_kinds_are_named_and_counted(command: list[str], tmp_path: Path) -> None:
    other = ROLLOUT.replace("name: r", "name: s")
    ran = run(*command, "--cluster", path_of(tmp_path, ROLLOUT, other, CONFIG_MAP, POD % ""))
    assert ran.err.splitlines()[:2] == [
        "Warning: ignored, not supported: 2 Rollout.argoproj.io",
        "Warning: ignored, no effect on scheduling: 1 ConfigMap",
    ]


@pytest.mark.parametrize(
    ("version", "kind", "hint"),
    [
        ("scheduling.run.ai/v2", "Quue", " (did you mean 'Queue.scheduling.run.ai'?)"),
        ("scheduling.run/v2", "Queue", " (did you mean 'Queue.scheduling.run.ai'?)"),
        ("v1", "Deployment", " (did you mean 'Deployment.apps'?)"),
        ("v1", "Pdo", " (did you mean 'Pod'?)"),
        ("kueue.x-k8s.io/v1beta2", "ClusterQeue", " (did you mean 'ClusterQueue.kueue.x-k8s.io'?)"),
        # A kind of another group that is only alike; one that is read by another scheduler.
        ("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", ""),
        ("kueue.x-k8s.io/v1beta2", "ResourceFlavor", ""),
    ],
)
def test_a_kind_that_is_misspelt_gets_a_suggestion(
    version: str, kind: str, hint: str, tmp_path: Path
) -> None:
    text = f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: r}}\n---\n"
    cluster = path_of(tmp_path, text, POD % "")
    ran = run("simulate", "--cluster", cluster, "--strict")
    group = version.rpartition("/")[0]
    full = f"{kind}.{group}" if group else kind
    assert (ran.code, ran.err) == (2, f"Warning: ignored, not supported: 1 {full}{hint}\n")


def test_strict_fails_for_unknown_kinds(tmp_path: Path) -> None:
    cluster = path_of(tmp_path, ROLLOUT)
    assert run("simulate", "--cluster", cluster).code == 0
    ran = run("simulate", "--cluster", cluster, "--strict")
    assert (ran.code, ran.out.startswith("No pending pods found.")) == (2, True)
    # It comes before pods that were not placed: the answer is not to be relied on.
    large = POD % "containers: [{name: c, resources: {requests: {cpu: 9}}}]"
    assert run("simulate", "--cluster", path_of(tmp_path, large, ROLLOUT), "--strict").code == 2
    assert run("simulate", "--cluster", path_of(tmp_path, large), "--strict").code == 1


def test_strict_accepts_kinds_without_effect_on_scheduling(tmp_path: Path) -> None:
    assert run("simulate", "--cluster", path_of(tmp_path, CONFIG_MAP), "--strict").code == 0


def test_strict_fails_for_pods_that_are_not_created(tmp_path: Path) -> None:
    quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: 0}}\n"
    cluster = path_of(tmp_path, POD % "", quota)
    ran = run("simulate", "--cluster", cluster, "--strict")
    assert ran.code == 1
    assert 'Note: 1 pod not created: pods "p" is forbidden: exceeded quota: q,' in ran.out


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_orphans_are_reported_and_can_be_rejected(command: list[str], tmp_path: Path) -> None:
    cluster = path_of(tmp_path, POD % "nodeName: lost")
    ran = run(*command, "--cluster", cluster)
    assert "1 pod pending again, bound to nodes that are not in the input:" in ran.out + ran.err
    ran = run(*command, "--cluster", cluster, "--orphans", "error")
    assert (ran.code, ran.err.startswith("error: cluster: 1 pod bound to nodes")) == (
        2,
        True,
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_errors_in_manifests_exit_with_2(command: list[str], tmp_path: Path) -> None:
    cluster = path_of(tmp_path, POD % "tolerationz: []")
    ran = run(*command, "--cluster", cluster)
    assert (ran.code, ran.out) == (2, "")
    wanted = 'Pod default/p: unknown field "spec.tolerationz" (did you mean "tolerations"?)\n'
    assert ran.err == f"error: {cluster}: document 2, line 6: {wanted}"
    ran = run(*command, "--cluster", cluster, "--validate", "warn")
    assert (ran.code, wanted in ran.out + ran.err) == (0, True)
    ran = run(*command, "--cluster", cluster, "--validate", "ignore")
    assert (ran.code, "tolerationz" in ran.out + ran.err) == (0, False)
