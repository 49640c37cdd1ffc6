"""The `actions:` / `tiers:` file: strict, and as kube-batch reads it."""

from __future__ import annotations

import pytest
import yaml
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.assembly.sessions.session_config import batch_configuration
from stowplan.config import Configuration, effective
from stowplan.config.effective_configuration import session_tree
from stowplan.framework import ConfigError


def refused(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        batch_configuration(text, "batch.yaml")
    return str(caught.value)


def test_the_default() -> None:
    read = batch_configuration(None, "default")
    assert read.actions == ("allocate", "backfill")
    assert [[p.name for p in tier] for tier in read.tiers or ()] == [
        ["priority", "gang"],
        ["drf", "predicates", "proportion", "nodeorder"],
    ]
    assert (read.scheduler_name, read.period_s, read.default_queue) == (
        "kube-batch",
        1.0,
        "default",
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("actions: allocat", ["actions", "'allocat'", "did you mean 'allocate'"]),
        ("actions: 'allocate,'", ["actions", "an empty name"]),
        ("actions: [allocate]", ["actions", "a list", "a text"]),
        ("action: allocate", ["action", "Unknown field", "did you mean 'actions'"]),
        ("tiers: x\nactions: allocate", ["tiers", "'x'", "a list"]),
        (
            "actions: allocate\ntiers:\n- plugins: [{name: gan}]",
            ["tiers[0].plugins[0].name", "gang"],
        ),
        (
            "actions: allocate\ntiers:\n- plugins: [{name: gang, enableJobReady: maybe}]",
            ["tiers[0].plugins[0].enableJobReady", "'maybe'", "true or false"],
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n"
            "  - {name: nodeorder, arguments: {leastrequested: 1}}",
            ["tiers[0].plugins[0].arguments.leastrequested", "Unknown argument"],
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n"
            "  - {name: nodeorder, arguments: {leastrequested.weight: abc}}",
            ["arguments['leastrequested.weight']", "'abc'", "a whole number"],
        ),
        ("actions: a: b", ["line 1"]),
        ("- actions", ["document", "a list", "a mapping"]),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, wanted: list[str]) -> None:
    message = refused(text)
    assert message.startswith("batch.yaml")
    for part in wanted:
        assert part in message


def test_all_mistakes_are_named_at_once() -> None:
    message = refused("actions: nothing\ntiers:\n- plugins: [{name: a}, {name: b}]")
    assert "'nothing'" in message
    assert "plugins[0].name" in message
    assert "plugins[1].name" in message


def test_the_original_lets_what_it_does_not_know_pass() -> None:
    text = "actions: allocate\nmore: 1\ntiers:\n- plugins: [{name: other, colour: red}]"
    read = batch_configuration(text, "x", lenient=True)
    assert read.tiers is not None
    assert read.tiers[0][0].name == "other"
    with pytest.raises(ConfigError):
        batch_configuration("actions: other", "x", lenient=True)


def test_an_argument_keeps_its_spelling() -> None:
    text = (
        "actions: allocate\ntiers:\n- plugins:\n"
        "  - {name: predicates, arguments: {predicate.MemoryPressureEnable: %s}}"
    )
    for spelling in ("true", "yes", "1"):
        read = batch_configuration(text % spelling, "x", lenient=True)
        assert read.tiers is not None
        assert read.tiers[0][0].arguments == {"predicate.MemoryPressureEnable": spelling}


def test_what_is_read_and_printed_is_read_again() -> None:
    text = (
        "actions: 'reclaim, allocate'\ntiers:\n- plugins:\n  - name: gang\n    enableJobOrder: no\n"
        "- plugins:\n  - name: nodeorder\n    arguments:\n      leastrequested.weight: 2\n"
    )
    read = batch_configuration(text, "x")
    assert batch_configuration(yaml.safe_dump(session_tree(read)), "x") == read


# The block of options, and several files.

KSC = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
TIERS = (
    "tiers:\n- plugins: [{name: gang}, {name: nodeorder, arguments: {leastrequested.weight: 2}}]\n"
)
OPTIONS = "{schedulerName: mine, schedulePeriod: 1500ms, defaultQueue: q, priorityClass: false}"


def configured(*texts: str) -> Configuration:
    files = [ConfigText(text, f"f{number}.yaml") for number, text in enumerate(texts)]
    return deciders_of(files).configuration


def test_options_stand_beside_actions_and_tiers() -> None:
    read = batch_configuration(f"actions: allocate\n{TIERS}batch: {OPTIONS}", "x")
    assert (read.scheduler_name, read.period_s, read.default_queue) == ("mine", 1.5, "q")
    assert not read.uses_priority_classes


@pytest.mark.parametrize(
    "texts",
    [
        [f"actions: allocate\n{TIERS}batch: {OPTIONS}"],
        [f"batch: {OPTIONS}"],
        [f"{KSC}parallelism: 4\nbatch: {{schedulerName: mine, actions: allocate}}"],
        [f"{KSC}batch: {OPTIONS}"],
        [KSC, f"actions: 'allocate, reclaim'\n{TIERS}"],
        [f"actions: allocate\n{TIERS}", "apiVersion: v1\nkind: Policy\n"],
    ],
)
def test_what_holds_is_printed_and_read_again(texts: list[str]) -> None:
    once = configured(*texts)
    tree = effective(once)
    again = configured(yaml.safe_dump(tree, sort_keys=False))
    assert effective(again) == tree
    assert once.batch is not None
    assert again.batch is not None
    assert replace(again.batch, source="") == replace(once.batch, source="")
    assert again.profiles == once.profiles


def test_actions_and_tiers_alone_leave_no_profile() -> None:
    assert not configured("actions: allocate").profiles
    assert configured(KSC, "actions: allocate").profiles.keys() == {"default-scheduler"}
    assert configured(KSC).batch is None


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["batch: {schedulePeriod: 0s}"], ["batch.schedulePeriod", "0s", "above 0s"]),
        (["batch: {schedulePeriod: 1}"], ["batch.schedulePeriod", "did you mean '1s'"]),
        (["batch: {schedulername: x}"], ["batch.schedulername", "did you mean 'schedulerName'"]),
        (["batch: {defaultQueue: ''}"], ["batch.defaultQueue", "a name"]),
        (["batch: [x]"], ["batch", "a list", "a mapping"]),
        ([f"{KSC}batch: [x]"], ["batch", "a list", "a mapping"]),
        ([f"{KSC}batch: {{actions: alocate}}"], ["batch.actions", "did you mean 'allocate'"]),
        ([f"{KSC}batch: {{tier: []}}"], ["batch.tier", "did you mean 'tiers'"]),
        (
            [f"{KSC}batch: {{actions: allocate, tiers: [{{plugins: [{{name: gan}}]}}]}}"],
            ["batch.tiers[0].plugins[0].name", "did you mean 'gang'"],
        ),
        (
            [f"{KSC}batch: {{schedulerName: default-scheduler}}"],
            ["batch.schedulerName", "'default-scheduler'", "another name"],
        ),
        ([KSC, KSC], ["f1.yaml", "a second file with profiles beside f0.yaml"]),
        (["actions: allocate", "actions: allocate"], ["f1.yaml", "sessions again"]),
        (["action: allocate"], ["action", "did you mean 'actions'"]),
        (["profiles: []"], ["kind", "or actions and tiers"]),
    ],
)
def test_a_mistake_in_options_or_between_files(texts: list[str], wanted: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(*texts)
    for part in wanted:
        assert part in str(caught.value)


def test_mistakes_in_the_block_and_around_it_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        configured(f"{KSC}parallelism: x\nbatch: {{actions: nothing}}")
    assert "parallelism" in str(caught.value)
    assert "batch.actions" in str(caught.value)


VOLCANO = """
scheduler: kube-batch
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
"""What Volcano's chart installs, for Stowplan's own sessions."""


def test_what_volcano_installs_is_read_and_what_has_no_effect_is_warned_of() -> None:
    read = batch_configuration(VOLCANO, "volcano-scheduler.conf")
    assert [
        warning.split(" has no effect; in Volcano it would ")[0] for warning in read.warnings
    ] == [
        "actions: action 'enqueue'",
        "tiers[1].plugins[0].name: plugin 'overcommit'",
        "tiers[1].plugins[5].name: plugin 'binpack'",
    ]
    (gang,) = (p for tier in read.tiers or () for p in tier if p.name == "gang")
    assert gang.disabled == ("enablePreemptable",)
    # The actions that are there are those of its sessions.
    deciders = deciders_of([ConfigText(VOLCANO, "volcano-scheduler.conf")])
    actions = [action.name for action in deciders.session_options().actions]
    assert actions == ["resume", "allocate", "backfill"]
    again = batch_configuration(yaml.safe_dump(session_tree(read)), "again")
    assert replace(again, source=read.source) == read


def test_further_fields_arguments_and_switches_of_volcano_are_warned_of() -> None:
    text = """
scheduler: kube-batch
actions: "shuffle, allocate"
configurations: [{name: allocate, arguments: {anything: 1}}]
metrics: {type: prometheus}
tiers:
- plugins:
  - {name: drf, enableHierarchy: true}
  - {name: nodeorder, arguments: {tainttoleration.weight: 3, leastrequested.weight: 1}}
  - {name: predicates, arguments: {predicate.VolumeZoneEnable: false, predicate.resources.a: 1}}
  - {name: rescheduling, arguments: {interval: 5m, strategies: [{name: lowNodeUtilization}]}}
"""
    read = batch_configuration(text, "volcano.yaml")
    assert [warning.split(" has no effect")[0] for warning in read.warnings] == [
        "configurations: it",
        "metrics: it",
        "actions: action 'shuffle'",
        "tiers[0].plugins[0].enableHierarchy: it",
        "tiers[0].plugins[1].arguments['tainttoleration.weight']: it",
        "tiers[0].plugins[2].arguments['predicate.VolumeZoneEnable']: it",
        "tiers[0].plugins[2].arguments['predicate.resources.a']: it",
        "tiers[0].plugins[3].name: plugin 'rescheduling'",
    ]


@pytest.mark.parametrize(
    ("wrong", "right", "meant"),
    [
        ("enqueue", "enque", "enqueue"),
        ("name: binpack", "name: binpak", "binpack"),
        ("enablePreemptable", "enablePreemtable", "enablePreemptable"),
        ("actions: ", "confgurations: []\nactions: ", "configurations"),
        ("name: drf\n", "name: drf\n    enableHierarcy: true\n", "enableHierarchy"),
        (
            "name: nodeorder\n",
            "name: nodeorder\n    arguments: {tainttoleration.weigth: 1}\n",
            "tainttoleration.weight",
        ),
    ],
)
def test_a_misspelt_name_of_volcano_is_a_mistake(wrong: str, right: str, meant: str) -> None:
    assert f"did you mean '{meant}'?" in refused(VOLCANO.replace(wrong, right))


def test_as_kube_batch_what_volcano_added_is_unknown() -> None:
    with pytest.raises(ConfigError, match="'enqueue'"):
        batch_configuration(VOLCANO, "conf", lenient=True)
    text = VOLCANO.replace("scheduler: kube-batch\n", "").replace("enqueue, ", "")
    read = batch_configuration(text, "conf", lenient=True)
    assert (read.warnings, read.scheduler_names) == ((), ("kube-batch",))


def test_pods_of_kube_batch_and_of_volcano_are_scheduled_unless_names_are_given() -> None:
    def names(block: str) -> tuple[str, ...]:
        return batch_configuration(f"{VOLCANO}batch: {block}", "batch.yaml").scheduler_names

    assert names("{}") == ("kube-batch", "volcano")
    assert names("{schedulerName: volcano}") == ("volcano",)
    assert names("{schedulerNames: [a, b]}") == ("a", "b")
    for block in (
        "{schedulerName: a, schedulerNames: [b]}",
        "{schedulerNames: []}",
        "{schedulerNames: [a, a]}",
        "{schedulerName: ''}",
    ):
        assert "batch.schedulerName" in refused(f"{VOLCANO}batch: {block}")
