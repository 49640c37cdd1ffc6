"""A plan made from that of another class of the outline is the plan that the class has alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.columns.engine import arrays as at
from stowplan.columns.engine import numpy_kernels
from stowplan.columns.nodetable import table_of
from stowplan.cycle.engine import Engine, EnginePodClass, plans
from stowplan.cycle.engine.outline_plans import OutlinePlan, OutlineRows
from stowplan.cycle.engine.plans import Planner
from stowplan.framework import Framework, ObjectStore, Snapshot
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Container, Pod, PodSpec, ResourceRequirements, Toleration
from stowplan.objects.pod_requests import plain_requests
from stowplan.objects.workload import Service, ServiceSpec
from stowplan.testing import node, spread
from tests.cycle.engine_and_walk import framework_for
from tests.property.wrong import assert_caught
from tests.soak import examples

RARE = tuple(f"rare.com/{i}" for i in range(4))
RESOURCES = (
    *RARE,
    "cpu",
    "memory",
    "ephemeral-storage",
    "a.com/x",
    "a.com/y",
    "b.com/z",
    "unknown",
)
AMOUNTS = ("0", "1", "250m", "3", "200Mi", "1000001n", "9223372036854775807", "1e19", "7Ti")


def fit_with(**arguments: Any) -> dict[str, Any]:
    return {"pluginConfig": [{"name": "NodeResourcesFit", "args": arguments}]}


def scoring(kind: str, *names: str) -> dict[str, Any]:
    strategy: dict[str, Any] = {
        "type": kind,
        "resources": [{"name": name, "weight": i} for i, name in enumerate(names, 1)],
    }
    if kind == "RequestedToCapacityRatio":
        shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
        strategy["requestedToCapacityRatio"] = {"shape": shape}
    return {"scoringStrategy": strategy}


FRAMEWORKS = [
    framework_for(),
    framework_for(fit_with(ignoredResources=["a.com/x"], ignoredResourceGroups=["b.com"])),
    framework_for(fit_with(**scoring("MostAllocated", "memory", "a.com/y"))),
    framework_for(fit_with(**scoring("RequestedToCapacityRatio", "a.com/x", "cpu"))),
]

requests = st.lists(
    st.tuples(st.sampled_from(RESOURCES), st.sampled_from(AMOUNTS)), max_size=4
).map(dict)
specs = st.builds(
    PodSpec,
    containers=st.lists(requests, min_size=1, max_size=3).map(
        lambda many: tuple(
            Container(name=f"c{i}", image="nginx", resources=ResourceRequirements(requests=one))
            for i, one in enumerate(many)
        )
    ),
    tolerations=st.sampled_from([(), (Toleration(key="gpu"),)]),
)
labels = st.sampled_from([{}, {"app": "web"}, {"app": "db"}])
pods = st.lists(st.tuples(specs, labels), min_size=2, max_size=12)


def snapshot() -> Snapshot:
    nodes = [node("n1", zone="a", taints=["gpu:NoSchedule"]), node("n2", zone="b")]
    # Each rare resource is on other nodes, one on too many to name them.
    for i, name in enumerate(RARE):
        nodes += [node(f"n{name}{k}", zone="a", resources={name: "4"}) for k in range(1 + 4 * i)]
    nodes.append(node("both", resources=dict.fromkeys(RARE[:2], "4")))
    service = Service(
        metadata=ObjectMeta(name="web", namespace="default"),
        spec=ServiceSpec(selector={"app": "web"}),
    )
    return Snapshot(table_of(nodes), ObjectStore([service]))


def plan_of(engine: Engine, pod: Pod, framework: Framework, seen: Snapshot) -> Any:
    """What a class of `pod` has in the class arrays, with the numbers of others left out; None
    without a plan."""
    one = engine.class_of(pod, framework)
    assert one is not None
    engine.heads([one], seen)
    return written(engine, one)


def written(engine: Engine, one: EnginePodClass) -> Any:
    """What a class has in the class arrays, see `plan_of`."""
    if one.number < 0:
        return None
    arrays = engine._class_arrays
    assert arrays is not None
    params = arrays.classes[one.number].copy()
    static = params[at.STATIC]
    keys = arrays._layout_list[params[at.LAYOUT]].keys
    line = arrays.kernel_arrays()[1].lines[params[at.LINE]].copy()
    params[[at.STATIC, at.LAYOUT, at.FIRST_TERM, at.LINE]] = 0
    shared = arrays._passes[static], arrays._points[static], arrays._raw[static], line
    return params, *shared, np.array(keys), np.array(sorted(one.state.skip_filter))


def same_plans(framework: Framework, made: list[tuple[PodSpec, dict[str, str]]]) -> None:
    seen, together = snapshot(), Engine(numpy_kernels)
    # What kinds of objects are read is known after the first plan, which is then made again.
    plan_of(together, Pod(ObjectMeta(name="first", uid="first"), PodSpec()), framework, seen)
    for i, (spec, own) in enumerate(made):
        meta = ObjectMeta(name=f"p{i}", namespace="default", uid=f"u{i}", labels=own)
        pod = Pod(meta, spec)
        got = plan_of(together, pod, framework, seen)
        wanted = plan_of(Engine(numpy_kernels), pod, framework, seen)
        assert (got is None) == (wanted is None), spec
        for mine, its in zip(got or (), wanted or (), strict=True):
            assert np.array_equal(mine, its), spec


@settings(max_examples=examples(30))
@given(st.sampled_from(FRAMEWORKS), pods)
def test_a_plan_is_the_same_beside_others_of_its_outline(
    framework: Framework, made: list[tuple[PodSpec, dict[str, str]]]
) -> None:
    same_plans(framework, made)


def pods_of(made: list[tuple[PodSpec, dict[str, str]]]) -> list[Pod]:
    metas = (
        ObjectMeta(name=f"p{i}", namespace="default", uid=f"u{i}", labels=own)
        for i, (_, own) in enumerate(made)
    )
    return [Pod(meta, spec) for meta, (spec, _) in zip(metas, made, strict=True)]


def same_together(framework: Framework, made: list[tuple[PodSpec, dict[str, str]]]) -> None:
    """Classes that are planned in one step have the plans that they have one after the other, and
    add as much to terms of each other."""
    seen, pods = snapshot(), pods_of(made)
    engines = Engine(numpy_kernels), Engine(numpy_kernels)
    classes: list[list[EnginePodClass]] = []
    for engine in engines:
        plan_of(engine, Pod(ObjectMeta(name="first", uid="first"), PodSpec()), framework, seen)
        found = [engine.class_of(pod, framework) for pod in pods]
        # All terms are known before.
        engine._follow(seen)
        classes.append([one for one in found if one is not None])
    engines[0].heads(classes[0], seen)
    for one in classes[1]:
        engines[1].heads([one], seen)
    for mine, other in zip(*classes, strict=True):
        got, wanted = (written(e, c) for e, c in zip(engines, (mine, other), strict=True))
        assert (got is None) == (wanted is None), mine.pod.spec
        for a, b in zip(got or (), wanted or (), strict=True):
            assert np.array_equal(a, b), mine.pod.spec
        assert mine.terms == other.terms
        assert effects(engines[0], mine) == effects(engines[1], other), mine.pod.spec


def effects(engine: Engine, one: EnginePodClass) -> dict[int, int]:
    assert engine._class_arrays is not None
    effects = engine._class_arrays._effects.get(one.number, ())
    return dict(zip(effects[::2], effects[1::2], strict=True))


# Terms of others count pods of classes that have none.
SPREAD = {"topology_spread_constraints": (spread("app=db", "topology.kubernetes.io/zone"),)}
some_specs = st.one_of(specs, specs, specs.map(lambda spec: replace(spec, **SPREAD)))
some_pods = st.lists(st.tuples(some_specs, labels), min_size=2, max_size=12)


@settings(max_examples=examples(60))
@given(st.sampled_from(FRAMEWORKS), some_pods)
def test_classes_that_come_together_have_the_plans_of_those_that_do_not(
    framework: Framework, made: list[tuple[PodSpec, dict[str, str]]]
) -> None:
    same_together(framework, made)


def test_a_plugin_that_fails_leaves_no_plan_half_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes before it have numbers, as they are not planned again; its own is walked."""
    seen, engine = snapshot(), Engine(numpy_kernels)
    made = [(specs_of({"cpu": f"{i}"}), {}) for i in range(1, 5)]
    classes = [engine.class_of(pod, FRAMEWORKS[0]) for pod in pods_of(made)]
    first, second, third, failing = (one for one in classes if one is not None)
    for _ in range(2):
        # Which objects are read is known after the first plan.
        engine.heads([first, second], seen)
    right = Planner.plan_alike

    def plan_alike(self: Planner, one: EnginePodClass) -> bool:
        if one is failing:
            raise ZeroDivisionError
        return right(self, one)

    monkeypatch.setattr(Planner, "plan_alike", plan_alike)
    failing.is_fast = True
    with pytest.raises(ZeroDivisionError):
        engine.heads([third, failing], seen)
    assert third.is_fast
    assert engine.heads([third], seen)[1].tolist() == [third.number]
    assert len({first.number, second.number, third.number} - {-1}) == 3
    assert (failing.number, failing.is_fast) == (-1, False)


def test_classes_of_an_outline_share_what_plugins_say() -> None:
    """So that the property is about plans that are shared."""
    seen, engine = snapshot(), Engine(numpy_kernels)
    for i in range(9):
        asked = {"cpu": f"{i + 1}", f"a.com/{i}": "1"}
        container = Container(name="c", resources=ResourceRequirements(requests=asked))
        meta = ObjectMeta(name=f"p{i}", uid=f"u{i}", labels={"number": str(i)})
        plan_of(engine, Pod(meta, PodSpec(containers=(container,))), FRAMEWORKS[0], seen)
    assert engine._planner is not None
    (shared,) = engine._planner._outlines.values()
    assert len(shared.forms) == 1


def defaults_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which container requests no cpu does not matter."""
    right = OutlinePlan.form

    def form(self: OutlinePlan, one: Any, requests: dict[str, int]) -> object:
        found = right(self, one, requests)
        return found if len(one.pod.spec.containers) == 1 else found[0]  # type: ignore[index]

    monkeypatch.setattr(OutlinePlan, "form", form)


def labels_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins that read labels are not asked again."""
    monkeypatch.setattr(OutlinePlan, "applies_to", lambda self, one, ask: True)


def one_answer_for_all_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins that read no requests are asked once for a spec, whatever the labels."""
    right = OutlinePlan.applies_to

    def applies_to(self: OutlinePlan, one: EnginePodClass, ask: Any) -> bool:
        return bool(self._applies) or right(self, one, ask)

    monkeypatch.setattr(OutlinePlan, "applies_to", applies_to)


def zeros_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for nothing is written as one for something."""
    monkeypatch.setattr(plans, "shared_requests", lambda one: plain_requests(one.pod))


def labels_do_not_add_to_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of classes that are planned together, terms of others count the last one."""

    def write(self: Planner) -> None:
        for one in self._rows.write()[-1:]:
            self._count_labels(one)

    monkeypatch.setattr(Planner, "write", write)


def rows_of_one_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several rare resources the rows of the first are named."""
    right = OutlineRows.write_few

    def write_few(self: OutlineRows, params: Any, items: Any) -> None:
        right(self, params, items[:, :1])

    monkeypatch.setattr(OutlineRows, "write_few", write_few)


def amounts_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes of a form that are planned together request what the first of them does."""
    right = OutlineRows.add

    def add(self: OutlineRows, plan: Any, one: EnginePodClass, requests: dict[str, int]) -> None:
        known = self._rows.get(id(plan))
        right(self, plan, one, known[2][0] if known else requests)

    monkeypatch.setattr(OutlineRows, "add", add)


def ignored_resources_are_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not matter which resources plugins treat alike."""
    monkeypatch.setattr(OutlinePlan, "form", lambda self, one, requests: len(requests))


def specs_of(*asked: dict[str, str]) -> PodSpec:
    return PodSpec(
        containers=tuple(
            Container(name=f"c{i}", resources=ResourceRequirements(requests=one))
            for i, one in enumerate(asked)
        )
    )


ONE_CPU, WEB = {"cpu": "1"}, {"app": "web"}
WRONG: dict[Callable[[pytest.MonkeyPatch], None], tuple[int, list[tuple[PodSpec, Any]]]] = {
    defaults_do_not_count: (
        0,
        [(specs_of(*some), {}) for some in ([ONE_CPU, {}], [{"cpu": "2"}, {}], [ONE_CPU, ONE_CPU])],
    ),
    labels_do_not_count: (
        0,
        [(specs_of(ONE_CPU), {}), (specs_of({"cpu": "2"}), {"app": "web"})],
    ),
    one_answer_for_all_labels: (
        0,
        [(specs_of(ONE_CPU), {}), (specs_of({"cpu": "2"}), {}), (specs_of({"cpu": "3"}), WEB)],
    ),
    zeros_count: (0, [(specs_of({"cpu": cpu}), {}) for cpu in ("1", "2", "0")]),
    ignored_resources_are_like_others: (
        1,
        [(specs_of({name: "1"}), {}) for name in ("a.com/y", "c.com/y", "a.com/x")],
    ),
}
"""With the number of the framework, and pods with which each was found."""


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_sharing_is_noticed(
    wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    number, known = WRONG[wrong]
    same_plans(FRAMEWORKS[number], known)
    wrong(monkeypatch)
    frameworks = st.sampled_from(FRAMEWORKS)
    assert_caught(same_plans, frameworks, pods, known=(FRAMEWORKS[number], known))


WRONG_TOGETHER: dict[Callable[[pytest.MonkeyPatch], None], list[tuple[PodSpec, dict[str, str]]]] = {
    labels_do_not_add_to_terms: [
        (specs_of(ONE_CPU), {}),
        (specs_of({"cpu": "2"}), {}),
        (replace(specs_of({"cpu": "3"}), **SPREAD), {}),
        (specs_of({"cpu": "4"}), {"app": "db"}),
        (specs_of({"cpu": "5"}), {}),
    ],
    amounts_of_the_first: [(specs_of({"cpu": f"{i}"}), {}) for i in range(1, 5)],
}


@pytest.mark.parametrize("wrong", WRONG_TOGETHER)
def test_wrong_plans_of_several_classes_are_noticed(
    wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = WRONG_TOGETHER[wrong]
    same_together(FRAMEWORKS[0], known)
    wrong(monkeypatch)
    frameworks = st.sampled_from(FRAMEWORKS)
    assert_caught(same_together, frameworks, some_pods, known=(FRAMEWORKS[0], known))


# Rows that offer a resource.


def few_rows(made: list[tuple[PodSpec, dict[str, str]]]) -> None:
    """A plan names the rows that offer the rarest of the resources that a pod requests."""
    seen, engine = snapshot(), Engine(numpy_kernels)
    nodes = seen.nodes
    found = [engine.class_of(pod, FRAMEWORKS[0]) for pod in pods_of(made)]
    classes = [one for one in found if one is not None]
    engine.heads(classes, seen)
    for one in classes:
        if one.number < 0:
            continue
        assert engine._class_arrays is not None
        params = engine._class_arrays.classes[one.number]
        asked = [n for n, amount in one.footprint.requested.items() if amount and "/" in n]
        offering = [np.flatnonzero(nodes.allocatable(name)).tolist() for name in asked]
        rarest = min(offering, key=len, default=[])
        named = params[at.FEW : at.FEW + params[at.N_FEW]].tolist()
        assert named == (rarest if len(rarest) <= at.FEW_MAX else [])


rare_pods = st.lists(
    st.lists(st.tuples(st.sampled_from(RARE), st.just("1")), min_size=1, max_size=3).map(
        lambda asked: (specs_of(dict(asked)), {})
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(60))
@given(rare_pods)
def test_few_rows_are_those_of_the_rarest_resource(
    made: list[tuple[PodSpec, dict[str, str]]],
) -> None:
    few_rows(made)


def test_wrong_rows_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows_of_one_resource(monkeypatch)
    assert_caught(few_rows, rare_pods)
