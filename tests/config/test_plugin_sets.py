"""Which plugins run where, and in what order.

Source: kube-scheduler v1.36, the cases of framework/runtime/framework_test.go (multiPoint) and of
apis/config/v1/default_plugins_test.go (laid over the defaults), worked out anew.
"""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan import config
from stowplan.config.plugin_sets import ResolvedPluginSet, expand_multi_point, merge_plugins
from stowplan.framework import PluginUse
from stowplan.framework.extension_points import EXTENSION_POINTS
from tests.config.plugins import DEFAULT, DEFAULTS, plugin_set, registry, uses

EVERYWHERE = " ".join(EXTENSION_POINTS)
REGISTRY = registry(
    {"Test": EVERYWHERE, "S1": "preScore score", "S2": "preScore score", "Norm": "score"}
)
Expand = Callable[[Sequence[PluginUse], ResolvedPluginSet], list[PluginUse]]


def wanted(text: str) -> ResolvedPluginSet:
    items = text.split()
    enabled = uses(" ".join(item for item in items if not item.startswith("-")))
    return ResolvedPluginSet(
        tuple(enabled), frozenset(item[1:] for item in items if item.startswith("-"))
    )


def points_of(sets: dict[str, str], defaults: Sequence[PluginUse]) -> dict[str, list[PluginUse]]:
    plugins = {point: plugin_set(text) for point, text in sets.items()}
    tree = {"profiles": [{"plugins": plugins}]}
    read = config.from_tree(tree, "test", REGISTRY, defaults, body=True)
    return {p: list(u) for p, u in read.profiles["default-scheduler"].points.items()}


# Laid over the default list.
@pytest.mark.parametrize(
    ("defaults", "custom", "result"),
    [
        ("D1 D2", "", "D1 D2"),
        ("D1 D2", "C", "D1 D2 C"),
        ("D1 D2", "C D2 -D2", "D1 C D2"),
        ("D1 D2", "C D1 D2 -*", "C D1 D2"),
        ("D1 D2", "D2 D1 -*", "D2 D1"),
        ("D1 D2", "-*", ""),
        ("P1 P2 P3", "P1=2 P3=3", "P1=2 P2 P3=3"),
        ("P1 P2 P3", "P2=2 P1=4", "P1=4 P2=2 P3"),
        ("P1=5 P2", "P1", "P1 P2"),
        ("D1 D2", "C C2 -D2", "D1 C C2"),
        ("D", "D=5", "D=5"),
        ("D", "-D", ""),
        ("D", "-E", "D"),
        ("D1 D2 D3", "D1 -D1 -D3", "D2 D1"),
    ],
)
def test_laid_over_the_defaults(defaults: str, custom: str, result: str) -> None:
    assert merge_plugins(uses(defaults), wanted(custom)) == uses(result)


# One point: what multiPoint brings there, and what is listed there.
@pytest.mark.parametrize(
    ("multi", "own", "result"),
    [
        ("A B", "", "A B"),
        ("A B", "-*", ""),
        ("A B", "-A", "B"),
        ("A B", "C -*", "C"),
        ("A B C", "C B", "C B A"),
        ("A B C", "X C B", "C B A X"),
        ("A B C", "C X B Y", "C B A X Y"),
        ("A=3 B=2", "B=7 A", "B=7 A"),
        # Disabled and listed: no longer multiPoint's, so after what is.
        ("A B C", "A -A", "B C A"),
        ("A B C", "B A -A", "B C A"),
        ("A B C", "C A X -A", "C B A X"),
        ("A B C", "A B -A -B", "C A B"),
        ("", "B A", "B A"),
    ],
)
def test_at_one_point(multi: str, own: str, result: str) -> None:
    assert expand_multi_point(uses(multi), wanted(own)) == uses(result)


# The points that are not named run Test alone.
MULTI_POINT_CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "a plugin goes wherever it can": ({"multiPoint": "Test=5"}, {"score": "Test=5"}),
    "disabled at some points": (
        {"multiPoint": "Test", "preScore": "-Test", "score": "-Test"},
        {"preScore": "", "score": ""},
    ),
    "several": (
        {"multiPoint": "Test S1"},
        {"preScore": "Test S1", "score": "Test S1"},
    ),
    "a point cut off": (
        {"multiPoint": "Test S1", "preScore": "-*"},
        {"preScore": "", "score": "Test S1"},
    ),
    "reordered at a point": (
        {"multiPoint": "Norm Test S1", "score": "S1 Test"},
        {"preScore": "Test S1", "score": "S1 Test Norm"},
    ),
    "what multiPoint does not have comes last": (
        {"multiPoint": "Test S1", "score": "Norm S1 Test"},
        {"preScore": "Test S1", "score": "S1 Test Norm"},
    ),
    "weights at the point win": (
        {"multiPoint": "Test=9 S1", "score": "S1=5 Test=3"},
        {"preScore": "Test S1", "score": "S1=5 Test=3"},
    ),
    "listed at the point without a weight": (
        {"multiPoint": "Test=9", "score": "Test"},
        {"score": "Test"},
    ),
    "own weights, and a plugin of the point alone": (
        {"multiPoint": "Test S1", "score": "S1=5 S2=5 Test=3"},
        {"preScore": "Test S1", "score": "S1=5 Test=3 S2=5"},
    ),
    "enabled beats disabled in multiPoint": (
        {"multiPoint": "Test S1 -S1"},
        {"preScore": "Test S1", "score": "Test S1"},
    ),
    "all disabled and some enabled in multiPoint": (
        {"multiPoint": "Test S1 -*"},
        {"preScore": "Test S1", "score": "Test S1"},
    ),
}


@pytest.mark.parametrize("name", MULTI_POINT_CASES)
def test_multi_point(name: str) -> None:
    given_sets, differing = MULTI_POINT_CASES[name]
    result = dict.fromkeys(EXTENSION_POINTS, "Test") | differing
    weight = next((u.weight for u in uses(given_sets.get("multiPoint", "")) if u.name == "Test"), 1)
    result |= {"placementScore": f"Test={weight}"} if weight > 1 else {}
    assert points_of(given_sets, ()) == {point: uses(text) for point, text in result.items()}


# With the default list beneath.


def test_by_default_a_plugin_is_enabled_at_every_point_that_it_implements() -> None:
    points = points_of({}, DEFAULTS)
    for point in EXTENSION_POINTS:
        there = [(name, weight) for name, weight, able, _ in DEFAULT if point in able.split()]
        assert [u.name for u in points[point]] == [name for name, _ in there]
    assert points["score"] == uses(SCORES)
    assert points["postFilter"] == uses("DynamicResources DefaultPreemption")


SCORES = (
    "TaintToleration=3 NodeAffinity=2 NodeResourcesFit VolumeBinding PodTopologySpread=2"
    " InterPodAffinity=2 DynamicResources=2 NodeResourcesBalancedAllocation ImageLocality"
)


@pytest.mark.parametrize(
    ("sets", "point", "result"),
    [
        ({"multiPoint": "OtherBinder"}, "bind", "DefaultBinder OtherBinder"),
        ({"multiPoint": "OtherBinder -DefaultBinder"}, "bind", "OtherBinder"),
        ({"bind": "OtherBinder"}, "bind", "DefaultBinder OtherBinder"),
        ({"bind": "OtherBinder DefaultBinder"}, "bind", "DefaultBinder OtherBinder"),
        ({"bind": "OtherBinder -DefaultBinder"}, "bind", "OtherBinder"),
        ({"bind": "OtherBinder DefaultBinder -DefaultBinder"}, "bind", "OtherBinder DefaultBinder"),
        ({"queueSort": "OtherSort -*"}, "queueSort", "OtherSort"),
        (
            {"multiPoint": "ImageLocality=9 -TaintToleration -VolumeBinding"},
            "score",
            SCORES.removeprefix("TaintToleration=3 ").replace(" VolumeBinding", "") + "=9",
        ),
        ({"score": "ImageLocality=2 -*"}, "score", "ImageLocality=2"),
        (
            {"score": "ImageLocality=2 -*"},
            "preScore",
            "TaintToleration NodeAffinity NodeResourcesFit VolumeBinding PodTopologySpread"
            " InterPodAffinity NodeResourcesBalancedAllocation",
        ),
        # Weight 0 and no weight are 1, the default list's weight notwithstanding.
        ({"score": "TaintToleration=0 -*"}, "score", "TaintToleration"),
        ({"multiPoint": "TaintToleration"}, "score", SCORES.replace("n=3", "n")),
        # A plugin of somebody else's has a weight of its own.
        ({"score": "Heavy -*"}, "score", "Heavy=7"),
        ({"score": "Heavy=2 -*"}, "score", "Heavy=2"),
        ({"multiPoint": "Heavy"}, "score", f"{SCORES} Heavy=7"),
    ],
)
def test_over_the_default_list(sets: dict[str, str], point: str, result: str) -> None:
    assert points_of(sets, DEFAULTS)[point] == uses(result)


@pytest.mark.parametrize("name", ["EBSLimits", "GangScheduling", "NodeName", "SelectorSpread"])
def test_what_would_not_run_there_may_be_disabled(name: str) -> None:
    assert points_of({"score": f"-{name}"}, DEFAULTS) == points_of({}, DEFAULTS)


# Any lists: who takes part, and that multiPoint's own order holds.

lists = st.lists(st.sampled_from("ABCDE"), unique=True).map(
    lambda names: tuple(PluginUse(name, weight) for weight, name in enumerate(names, start=1))
)
wants = st.builds(
    ResolvedPluginSet, lists, st.frozensets(st.sampled_from([*"ABCDE", "*"]), max_size=3)
)


def check_expansion(expand: Expand) -> None:
    @given(lists, wants)
    def holds(multi: Sequence[PluginUse], own: ResolvedPluginSet) -> None:
        listed = {use.name: use for use in own.enabled}
        brought = {use.name: use for use in multi if not own.disabled & {use.name, "*"}}

        def place(name: str) -> tuple[int, int]:
            if name not in listed:
                return 1, list(brought).index(name)
            return 0 if name in brought else 2, list(listed).index(name)

        names = sorted({*listed, *brought}, key=place)
        assert expand(multi, own) == [listed.get(name) or brought[name] for name in names]

    holds()


@pytest.mark.hypothesis
def test_any_expansion() -> None:
    check_expansion(expand_multi_point)


def test_control_expansion_that_forgets_what_the_point_disabled() -> None:
    def forgetful(multi: Sequence[PluginUse], own: ResolvedPluginSet) -> list[PluginUse]:
        return expand_multi_point(multi, ResolvedPluginSet(own.enabled, own.disabled & {"*"}))

    with pytest.raises(AssertionError):
        check_expansion(forgetful)


def test_control_expansion_that_puts_the_points_own_plugins_first() -> None:
    def eager(multi: Sequence[PluginUse], own: ResolvedPluginSet) -> list[PluginUse]:
        rest = {use.name for use in own.enabled}
        return [*own.enabled, *(u for u in expand_multi_point(multi, own) if u.name not in rest)]

    with pytest.raises(AssertionError):
        check_expansion(eager)
