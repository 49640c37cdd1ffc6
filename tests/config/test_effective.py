"""The effective configuration says everything, so reading it gives the same again."""

import copy
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from stowplan import config
from stowplan.framework.extension_points import EXTENSION_POINTS
from tests.config.plugins import DEFAULTS, registry

REGISTRY = registry()
EFFECTIVE = (
    *("PrioritySort", "TaintToleration", "NodeResourcesFit", "DynamicResources"),
    *("ImageLocality", "DefaultBinder", "OtherBinder", "Heavy"),
)
ABLE = {name: REGISTRY[name].points for name in EFFECTIVE}

DYNAMIC = {"name": "DynamicResources", "args": {"filterTimeout": "1.5s"}}


def entries(names: list[str], weighty: bool) -> st.SearchStrategy[list[dict[str, Any]]]:
    entry = st.fixed_dictionaries(
        {"name": st.sampled_from(names)},
        optional={"weight": st.sampled_from([0, 1, 5, -2])} if weighty else {},
    )
    return st.lists(entry, max_size=3, unique_by=lambda e: str(e["name"]))


def plugin_sets(point: str) -> st.SearchStrategy[dict[str, Any]]:
    names = [name for name, points in ABLE.items() if point in points or point == "multiPoint"]
    # Something must sort and something must bind, so those two are never cut off.
    fixed = ["PrioritySort", "DefaultBinder"]
    disabled = [n for n in ABLE if n not in fixed]
    if point not in ("multiPoint", "queueSort", "bind"):
        disabled.append("*")
    return st.fixed_dictionaries(
        {"enabled": entries(names, True) if names else st.just([])},
        optional={"disabled": entries(disabled, False)},
    )


profiles = st.fixed_dictionaries(
    {
        "plugins": st.fixed_dictionaries(
            {}, optional={p: plugin_sets(p) for p in ("multiPoint", *EXTENSION_POINTS)}
        )
    },
    optional={
        "percentageOfNodesToScore": st.integers(0, 100),
        "pluginConfig": st.lists(
            st.sampled_from(
                [
                    {"name": "DefaultPreemption", "args": {"minCandidateNodesPercentage": 50}},
                    DYNAMIC,
                    {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "x"}}},
                    {
                        "name": "NodeAffinity",
                        "args": {
                            "addedAffinity": {
                                "requiredDuringSchedulingIgnoredDuringExecution": {
                                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a"}]}]
                                }
                            }
                        },
                    },
                ]
            ),
            unique_by=lambda e: str(e["name"]),
        ),
    },
)
bodies = st.fixed_dictionaries(
    {"profiles": st.tuples(profiles, profiles).map(list)},
    optional={
        "parallelism": st.integers(1, 99),
        "percentageOfNodesToScore": st.integers(0, 100),
        "enableProfiling": st.booleans(),
        "podMaxBackoffSeconds": st.integers(1, 99),
        "leaderElection": st.just({"leaseDuration": "1m30.5s", "leaderElect": False}),
        "extenders": st.lists(
            st.fixed_dictionaries(
                {"urlPrefix": st.sampled_from(["", "http://x"])},
                optional={
                    "weight": st.integers(0, 9),
                    "httpTimeout": st.sampled_from(["0s", "250ms"]),
                    "ignorable": st.booleans(),
                    "tlsConfig": st.just({"caData": "YQ=="}),
                },
            ),
            max_size=2,
        ),
    },
)


def read(body: dict[str, Any]) -> config.Configuration:
    return config.from_tree(body, "test", REGISTRY, DEFAULTS, body=True)


Effective = Callable[[config.Configuration], dict[str, Any]]
# Nobody reads the smallest body that a control fails on.
UNSHRUNK = (Phase.generate,)


def check_reading_back(effective: Effective, phases: Collection[Phase] = tuple(Phase)) -> None:
    @settings(phases=phases)
    @given(bodies)
    def same_again(body: dict[str, Any]) -> None:
        for name, profile in zip("ab", body["profiles"], strict=True):
            profile["schedulerName"] = name
        first = read(body)
        text = yaml.safe_dump(effective(first), sort_keys=False)
        second = config.parse(text, "test", REGISTRY, DEFAULTS)
        assert first == second

    same_again()


@pytest.mark.hypothesis
def test_reading_it_back_gives_the_same_configuration() -> None:
    check_reading_back(config.effective)


def test_control_leaving_multi_point_on() -> None:
    def forgetful(configuration: config.Configuration) -> dict[str, Any]:
        tree = config.effective(configuration)
        for profile in tree["profiles"]:
            del profile["plugins"]["multiPoint"]
        return tree

    with pytest.raises(AssertionError):
        check_reading_back(forgetful, UNSHRUNK)


def test_control_leaving_out_weights_of_one() -> None:
    def terse(configuration: config.Configuration) -> dict[str, Any]:
        tree = config.effective(configuration)
        for profile in tree["profiles"]:
            for entry in profile["plugins"]["score"]["enabled"]:
                if entry["weight"] == 1:
                    del entry["weight"]
        return tree

    with pytest.raises(AssertionError):
        check_reading_back(terse, UNSHRUNK)


def test_the_default_configuration_as_printed() -> None:
    tree = config.effective(config.default(REGISTRY, DEFAULTS))
    assert list(tree)[:2] == ["apiVersion", "kind"]
    (profile,) = tree["profiles"]
    assert list(profile["plugins"]) == ["multiPoint", *EXTENSION_POINTS]
    assert profile["plugins"]["multiPoint"] == {"disabled": [{"name": "*"}]}
    assert profile["plugins"]["permit"] == {"enabled": []}
    assert profile["plugins"]["postFilter"] == {
        "enabled": [{"name": "DynamicResources"}, {"name": "DefaultPreemption"}]
    }
    assert profile["plugins"]["score"]["enabled"][0] == {"name": "TaintToleration", "weight": 3}
    assert [item["name"] for item in profile["pluginConfig"]] == [
        *("DefaultPreemption", "DynamicResources", "NodeAffinity"),
        *("NodeResourcesFit", "PodTopologySpread"),
    ]
    assert profile["pluginConfig"][1]["args"] == {"filterTimeout": "10s"}
    assert tree["leaderElection"]["leaseDuration"] == "15s"


def test_private_keys_are_not_printed_but_count() -> None:
    body = {"extenders": [{"tlsConfig": {"keyData": "c2VjcmV0", "certData": "YQ=="}}]}
    one, other = read(body), copy.deepcopy(body)
    other["extenders"][0]["tlsConfig"]["keyData"] = "b3RoZXI="
    tree = config.effective(one)
    assert tree["extenders"][0]["tlsConfig"]["keyData"] == "REDACTED"
    assert tree["extenders"][0]["tlsConfig"]["certData"] == "YQ=="
    assert "c2VjcmV0" not in yaml.safe_dump(tree)
    assert read(tree).extenders[0].http_timeout == timedelta(seconds=5)
    assert config.digest(one) != config.digest(read(other))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"profiles": [{}]},
        {"parallelism": 16, "percentageOfNodesToScore": None},
        {"profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "NodeName"}]}}}]},
        {"profiles": [{"plugins": {"score": {"disabled": [{"name": "NodeName"}]}}}]},
    ],
)
def test_what_comes_to_the_same_has_the_same_digest(body: dict[str, Any]) -> None:
    assert config.digest(read(body)) == config.digest(config.default(REGISTRY, DEFAULTS))


@pytest.mark.parametrize(
    "body",
    [
        {"parallelism": 17},
        {"percentageOfNodesToScore": 0},
        {"profiles": [{"schedulerName": "other"}]},
        {"profiles": [{"plugins": {"score": {"enabled": [{"name": "ImageLocality"}]}}}]},
        {"podMaxBackoffSeconds": 9},
        {"profiles": [{"pluginConfig": [DYNAMIC]}]},
        {"profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "NodeName"}]}}}]},
    ],
)
def test_what_differs_has_another_digest(body: dict[str, Any]) -> None:
    assert config.digest(read(body)) != config.digest(config.default(REGISTRY, DEFAULTS))


def test_the_digest_is_of_the_content_not_of_the_source() -> None:
    renamed = msgspec.structs.replace(config.default(REGISTRY, DEFAULTS), source="elsewhere")
    assert config.digest(renamed) == config.digest(config.default(REGISTRY, DEFAULTS))
    assert len(config.digest(renamed)) == 64
