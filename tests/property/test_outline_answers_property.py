"""What a plugin answers for all pods of an outline at once is what it answers for each of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns.engine import numpy_kernels
from stowplan.columns.nodetable import table_of
from stowplan.cycle.engine import Engine
from stowplan.cycle.engine.outline_plans import ResourceKinds
from stowplan.cycle.engine.plans import Planner
from stowplan.framework import ObjectStore, Snapshot
from stowplan.objects.devices.device import DeviceClass, DeviceClassSpec
from stowplan.objects.meta import Object, ObjectMeta
from stowplan.objects.pod import Container, Pod, PodSpec, ResourceRequirements
from stowplan.objects.workload import Service, ServiceSpec
from stowplan.plugins.devices.dynamic_resources import DynamicResources
from stowplan.plugins.pod_affinity.inter_pod_affinity import InterPodAffinity
from stowplan.plugins.topology_spread.pod_topology_spread import PodTopologySpread
from stowplan.testing import affinity, node, pod, term
from tests.cycle.engine_and_walk import framework_for
from tests.property.test_outline_plans_property import plan_of, written
from tests.property.wrong import assert_caught
from tests.soak import examples

FRAMEWORK = framework_for()
ZONE = "topology.kubernetes.io/zone"
WEB, DEVICE = {"app": "web"}, "a.com/x"

Asked = tuple[str, dict[str, str]]
"""The resource that a pod requests, and its labels."""


def cluster(*, service: bool, device_class: bool, loner: bool) -> Snapshot:
    """A cluster in which labels and names of resources count, or do not. loner: a pod that keeps
    others away."""
    objects: list[Object] = []
    if service:
        meta = ObjectMeta(name="web", namespace="default")
        objects.append(Service(metadata=meta, spec=ServiceSpec(selector=WEB)))
    if device_class:
        spec = DeviceClassSpec(extended_resource_name=DEVICE)
        objects.append(DeviceClass(metadata=ObjectMeta(name="cards"), spec=spec))
    apart = affinity(apart=[term("app=web", ZONE)])
    bound = [pod("loner", on="n1", affinity=apart)] if loner else []
    nodes = [node(f"n{i}", zone=f"z{i}", resources={DEVICE: "4", "b.com/y": "4"}) for i in range(4)]
    store = ObjectStore(objects)
    FRAMEWORK.shared.object_store = store
    return Snapshot(table_of(nodes, bound), store)


clusters = st.fixed_dictionaries(
    {name: st.booleans() for name in ("service", "device_class", "loner")}
)
asked = st.lists(
    st.tuples(st.sampled_from(["cpu", DEVICE, "b.com/y"]), st.sampled_from([{}, WEB])),
    min_size=2,
    max_size=8,
)


def same_plans(what: dict[str, bool], pods: list[Asked]) -> None:
    seen, together = cluster(**what), Engine(numpy_kernels)
    for i, (resource, labels) in enumerate(pods):
        requests = ResourceRequirements(requests={resource: f"{i + 1}"})
        spec = PodSpec(containers=(Container(name="c", resources=requests),))
        one = Pod(ObjectMeta(name=f"p{i}", namespace="default", uid=f"u{i}", labels=labels), spec)
        wanted: Any = None
        for engine, of_first in ((together, {}), (Engine(numpy_kernels), labels)):
            # What kinds of objects are read is known after the first plan. It is one of another
            # pod of the outline, or of one that is alike, which shares nothing with others.
            meta = ObjectMeta(name="first", namespace="default", uid="first", labels=of_first)
            plan_of(engine, Pod(meta, spec), FRAMEWORK, seen)
            got, wanted = wanted, plan_of(engine, one, FRAMEWORK, seen)
        assert (got is None) == (wanted is None), one
        for mine, its in zip(got or (), wanted or (), strict=True):
            assert np.array_equal(mine, its), one


@settings(max_examples=examples(60))
@given(clusters, asked)
def test_a_plan_is_the_same_beside_others_of_its_outline(
    what: dict[str, bool], pods: list[Asked]
) -> None:
    same_plans(what, pods)


def test_plugins_are_asked_once_where_nothing_can_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the property is about answers that are shared."""
    n_asked = {InterPodAffinity: 0, PodTopologySpread: 0, DynamicResources: 0}
    for plugin in n_asked:
        name = "applies_to" if plugin is DynamicResources else "kernel_terms"
        right: Any = getattr(plugin, name)

        @functools.wraps(right)
        def counted(self: Any, *given: Any, right: Any = right, **named: Any) -> Any:
            n_asked[type(self)] += 1
            return right(self, *given, **named)

        monkeypatch.setattr(plugin, name, counted)
    found = {}
    for has_any in (False, True):
        n_asked.update(dict.fromkeys(n_asked, 0))
        engine = Engine(numpy_kernels)
        seen = cluster(service=has_any, device_class=has_any, loner=has_any)
        framework = framework_for()
        framework.shared.object_store = seen.object_store
        for i in range(20):
            labels = {"number": f"{i}"}
            one = pod(f"p{i}", uid=f"u{i}", cpu=f"{i + 1}m", labels=labels)
            found_class = engine.class_of(one, framework)
            assert found_class is not None
            engine.heads([found_class], seen)
        found[has_any] = dict(n_asked)
    assert max(found[False].values()) < 6
    assert min(found[True].values()) >= 20


def services_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels count for constraints of the pod's own alone."""
    monkeypatch.setattr(
        PodTopologySpread,
        "answers_by_outline",
        lambda self, pod: not pod.spec.topology_spread_constraints,
    )


def pods_on_nodes_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels count for terms of the pod's own alone."""
    monkeypatch.setattr(
        InterPodAffinity, "answers_by_outline", lambda self, pod: pod.spec.affinity is None
    )


def device_classes_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices are for pods with claims alone."""
    monkeypatch.setattr(
        DynamicResources, "answers_by_outline", lambda self, pod: not pod.spec.resource_claims
    )


NOTHING = dict.fromkeys(("service", "device_class", "loner"), False)
WRONG: dict[Callable[[pytest.MonkeyPatch], None], tuple[dict[str, bool], list[Asked]]] = {
    services_do_not_count: ({**NOTHING, "service": True}, [("cpu", {}), ("cpu", WEB)]),
    pods_on_nodes_do_not_count: ({**NOTHING, "loner": True}, [("cpu", {}), ("cpu", WEB)]),
    device_classes_do_not_count: (
        {**NOTHING, "device_class": True},
        [("b.com/y", {}), (DEVICE, {})],
    ),
}
"""With a cluster and pods with which each was found."""


@pytest.mark.parametrize("wrong", WRONG)
def test_answers_that_differ_within_an_outline_are_noticed(
    wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = WRONG[wrong]
    same_plans(*known)
    wrong(monkeypatch)
    # The methods of plugins are looked up when their framework is made.
    monkeypatch.setitem(globals(), "FRAMEWORK", framework_for())
    assert_caught(same_plans, clusters, asked, known=known)


# Classes that are planned in one step.

amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", DEVICE, "b.com/y"]),
    st.sampled_from(["0", "1", "2", "3"]),
    max_size=3,
)
some_pods = st.lists(
    st.tuples(amounts, st.sampled_from([{}, WEB]), st.sampled_from([0, 0, 0, 5])),
    min_size=2,
    max_size=12,
)


def same_together(pods: list[tuple[dict[str, str], dict[str, str], int]]) -> None:
    """Classes of a cluster in which nothing asks for labels have the plans, planned together, that
    they have alone."""
    seen, together = cluster(**NOTHING), Engine(numpy_kernels)
    found = []
    for i, (requests, labels, priority) in enumerate(pods):
        container = Container(name="c", resources=ResourceRequirements(requests=requests))
        spec = PodSpec(containers=(container,), priority=priority)
        meta = ObjectMeta(name=f"p{i}", namespace="default", uid=f"u{i}", labels=labels)
        found.append(Pod(meta, spec))
    first = Pod(ObjectMeta(name="first", uid="first"), PodSpec())
    plan_of(together, first, FRAMEWORK, seen)
    classes = [together.class_of(one, FRAMEWORK) for one in found]
    together.heads([one for one in classes if one is not None], seen)
    for one, its_class in zip(found, classes, strict=True):
        assert its_class is not None
        alone = Engine(numpy_kernels)
        plan_of(alone, first, FRAMEWORK, seen)
        got, wanted = written(together, its_class), plan_of(alone, one, FRAMEWORK, seen)
        assert (got is None) == (wanted is None), one
        for mine, its in zip(got or (), wanted or (), strict=True):
            assert np.array_equal(mine, its), one


@settings(max_examples=examples(60))
@given(some_pods)
def test_classes_planned_in_one_step_have_the_plans_that_they_have_alone(
    pods: list[tuple[dict[str, str], dict[str, str], int]],
) -> None:
    same_together(pods)


def test_classes_of_an_outline_are_planned_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the property is about plans made so."""
    n_planned = 0
    right = Planner.plan_like_latest

    def counted(self: Planner, classes: Any, start: int) -> int:
        nonlocal n_planned
        end = right(self, classes, start)
        n_planned += end - start
        return end

    monkeypatch.setattr(Planner, "plan_like_latest", counted)
    same_together([({"cpu": f"{i}"}, {"number": f"{i}"}, 0) for i in range(1, 9)])
    assert n_planned >= 6


# Classes that have been planned before.


def same_again(what: dict[str, bool], pods: list[Asked]) -> None:
    """Classes that were planned in another cluster, one after the other, have the plans, planned
    together once nothing asks for labels, of classes that are new."""
    # Terms of pods on nodes are remembered.
    before, after = cluster(**{**what, "loner": False}), cluster(**NOTHING)
    engines = Engine(numpy_kernels), Engine(numpy_kernels)
    first = Pod(ObjectMeta(name="first", uid="first"), PodSpec())
    found: list[list[Any]] = []
    for engine, was_planned in zip(engines, (True, False), strict=True):
        classes = []
        for i, (resource, labels) in enumerate(pods):
            requests = ResourceRequirements(requests={resource: f"{i + 1}"})
            spec = PodSpec(containers=(Container(name="c", resources=requests),))
            meta = ObjectMeta(name=f"p{i}", namespace="default", uid=f"u{i}", labels=labels)
            classes.append(engine.class_of(Pod(meta, spec), FRAMEWORK))
        if was_planned:
            FRAMEWORK.shared.object_store = before.object_store
            engine.heads(classes, before)
            FRAMEWORK.shared.object_store = after.object_store
        plan_of(engine, first, FRAMEWORK, after)
        engine.heads(classes, after)
        found.append(classes)
    for mine, other in zip(*found, strict=True):
        got, wanted = written(engines[0], mine), written(engines[1], other)
        assert (got is None) == (wanted is None), pods
        for a, b in zip(got or (), wanted or (), strict=True):
            assert np.array_equal(a, b), pods
        for part in ("terms", "run_limits", "card_filter", "counted_at", "is_fast"):
            assert getattr(mine, part) == getattr(other, part), part


@settings(max_examples=examples(40))
@given(clusters, asked)
def test_classes_that_were_planned_before_have_the_plans_of_new_ones(
    what: dict[str, bool], pods: list[Asked]
) -> None:
    same_again(what, pods)


def test_what_is_left_of_an_earlier_plan_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned together, a class keeps its terms, as if each class were new."""
    known = ({**NOTHING, "service": True}, [("cpu", {}), ("cpu", WEB), ("cpu", WEB)])
    same_again(*known)
    right = Planner.plan_like_latest

    def kept(self: Planner, classes: Any, start: int) -> int:
        terms = [one.terms for one in classes]
        end = right(self, classes, start)
        for one, its in zip(classes[start:end], terms[start:end], strict=True):
            one.terms = its
        return end

    monkeypatch.setattr(Planner, "plan_like_latest", kept)
    assert_caught(same_again, clusters, asked, known=known)


def kinds_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """All resources are of one kind."""

    def learn(self: ResourceKinds, requests: Any, nodes: Any) -> None:
        self.numbers.update(dict.fromkeys(requests, 0))

    monkeypatch.setattr(ResourceKinds, "learn", learn)


@pytest.mark.parametrize("wrong", [kinds_do_not_count])
def test_plans_of_another_form_are_noticed(
    wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [({"cpu": "1"}, {}, 0), ({"cpu": "2"}, {}, 0), ({DEVICE: "1"}, {}, 0)]
    same_together(known)
    wrong(monkeypatch)
    assert_caught(same_together, some_pods, known=(known,))
