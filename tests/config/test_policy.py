"""Policy files: what they come to, and what is refused with which words."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from stowplan import config
from stowplan.assembly import configuration_of, frameworks_for, registry
from stowplan.assembly.build import scheduler_for
from stowplan.config.policy import read
from stowplan.config.policy_names import PREDICATE_ORDER, PROVIDERS, PolicyGates
from stowplan.config.policy_profile import Policy
from stowplan.config.strict_decoder import Problems
from stowplan.framework import ConfigError, Profile
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.pod import DEFAULT_SCHEDULER
from stowplan.plugins.v1_13.predicates.pod_fits_resources import PodFitsResourcesArgs
from stowplan.testing import node, pod

HEAD = "kind: Policy\napiVersion: v1\n"


def parsed(text: str, *plugins: type[Any]) -> config.Configuration:
    return configuration_of(HEAD + text, "test.yaml", plugins)[0]


def policy_of(text: str) -> Policy:
    found: Policy = parsed(text).policy
    return found


def profile_of(text: str, *plugins: type[Any]) -> Profile:
    return parsed(text, *plugins).profiles[DEFAULT_SCHEDULER]


def gated(tree: dict[str, Any], provider: str = PROVIDERS[0], **gates: bool) -> Policy:
    chosen = PolicyGates.of(gates, "gates")
    read_as = read(tree, "test", registry(), (), Problems(), gates=chosen, provider=provider)
    found: Policy = read_as.policy
    return found


def errors(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    return [str(problem) for problem in caught.value.problems]


def names(profile: Profile, point: str) -> list[str]:
    return [use.name for use in profile.points[point]]


# What a policy comes to.


def test_absent_lists_are_the_providers() -> None:
    policy = policy_of("")
    assert [p.name for p in policy.predicates] == [
        "CheckNodeUnschedulable",
        "GeneralPredicates",
        "NoDiskConflict",
        "PodToleratesNodeTaints",
        "MaxEBSVolumeCount",
        "MaxGCEPDVolumeCount",
        "MaxCSIVolumeCountPred",
        "MaxAzureDiskVolumeCount",
        "CheckVolumeBinding",
        "NoVolumeZoneConflict",
        "MatchInterPodAffinity",
    ]
    weights = {p.name: p.weight for p in policy.priorities}
    assert weights.pop("NodePreferAvoidPodsPriority") == 10000
    assert set(weights.values()) == {1}
    assert list(weights) == sorted(weights)
    assert (policy.hard_pod_affinity_weight, policy.checks_all_filters) == (1, False)


def test_empty_lists_leave_what_is_mandatory_and_one_point_for_every_node() -> None:
    profile = profile_of("predicates: []\npriorities: []")
    assert names(profile, "filter") == ["CheckNodeUnschedulable", "PodToleratesNodeTaints"]
    assert names(profile, "score") == ["EqualPriority"]
    asked = profile_of("predicates: []\npriorities: []\nextenders: [{urlPrefix: http://x}]")
    assert names(asked, "score") == []


def test_what_surrounds_the_rules_is_todays() -> None:
    profile = profile_of("")
    assert names(profile, "queueSort") == ["PrioritySort"]
    assert names(profile, "bind") == ["DefaultBinder"]
    assert names(profile, "postFilter") == ["DefaultPreemption"]
    assert names(profile, "preBind") == ["CheckVolumeBinding"]


def test_gates_and_providers() -> None:
    conditions = gated({}, TaintNodesByCondition=False)
    found = {p.name for p in conditions.predicates}
    assert {"CheckNodeCondition", "CheckNodeDiskPressure"} <= found
    assert "CheckNodeUnschedulable" not in found
    limits = gated({}, ResourceLimitsPriorityFunction=True)
    assert "ResourceLimitsPriority" in {p.name for p in limits.priorities}
    packing = {p.name for p in gated({}, PROVIDERS[1]).priorities}
    assert "MostRequestedPriority" in packing
    assert "LeastRequestedPriority" not in packing
    with pytest.raises(ConfigError, match="did you mean 'AttachVolumeLimit'"):
        PolicyGates.of({"AttachVolumeLimits": True}, "gates")


OWN = """
predicates:
- {name: mine, argument: {labelsPresence: {labels: [gpu], presence: true}}}
- {name: HostName, argument: {serviceAffinity: {labels: [rack]}}}
- {name: CheckNodeLabelPresence, argument: {labelsPresence: {labels: [old]}}}
priorities:
- {name: ssd, weight: 3, argument: {labelPreference: {label: disk, presence: true}}}
- {name: HostName, weight: 2, argument: {serviceAntiAffinity: {label: rack}}}
- {name: LeastRequestedPriority, weight: 1, argument: {labelPreference: {label: a}}}
"""


def test_rules_of_ones_own_go_under_their_names() -> None:
    profile, policy = profile_of(OWN), policy_of(OWN)
    assert [p.name for p in policy.predicates if not p.runs] == ["mine"]
    runs = [p.name for p in policy.predicates if p.runs]
    assert runs == sorted(runs, key=PREDICATE_ORDER.index)
    assert names(profile, "filter") == runs
    # A name may be that of a predicate and of a priority.
    assert names(profile, "score") == ["HostName (priority)", "LeastRequestedPriority", "ssd"]
    assert profile.aliases == {
        "HostName": "CheckServiceAffinity",
        "HostName (priority)": "ServiceAntiAffinityPriority",
        "LeastRequestedPriority": "NodeLabelPriority",
        "ssd": "NodeLabelPriority",
    }
    assert (profile.args["ssd"].label, profile.args["ssd"].presence) == ("disk", True)
    assert profile.args["HostName"].labels == ("rack",)
    frameworks_for(*configuration_of(HEAD + OWN, "test.yaml"))


def test_a_name_that_comes_again_gives_its_weight_and_an_argument_if_it_has_one() -> None:
    again = """
predicates: []
priorities:
- {name: a1, weight: 3, argument: {labelPreference: {label: disk}}}
- {name: a1, weight: 7}
- {name: EqualPriority, weight: 3}
- {name: EqualPriority, weight: 4, argument: {serviceAntiAffinity: {label: r}}}
"""
    found = {p.name: (p.weight, p.rule) for p in policy_of(again).priorities}
    assert found == {
        "a1": (7, "NodeLabelPriority"),
        "EqualPriority": (4, "ServiceAntiAffinityPriority"),
    }


def test_a_shape_that_is_replaced_is_not_looked_at() -> None:
    bad = "{name: rt, weight: 1, argument: {requestedToCapacityRatioArguments: {shape: []}}}"
    good = "{name: rt, weight: 1, argument: {labelPreference: {label: a}}}"
    assert parsed(f"priorities: [{bad}, {good}]")
    at = "priorities[1].argument.requestedToCapacityRatioArguments.shape"
    assert errors(f"priorities: [{good}, {bad}]") == [
        f"{at}: Invalid value: no point: expected at least one point"
    ]


EXTENDED = """
extenders:
- URLPrefix: http://x
  HTTPTimeout: 1500000000
  enablehttps: true
  TLSConfig: {Insecure: true, keydata: QUJD}
  managedResources: [{Name: example.com/gpu, ignoredByScheduler: true}, {name: a.b/c}]
"""


def test_extenders_are_read_whatever_the_case_of_their_keys() -> None:
    (extender,) = parsed(EXTENDED).extenders
    assert extender.http_timeout.total_seconds() == 1.5
    assert extender.enable_https
    assert extender.tls_config is not None
    assert (extender.tls_config.insecure, extender.tls_config.key_data) == (True, b"ABC")
    args = profile_of(EXTENDED).args
    ignores = PodFitsResourcesArgs(("example.com/gpu",))
    assert args["GeneralPredicates"] == ignores
    assert parsed("extenders: [{}]").extenders[0].http_timeout.total_seconds() == 5


def test_settings_reach_the_rules() -> None:
    args = profile_of("hardPodAffinitySymmetricWeight: 40").args
    assert args["InterPodAffinityPriority"].hard_pod_affinity_weight == 40
    assert profile_of("alwaysCheckAllPredicates: true").checks_all_filters
    assert not profile_of("").checks_all_filters


class Mine:
    """A plugin of one's own."""

    name = "Mine"
    weight = 2

    def filter(self) -> Any:
        raise AssertionError

    def score(self) -> int:
        return 50


def test_a_plugin_of_ones_own_takes_part_and_may_be_given_a_weight() -> None:
    profile = profile_of("", Mine)
    assert names(profile, "filter")[-1] == names(profile, "score")[-1] == "Mine"
    assert profile.points["score"][-1].weight == 2
    text = "predicates: []\npriorities: [{name: Mine, weight: 9}]"
    weighed = profile_of(text, Mine)
    assert [(use.name, use.weight) for use in weighed.points["score"]] == [("Mine", 9)]


# What is printed can be read again.


def test_plugins_of_ones_own_are_printed() -> None:
    once = parsed("predicates: []\npriorities: []", Mine)
    tree = config.effective(once)
    assert tree["predicates"][-1] == {"name": "Mine"}
    assert tree["priorities"] == [{"name": "Mine", "weight": 2}]
    twice, _ = configuration_of(json.dumps(tree), "again.yaml", [Mine])
    assert twice.profiles == once.profiles


@pytest.mark.parametrize("text", ["", OWN, EXTENDED, "predicates: []\npriorities: []"])
def test_the_effective_policy_reads_back(text: str) -> None:
    once = parsed(text)
    tree = config.effective(once)
    assert list(tree)[:2] == ["apiVersion", "kind"]
    for again in (yaml.safe_dump(tree), json.dumps(tree)):
        twice = configuration_of(again, "again.yaml")[0]
        assert config.effective(twice) == tree
        assert twice.profiles == once.profiles
    assert config.digest(once) != config.digest(parsed("priorities: []\npredicates: null"))


def test_private_keys_are_not_printed() -> None:
    (extender,) = config.effective(parsed(EXTENDED))["extenders"]
    assert extender["tlsConfig"]["keyData"] == "REDACTED"
    assert "QUJD" not in json.dumps(extender)


# What is refused.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("predicates: [{name: Generalpredicates}]", "did you mean 'GeneralPredicates'?"),
        ("predicates: [{name: CheckNodeMemoryPressure}]", "taints replace node conditions"),
        ("predicates: [{name: CheckServiceAffinity}]", "needs an argument with serviceAffinity"),
        ("predicates: [{}]", "predicates[0].name: expected NoVolumeZoneConflict"),
        (
            "predicates: [{name: ab, argument: {}}]",
            "predicates[0].argument: Invalid value: nothing: "
            "expected exactly one of 'serviceAffinity' or "
            "'labelsPresence'",
        ),
        (
            "predicates: [{name: a, argument: {serviceAffinity: {labels: [x]}}}]",
            "predicates[0].name: Invalid value: 'a': expected letters, digits and dashes",
        ),
        ("priorities: [{name: NodeLabelPriority, weight: 1}]", "an argument with labelPreference"),
        (
            "priorities: [{name: EqualPriority}]",
            "weight: Invalid value: 0: expected a whole number above 0",
        ),
        (
            "priorities: [{name: EqualPriority, weight: 922337203685477580}]",
            "and below 922337203685477580",
        ),
        (
            "priorities: [{name: EqualPriority, weight: 922337203685477579},"
            " {name: MostRequestedPriority, weight: 2}]",
            "priorities: Invalid value: weights of 922337203685477581: "
            "expected at most 922337203685477580",
        ),
        ("priorities: [{name: ResourceLimitsPriority, weight: 1}]", "ResourceLimitsPriorityFunc"),
        ("hardPodAffinitySymmetricWeight: 101", "Invalid value: 101: expected 1 to 100"),
        ("hardPodAffinitySymmetricWeight: -1", "Invalid value: -1: expected 1 to 100"),
        ("alwaysCheckAllPredicate: true", "did you mean 'alwaysCheckAllPredicates'?"),
        (
            "priorities: {name: EqualPriority}",
            "priorities: Invalid value: a mapping: expected a list",
        ),
        (
            "extenders: [{prioritizeVerb: p}]",
            "extenders[0].weight: Invalid value: 0: expected a whole",
        ),
        (
            "extenders: [{bindVerb: a}, {bindVerb: b}]",
            "extenders[1].bindVerb: Invalid value: 'b': expected one extender that binds",
        ),
        (
            "extenders: [{managedResources: [{name: a.b/c}, {name: a.b/c}]}]",
            "extenders[0].managedResources[1].name: Invalid value: 'a.b/c' again",
        ),
        ("extenders: [{managedResources: [{name: cpu}]}]", "expected an extended resource"),
        (
            "extenders: [{httpTimeout: -5}]",
            "extenders[0].httpTimeout: Invalid value: -5: expected a number of nanoseconds",
        ),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    found = errors(text)
    assert len(found) == 1, found
    assert message in found[0]


def test_every_mistake_is_found() -> None:
    text = "predicates: [{name: x}]\npriorities: [{name: y, weight: 0}]\nextenders: [{weigh: 1}]"
    paths = [line.split(":")[0] for line in errors(text)]
    assert paths == [
        "extenders[0].weigh",
        "predicates[0].name",
        "priorities[0].weight",
        "priorities[0].name",
    ]


def test_another_version_is_refused() -> None:
    with pytest.raises(ConfigError, match="apiVersion: Invalid value: 'v2': expected 'v1'"):
        configuration_of("kind: Policy\napiVersion: v2\n", "test.yaml")


# A policy decides.


def test_the_machine_decides_by_a_policy() -> None:
    text = HEAD + "predicates: [{name: GeneralPredicates}]\n"
    text += "priorities: [{name: MostRequestedPriority, weight: 1}]\n"
    scheduler = scheduler_for(*configuration_of(text, "test.yaml"))
    nodes = [node("big", cpu="8", memory="16Gi"), node("small", cpu="2", memory="4Gi")]
    events = [happened.LeaderElected(1), *(happened.NodeAdded(one) for one in nodes)]
    scheduler.handle(events, 0)
    web = pod("web", cpu="1", memory="1Gi")
    effects = scheduler.handle([happened.PodAdded(web)], 0)
    (bind,) = [effect for effect in effects if isinstance(effect, to_do.Bind)]
    assert bind.node == "small"
    vip = pod("vip", cpu="8", memory="1Gi", priority=9)
    scheduler.handle([happened.PodAdded(pod("low", cpu="1", memory="1Gi"))], 0)
    effects = scheduler.handle([happened.PodAdded(pod("huge", cpu="9"))], 0)
    assert any("Insufficient cpu" in str(effect) for effect in effects)
    scheduler.handle([happened.PodAdded(pod("there", cpu="8", memory="1Gi", on="big"))], 0)
    effects = scheduler.handle([happened.PodAdded(vip)], 0)
    assert [e.name for e in effects if isinstance(e, to_do.Evict)] == ["there"]
