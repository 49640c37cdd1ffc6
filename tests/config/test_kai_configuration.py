"""KAI-Scheduler's configuration: its file, its flags, and the objects that have them."""

from __future__ import annotations

import pytest

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.assembly.sessions.queue_models import QUEUE_MODELS
from stowplan.batch.queue_models.kai.kai_options import KaiOptions
from stowplan.framework import ConfigError

SHARD = """\
apiVersion: kai.scheduler/v1
kind: SchedulingShard
metadata: {name: default}
spec:
  placementStrategy: {gpu: spread}
  kValue: 2
  minRuntime: {reclaimMinRuntime: 10m}
  queueDepthPerAction: {reclaim: 5}
  args: {default-staleness-grace-period: "-1s", max-consolidation-preemptees: 4, v: 3}
  plugins:
    gpusharingorder: {enabled: true}
  actions:
    stalegangeviction: {enabled: false}
    preempt: {priority: 350}
"""
CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: kai-scheduler-default}
data:
  config.yaml: |
    actions: "allocate, reclaim"
    scenarioSearchBudgets:
      maxJobSearchDuration: 2m
      maxGeneratorSearchDuration: {MultiNodeGang: 1m}
"""


def read(text: str) -> Deciders:
    return deciders_of([ConfigText(text, "kai.yaml")])


def options(text: str) -> KaiOptions:
    batch = read(text).batch
    assert batch is not None
    found = QUEUE_MODELS["kai"].settings(batch, "")
    assert isinstance(found, KaiOptions)
    return found


def problems(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return str(caught.value)


def test_a_shard_is_read_as_its_operator_reads_it() -> None:
    found = options(SHARD)
    # Consolidation is off where pods are spread; actions are in the order of their priorities.
    assert found.actions == ("allocate", "preempt", "reclaim")
    assert {"gpuspread", "gpusharingorder"} <= found.plugins
    assert "gpupack" not in found.plugins
    assert found.placement == {"gpu": "spread", "cpu": "binpack"}
    assert (found.k, found.reclaim_min_runtime) == (2.0, 600.0)
    assert found.depths == {"reclaim": 5}
    assert (found.grace, found.max_moved) == (-1.0, 4)
    assert read(SHARD).batch is not None


def test_a_config_map_has_the_file_of_the_scheduler() -> None:
    assert options(CONFIG_MAP).actions == ("allocate", "reclaim")
    batch = read(CONFIG_MAP).batch
    assert batch is not None
    (warning,) = batch.warnings
    assert warning == (
        "data.config.yaml: scenarioSearchBudgets: it has no effect; in KAI-Scheduler it would "
        "limit searches by time, which are limited by a count here"
    )


def test_a_config_map_of_something_else_is_no_configuration() -> None:
    text = CONFIG_MAP.replace("config.yaml", "other.yaml")
    assert "ConfigMap" in problems(text)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("args: {queue-depth: 3}", "args.queue-depth: "),
        ("args: {partition-label-value: pool-a}", "by which alone sessions decide here"),
        ("args: {allow-consolidating-reclaim: false}", "by which alone sessions decide here"),
        ("args: {max-consolidation-preemptees: many}", "a whole number"),
        ("queueDepthPerAction: {reclam: 3}", "queueDepthPerAction.reclam: Unknown field"),
        ("queueDepthPerAction: {reclaim: few}", "a whole number, -1 for no limit"),
        ("scenarioSearchBudgets: {maxJobSearchDuration: 4}", "a duration such as 10m"),
        (
            "scenarioSearchBudgets: {maxGeneratorSearchDuration: {greedy: 1s}}",
            "maxGeneratorSearchDuration.greedy: Unknown field",
        ),
    ],
)
def test_what_kai_does_not_know_or_is_not_decided_by_is_a_mistake(given: str, wanted: str) -> None:
    assert wanted in problems(f"scheduler: kai\n{given}\n")


def test_flags_with_the_values_by_which_sessions_decide_are_accepted() -> None:
    text = (
        "scheduler: kai\nargs: {full-hierarchy-fairness: true, stuck-in-releasing-threshold: 120s}"
    )
    assert options(text).grace == 60.0


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("kValu: 2", "spec.kValu: Unknown field"),
        ("plugins: {gpupack: {enabled: 1}}", "spec.plugins.gpupack.enabled: Invalid value: 1"),
        ("plugins: {unknown: {}}", "unknown"),
        ("plugins: {propotion: {enabled: false}}", "propotion"),
        ("actions: {reclame: {enabled: false}}", "reclame"),
        ("placementStrategy: {gpu: first}", "binpack or spread"),
        ("minRuntime: {reclaimMinRuntime: soon}", "a duration"),
        ("partitionLabelValue: pool", "by which alone sessions decide here"),
    ],
)
def test_mistakes_of_a_shard_are_named(given: str, wanted: str) -> None:
    text = f"apiVersion: kai.scheduler/v1\nkind: SchedulingShard\nspec:\n  {given}\n"
    assert wanted in problems(text)


def test_compat_keeps_the_defects_of_kai() -> None:
    kinds = QUEUE_MODELS["kai"]
    fixed, exact = read("scheduler: kai"), deciders_of([], compat="kai")
    assert fixed.batch is not None
    assert exact.batch is not None
    assert kinds.settings(fixed.batch, fixed.model_compat).keeps_minimum
    assert not kinds.settings(exact.batch, exact.model_compat).keeps_minimum


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("kValue: .inf", "spec.kValue: Invalid value: inf: expected a number"),
        ("kValue: .nan", "spec.kValue: Invalid value: nan: expected a number"),
        (
            "plugins: {proportion: {arguments: {relcaimerSaturationMultiplier: .inf}}}",
            "relcaimerSaturationMultiplier: Invalid value: inf: expected a number",
        ),
        (
            "plugins: {minruntime: {priority: true}}",
            "spec.plugins.minruntime.priority: Invalid value: true: expected a whole number",
        ),
    ],
)
def test_numbers_of_a_shard_that_are_none_are_mistakes(spec: str, expected: str) -> None:
    head = "apiVersion: kai.scheduler/v1\nkind: SchedulingShard\nmetadata: {name: x}"
    assert expected in problems(f"{head}\nspec:\n  {spec}")
