"""Calls by parameter name, and whose fault a failure is."""

from typing import Any

import msgspec
import numpy as np
import pytest

from stowplan.framework import (
    OK,
    ContractError,
    CycleState,
    FeatureGates,
    Framework,
    Handle,
    NodeInfo,
    PluginUse,
    Profile,
    QueuedPod,
    Registry,
    Status,
    unschedulable,
)
from stowplan.framework.plugin_calls import parameters_of
from stowplan.framework.runtime.framework_building import build_frameworks
from stowplan.objects.pod import Pod
from tests.framework.stage import POD, Sort, framework_of, plugin, snapshot

NODE = snapshot().nodes.info(0)


def asked(function: Any) -> Any:
    """What a `filter` of this shape is given, by parameter."""
    framework = framework_of(plugin("A", filter=function))
    return framework.filter_node(POD, NODE, CycleState())


def seen(**given: Any) -> Status:
    """A status that says what it saw."""
    return unschedulable(*(f"{name}={getattr(v, 'name', v)}" for name, v in given.items()))


def test_a_method_gets_what_it_names() -> None:
    def nothing(self: Any) -> Status:
        return seen()

    def one(self: Any, node: Any) -> Status:
        return seen(node=node)

    def turned(self: Any, node: Any, pod: Any) -> Status:
        return seen(node=node, pod=pod)

    def everything(self: Any, pod: Any, node: Any, state: Any) -> Status:
        assert isinstance(state, CycleState)
        return seen(pod=pod, node=node)

    def by_keyword(self: Any, *, node: Any, pod: Any) -> Status:
        return seen(node=node, pod=pod)

    def optional(self: Any, pod: Any, node: Any = None, *rest: Any, **more: Any) -> Status:
        assert (rest, more) == ((), {})
        return seen(pod=pod, node=node)

    assert asked(nothing).reasons == ()
    assert asked(one).reasons == ("node=n1",)
    assert asked(turned).reasons == ("node=n1", "pod=web")
    assert asked(everything).reasons == ("pod=web", "node=n1")
    assert asked(by_keyword).reasons == ("node=n1", "pod=web")
    assert asked(optional).reasons == ("pod=web", "node=n1")


class Static:
    name = "Static"

    @staticmethod
    def filter(node: NodeInfo) -> Status:
        return seen(node=node)

    @classmethod
    def score(cls, pod: Pod) -> int:
        return len(cls.name) + pod.priority


def test_static_and_class_methods_count_their_parameters_right() -> None:
    framework = framework_of(Static)
    assert framework.filter_node(POD, NODE, CycleState()).reasons == ("node=n1",)
    nodes = snapshot().nodes
    assert framework.scores_separately(POD, nodes, nodes.all_rows, CycleState())["Static"][0] == 11


# Refusals when a class is registered.


class Wordy:
    name = "Wordy"

    def filter(self, pod: Pod, nodes: object) -> Status:
        return OK


class Misspelt:
    name = "Misspelt"

    @staticmethod
    def score(nod: NodeInfo) -> int:
        return 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Wordy, "Wordy: filter() has an unknown parameter 'nodes'; available: pod, node, state"),
        (Wordy, "(did you mean 'node'?)"),
        (Misspelt, "Misspelt: score() has an unknown parameter 'nod'; available:"),
        (
            plugin("A", filter=OK, score_column=1),
            "has score_column() without score(); expected both",
        ),
        (plugin("A", score=1, filter_column=1), "has filter_column() without filter()"),
        (plugin("A", pre_filter=OK, add_pod=OK), "has add_pod() without remove_pod()"),
        (plugin("A", filter=OK, unreserve=None), "has unreserve() without reserve()"),
        (plugin("A", filter=OK, REJECTED="no"), "`REJECTED` is 'no'; expected the Status"),
        (plugin("A", filter=OK, REJECTED=OK), "nodes that the plugin refuses, such as"),
        (
            plugin("A", score=1, weight=0),
            "weight: Invalid value: 0: expected a whole number above 0",
        ),
        (plugin("A", score=1, weight="3"), "weight: Invalid value: '3': expected a whole number"),
        (
            type("A", (), {"filter": lambda self: OK}),
            "name: Invalid value: None: expected a non-empty",
        ),
        (plugin(""), "name: Invalid value: '': expected a non-empty string"),
        (plugin("A"), "implements no extension point: expected at least one"),
        (
            type("A", (), {"name": "A", "filter": lambda self: OK, "Args": dict}),
            "Args: Invalid value: ",
        ),
        (Sort, "a plugin named 'Sort' already exists: plugin class "),
    ],
)
def test_a_class_that_cannot_be_a_plugin(wrong: type[Any], message: str) -> None:
    registry = Registry([Sort])
    with pytest.raises(ContractError) as caught:
        registry.register(wrong)
    assert str(caught.value).startswith(f"plugin class {wrong.__module__}.{wrong.__qualname__}")
    assert message in str(caught.value)
    assert list(registry) == ["Sort"]


def test_what_a_registry_knows_of_a_plugin() -> None:
    registry = Registry([Sort])
    registry.register(plugin("A", filter=OK, score=1, normalize_score=1, weight=3))
    entry = registry["A"]
    assert (entry.points, entry.weight, entry.in_tree) == (("filter", "score"), 3, False)
    assert registry["Sort"].in_tree
    assert len(registry) == 2
    assert "B" not in registry


# Constructors.


class WantsAll:
    name = "WantsAll"

    class Args(msgspec.Struct, frozen=True):
        size: int = 7

    def __init__(self, handle: Handle, args: Args) -> None:
        self.handle, self.args = handle, args
        with pytest.raises(ContractError, match="not there yet"):
            _ = handle.framework

    def filter(self, pod: Pod) -> Status:
        return unschedulable(f"{self.args.size} {self.handle.framework.profile.scheduler_name}")


def built(*plugins: type[Any], args: dict[str, Any] | None = None) -> Framework:
    registry = Registry([Sort])
    for each in plugins:
        registry.register(each)
    points = {
        "queueSort": (PluginUse("Sort"),),
        "filter": tuple(PluginUse(each.name) for each in plugins),
    }
    return Framework(Profile("test", points, args or {}), registry, FeatureGates())


def test_a_constructor_gets_what_it_names() -> None:
    def reasons(framework: Framework) -> tuple[str, ...]:
        return framework.filter_node(POD, NODE, CycleState()).reasons

    assert reasons(built(WantsAll)) == ("7 test",)
    assert reasons(built(WantsAll, args={"WantsAll": WantsAll.Args(size=9)})) == ("9 test",)


def constructor(function: Any) -> type[Any]:
    return type("A", (), {"name": "A", "filter": lambda self: OK, "__init__": function})


def test_a_method_that_is_replaced_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What functions ask for is remembered by function, not by class or name."""

    class Plain:
        name = "Plain"

        def filter(self, pod: Any) -> Status:
            return OK

    def init(self: Any, args: Any, *, handle: Any) -> None:
        pass

    def by_node(self: Any, *, node: Any) -> Status:
        return OK

    def asked_for() -> tuple[tuple[str, ...], ...]:
        return parameters_of(Plain), parameters_of(Plain().filter), parameters_of(Plain.filter)

    assert asked_for() == ((), ("pod",), ("self", "pod"))
    monkeypatch.setattr(Plain, "filter", by_node)
    assert asked_for() == ((), ("node",), ("self", "node"))
    monkeypatch.setattr(Plain, "__init__", init)
    assert parameters_of(Plain) == ("args", "handle")
    monkeypatch.setattr(Plain, "__new__", lambda kind, only: object.__new__(kind))
    assert parameters_of(Plain) == ("only",)


def test_a_constructor_that_cannot_be_called() -> None:
    def wants_more(self: Any, args: Any, clock: Any) -> None: ...

    def fails(self: Any) -> None:
        raise KeyError("size")

    wanted = "plugin 'A': the constructor has an unknown parameter 'clock'; available: args, handle"
    with pytest.raises(ContractError, match=wanted):
        built(constructor(wants_more))
    with pytest.raises(ContractError, match="plugin 'A': the constructor raised KeyError: 'size'"):
        built(constructor(fails))


# Unsound profiles.


def test_a_profile_has_one_queue_sort() -> None:
    other = plugin("Other", less=lambda self, first, second: False)
    registry = Registry([Sort, other])
    for uses, have in (((), r"\[\]"), (("Sort", "Other"), r"\['Sort', 'Other'\]")):
        points = {"queueSort": tuple(PluginUse(name) for name in uses)}
        with pytest.raises(ContractError, match=f"profile 'p': queueSort is {have}; expected one"):
            Framework(Profile("p", points), registry, FeatureGates())


def test_all_profiles_sort_the_queue_alike() -> None:
    other = plugin("Other", less=lambda self, first, second: False)
    registry = Registry([Sort, other])
    profiles = {
        name: Profile(name, {"queueSort": (PluginUse(sort),)})
        for name, sort in (("a", "Sort"), ("b", "Other"))
    }
    with pytest.raises(ContractError, match=r"profiles sort the queue by \['Other', 'Sort'\]"):
        build_frameworks(profiles, registry, FeatureGates())
    assert list(build_frameworks({"a": profiles["a"]}, registry, FeatureGates())) == ["a"]


def test_a_plugin_is_only_enabled_where_it_has_a_method() -> None:
    registry = Registry([Sort])
    points = {"queueSort": (PluginUse("Sort"),), "score": (PluginUse("Sort"),)}
    wanted = "profile 'p': plugin 'Sort' is enabled for score and has no score"
    with pytest.raises(ContractError, match=wanted):
        Framework(Profile("p", points), registry, FeatureGates())


def test_the_queue_is_sorted_by_the_plugin() -> None:
    framework = framework_of()
    early, late = QueuedPod(POD, 1.0), QueuedPod(POD, 2.0)
    assert framework.less(early, late)
    assert not framework.less(late, early)
    assert framework.sort_key() is None


# Failures of plugins that are not ours.


class Fails:
    name = "Fails"

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        raise ValueError("no such shelf")

    def score(self) -> int:
        return {}["x"]  # type: ignore[no-any-return]

    def reserve(self) -> Status:
        raise SystemExit("oh")

    def pre_enqueue(self) -> Status:
        raise RuntimeError("oh")


def test_an_exception_names_plugin_method_pod_and_node() -> None:
    framework, state = framework_of(Fails), CycleState()
    for call, wanted in (
        (
            lambda: framework.filter_node(POD, NODE, state),
            "filter of pod 'default/web' on node 'n1' raised ValueError: no such shelf",
        ),
        (
            lambda: framework.scores_separately(POD, snapshot().nodes, slice(0, 3), state),
            "score of pod 'default/web' on node 'n1' raised KeyError: 'x'",
        ),
        (
            lambda: framework.run_reserve(POD, "n2", state),
            "reserve of pod 'default/web' on node 'n2' raised SystemExit: oh",
        ),
        (
            lambda: framework.run_pre_enqueue(POD),
            "pre_enqueue of pod 'default/web' raised RuntimeError: oh",
        ),
    ):
        with pytest.raises(ContractError) as caught:
            call()
        text, _, place = str(caught.value).partition(" (test_binding.py:")
        assert text == f"plugin 'Fails': {wanted}"
        assert place.endswith(")")
        assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        ("pre_enqueue", "Status"),
        ("pre_filter", "Status or RestrictTo"),
        ("filter", "Status"),
        ("post_filter", "PostFilterResult"),
        ("pre_score", "Status"),
        ("reserve", "Status"),
        ("permit", "Status or PermitWait"),
        ("pre_bind", "Status or PreBindWait"),
        ("bind", "Status"),
    ],
)
def test_an_answer_of_the_wrong_kind_is_named(method: str, wanted: str) -> None:
    framework = framework_of(plugin("A", **{method: None}))
    member = framework.members["A"]
    with pytest.raises(ContractError) as caught:
        # Every method is offered a pod first.
        member.call(method, *[POD, NODE, CycleState(), None][: n_offered(method)])
    text, _, place = str(caught.value).partition(" (stage.py:")
    assert text.endswith(f"gave None; expected a {wanted}")
    assert place.endswith(")")


def test_the_place_of_a_failure_is_in_the_plugin_and_not_in_a_library() -> None:
    def largest(self: Any, scores: Any) -> Any:
        return scores.max()

    member = framework_of(plugin("A", score=1, normalize_score=largest)).members["A"]
    empty = np.zeros(0, dtype=np.int64)
    with pytest.raises(ContractError) as caught:
        member.call("normalize_score", empty, POD, None, empty, CycleState())
    line = largest.__code__.co_firstlineno + 1
    assert str(caught.value).endswith(f" (test_binding.py:{line} in largest)")


def n_offered(method: str) -> int:
    return {"pre_enqueue": 1, "post_filter": 4, "pre_score": 4}.get(method, 3)


def test_an_exception_of_a_plugin_of_ours_is_left_as_it_is() -> None:
    registry = Registry([Sort, Fails])
    points = {"queueSort": (PluginUse("Sort"),), "filter": (PluginUse("Fails"),)}
    framework = Framework(Profile("test", points), registry, FeatureGates())
    with pytest.raises(ValueError, match="no such shelf"):
        framework.filter_node(POD, NODE, CycleState())
