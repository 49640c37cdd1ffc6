"""A plan made from that of another class of the outline is the plan that the class has alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns.engine import arrays as at
from stowplan.columns.engine import numpy_kernels
from stowplan.columns.nodetable import table_of
from stowplan.cycle.engine import Engine, plans
from stowplan.cycle.engine.outline_plans import OutlinePlan
from stowplan.framework import Framework, ObjectStore, Snapshot
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Container, Pod, PodSpec, ResourceRequirements, Toleration
from stowplan.objects.pod_requests import plain_requests
from stowplan.objects.workload import Service, ServiceSpec
from stowplan.testing import node
from tests.cycle.engine_and_walk import framework_for
from tests.property.wrong import assert_caught
from tests.soak import examples

RESOURCES = ("cpu", "memory", "ephemeral-storage", "a.com/x", "a.com/y", "b.com/z", "unknown")
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
    _, heads = engine.heads([one], seen)
    if heads[0] < 0:
        return None
    arrays = engine._class_arrays
    assert arrays is not None
    params = arrays.classes[heads[0]].copy()
    static = params[at.STATIC]
    keys = arrays._layout_list[params[at.LAYOUT]].keys
    params[[at.STATIC, at.LAYOUT, at.FIRST_TERM]] = 0
    shared = arrays._passes[static], arrays._points[static], arrays._raw[static]
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


def zeros_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for nothing is written as one for something."""
    monkeypatch.setattr(plans, "shared_requests", lambda one: plain_requests(one.pod))


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


ONE_CPU = {"cpu": "1"}
WRONG: dict[Callable[[pytest.MonkeyPatch], None], tuple[int, list[tuple[PodSpec, Any]]]] = {
    defaults_do_not_count: (
        0,
        [(specs_of(*some), {}) for some in ([ONE_CPU, {}], [{"cpu": "2"}, {}], [ONE_CPU, ONE_CPU])],
    ),
    labels_do_not_count: (
        0,
        [(specs_of(ONE_CPU), {}), (specs_of({"cpu": "2"}), {"app": "web"})],
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
