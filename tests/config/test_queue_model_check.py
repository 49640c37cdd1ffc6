"""`config check` of queue models' configurations: what is in force, and one error per mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.run import check_one_line, run


def written(folder: Path, text: str) -> str:
    file = folder / "given.yaml"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize(
    ("text", "actions", "queue"),
    [
        (
            "scheduler: kai",
            "allocate, consolidation, reclaim, preempt, stalegangeviction",
            "-queue",
        ),
        ("scheduler: volcano", "enqueue, allocate, backfill", ""),
        ("scheduler: kube-batch", "allocate, backfill", ""),
    ],
)
def test_what_a_file_leaves_out_is_printed(
    tmp_path: Path, text: str, actions: str, queue: str
) -> None:
    ran = run("config", "check", written(tmp_path, text))
    tree = yaml.safe_load(ran.out)
    assert tree["actions"] == actions
    assert tree["tiers"][0]["plugins"]
    assert tree["batch"]["defaultQueue"] == f"default{queue}"
    again = run("config", "check", written(tmp_path, ran.out))
    assert (again.out, again.err) == (ran.out, "")


KUEUE = """\
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
admissionFairSharing: {usageHalfLifeTime: 1h30m}
waitForPodsReady: {timeout: 1m30s, requeuingStrategy: {backoffLimitCount: 3}}
resources:
  excludeResourcePrefixes: [example.com]
  transformations: [{input: a, strategy: Replace, outputs: {b: 2}}]
"""


@pytest.mark.parametrize(
    "head",
    ["scheduler: kueue", "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration"],
)
def test_a_file_of_kueue_is_printed_and_read_again(tmp_path: Path, head: str) -> None:
    ran = run("config", "check", written(tmp_path, f"{head}\n{KUEUE}"))
    tree = yaml.safe_load(ran.out)
    assert tree["fairSharing"] == {"preemptionStrategies": ["LessThanInitialShare"]}
    assert tree["waitForPodsReady"]["timeout"] == "1m30s"
    assert tree["featureGates"]["PartialAdmission"] is True
    again = run("config", "check", written(tmp_path, ran.out))
    assert (again.out, again.err) == (ran.out, "")


SHARD = "apiVersion: kai.scheduler/v1\nkind: SchedulingShard\nmetadata: {name: s}\nspec: "
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata:\n  "
OWN = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("scheduler: kay", ["scheduler", "'kay'", "'kai' or 'kueue'", "did you mean 'kai'?"]),
        ("scheduler: kueu\nactions: admit", ["'kueu'", "did you mean 'kueue'?"]),
        ("kind: Deployment", ["kind", "SchedulingShard", "ConfigMap", "Kueue", "Volcano"]),
        ("kind: Configuration\napiVersion: v1", ["apiVersion", "config.kueue.x-k8s.io/v1beta2"]),
        ("scheduler: kai\n---\nscheduler: kai", ["2 documents", "one document"]),
        ("scheduler: kai\nactions: a\nactions: allocate", ["actions", "the key again"]),
        ("scheduler: kueue\nfeatureGates: {}\nfeatureGates: {}", ["featureGates", "again"]),
        (SHARD.replace("v1", "v9") + "{}", ["apiVersion", "'kai.scheduler/v9'"]),
        ("scheduler: kai\ntiers: [{plugins: [3]}]", ["tiers[0].plugins[0]", "a mapping"]),
        (
            "scheduler: kueue\nresources: {transformations: [{input: a, outputs: {b: x}}]}",
            ["resources.transformations[0].outputs[b]", "'x'", "a number"],
        ),
        ("scheduler: kueue\nwaitForPodsReady: {timeout: -5m}", ["waitForPodsReady.timeout"]),
        ("scheduler: kueue\nwaitForPodsReady: {enable: 3}", ["waitForPodsReady.enable", "true"]),
        ("", ["document", "nothing", "SchedulingShard", "scheduler"]),
        (f"{OWN}---\n{OWN}", ["2 documents", "one document"]),
        (f"{SHARD}{{kValue: x}}", ["spec.kValue", "'x'", "a number"]),
        (f"{SHARD}{{minRuntime: {{preemptMinRuntime: x}}}}", ["spec.minRuntime.preemptMinRuntime"]),
        (f"{SHARD}{{placementStrategy: {{gpu: x}}}}", ["spec.placementStrategy.gpu", "binpack"]),
        (f"{SHARD}{{plugins: {{gpupak: {{}}}}}}", ["spec.plugins.gpupak", "mean 'gpupack'?"]),
        (
            f"{SHARD}{{plugins: {{proportion: {{arguments: {{kvalue: 1}}}}}}}}",
            ["spec.plugins.proportion.arguments.kvalue", "Unknown argument"],
        ),
        (
            "scheduler: kai\ntiers: [{plugins: [{name: proportion}, {name: proportion}]}]",
            ["tiers[0].plugins[1].name", "'proportion'", "each plugin once"],
        ),
        (
            "scheduler: kai\ntiers: [{plugins: [{name: ray}]}, {plugins: [{name: ray}]}]",
            ["tiers[1].plugins[0].name", "'ray'", "each plugin once"],
        ),
        (f"{SHARD}{{actions: {{alocate: {{}}}}}}", ["spec.actions.alocate", "mean 'allocate'?"]),
        (f"{SHARD}{{queueDepthPerAction: {{reclaim: x}}}}", ["spec.queueDepthPerAction.reclaim"]),
        (f"{MAP}config.yaml: 'actions: x'", ["data.config.yaml: actions", "'x'"]),
        (
            f"{MAP}controller_manager_config.yaml: 'kind: Configuration'",
            ["ConfigMap m", "apiVersion", "v1beta1"],
        ),
    ],
)
def test_a_mistake_is_one_error(tmp_path: Path, text: str, parts: list[str]) -> None:
    check_one_line(run("config", "check", written(tmp_path, text)), "given.yaml: ", *parts)


def test_warnings_are_about_what_a_shard_has(tmp_path: Path) -> None:
    assert run("config", "check", written(tmp_path, f"{SHARD}{{}}")).err == ""
    text = f"{SHARD}{{plugins: {{ray: {{enabled: false}}, snapshot: {{}}}}}}"
    found = run("config", "check", written(tmp_path, text)).err
    assert "spec.plugins.ray.enabled: it has no effect" in found
    assert "spec.plugins.snapshot: plugin 'snapshot' has no effect" in found
    assert len(found.splitlines()) == 2


@pytest.mark.parametrize(
    ("field", "plugin", "argument"),
    [
        ("kValue: 2.5", "proportion", "kValue: 0.5"),
        ("kValue: 2.5", "proportion", "relcaimerSaturationMultiplier: 2"),
        ("minRuntime: {preemptMinRuntime: 1m}", "minruntime", "defaultReclaimMinRuntime: 2m"),
    ],
)
def test_arguments_of_a_plugin_stand_in_the_place_of_a_shards_field(
    tmp_path: Path, field: str, plugin: str, argument: str
) -> None:
    text = f"{SHARD}{{{field}, plugins: {{{plugin}: {{arguments: {{{argument}}}}}}}}}"
    ran = run("config", "check", written(tmp_path, text))
    plugins = yaml.safe_load(ran.out)["tiers"][0]["plugins"]
    (found,) = (one["arguments"] for one in plugins if one["name"] == plugin)
    assert found == yaml.safe_load(argument)
    (warning,) = ran.err.splitlines()
    assert f"spec.{field.partition(':')[0]}" in warning
    assert f"no effect; spec.plugins.{plugin}.arguments is used in its place" in warning
    assert run("config", "check", written(tmp_path, f"{SHARD}{{{field}}}")).err == ""


def test_kueues_file_beside_profiles_is_one_document_of_json(tmp_path: Path) -> None:
    kueue = written(tmp_path, f"scheduler: kueue\n{KUEUE}")
    profiles = tmp_path / "profiles.yaml"
    profiles.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    both = run("config", "check", kueue, str(profiles), "-o", "json")
    documents = [*yaml.safe_load_all(run("config", "check", kueue, str(profiles)).out)]
    assert json.loads(both.out) == documents
    assert len(documents) == 2
    assert json.loads(run("config", "check", kueue, "-o", "json").out) == documents[0]
