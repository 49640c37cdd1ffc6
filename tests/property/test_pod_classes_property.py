"""Pods that are looked up together are of the classes of those that are looked up one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.cycle.engine import classes
from stowplan.cycle.engine.classes import PodClassIndex, PodOutline
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from stowplan.objects.pod_templates import PodTemplates, take_resources
from stowplan.objects.volume import PVCVolumeSource, Volume
from tests.cycle.engine_and_walk import framework_for
from tests.property.wrong import assert_caught
from tests.soak import examples

FRAMEWORKS = {name: framework_for() for name in ("default-scheduler", "other")}

PENDING, NOMINATED = PodStatus(phase="Pending"), PodStatus(nominated_node_name="n1")
CLAIM = Volume(name="v", persistent_volume_claim=PVCVolumeSource(claim_name="c"))
PLAIN: dict[str, Any] = {
    "cpu": "1",
    "labels": {},
    "namespace": "default",
    "owners": (),
    "status": PENDING,
    "spec": {},
}


def pod_of(i: int, traits: dict[str, Any]) -> Pod:
    """A pod as a decoder makes it: every part is an object of its own."""
    own = PLAIN | traits
    container = Container(name="c", resources=ResourceRequirements(requests={"cpu": own["cpu"]}))
    meta = ObjectMeta(
        name=f"p{i}",
        uid=f"u{i}",
        namespace=own["namespace"],
        labels=dict(own["labels"]),
        owner_references=own["owners"],
    )
    spec = PodSpec(containers=(container,), scheduler_name="default-scheduler")
    return Pod(meta, replace(spec, **own["spec"]), replace(own["status"]))


traits = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["1", "2", "1000m"]),
        "labels": st.sampled_from([{}, {"a": "b"}, {"a": "b", "c": "d"}, {"c": "d", "a": "b"}]),
        "namespace": st.sampled_from(["default", "prod"]),
        "owners": st.sampled_from([(), (OwnerReference(kind="Job", name="j"),)]),
        "status": st.sampled_from([PENDING, PENDING, PENDING, NOMINATED]),
        "spec": st.sampled_from(
            [{}, {}, {"priority": 3}, {"scheduler_name": "other"}, {"volumes": (CLAIM,)}]
        ),
    },
)
many = st.lists(traits, min_size=2, max_size=12)


def alike(found: list[Any]) -> list[int]:
    """For each class the place of the first that is the same."""
    return [[id(one) for one in found].index(id(other)) for other in found]


def same_classes(chosen: list[dict[str, Any]], n_before: int = 0) -> None:
    """n_before: as many of the first pods are looked up in a call of their own."""
    templates, together, alone = PodTemplates(), PodClassIndex(), PodClassIndex()
    interned = [templates.intern(pod_of(i, own)) for i, own in enumerate(chosen)]
    found = together.find_all(interned[:n_before], FRAMEWORKS)
    if len(found) == n_before:
        found += together.find_all(interned[n_before:], FRAMEWORKS)
    wanted = []
    for i, own in enumerate(chosen):
        one = pod_of(i, own)
        framework = FRAMEWORKS[one.spec.scheduler_name]
        its = alone.find(one, framework, with_devices=True)
        if its is None:
            break
        wanted.append(its)
    assert alike(found) == alike(wanted), chosen
    for mine, its, pod in zip(found, wanted, interned, strict=False):
        assert mine.framework is its.framework, chosen
        assert (mine.footprint, mine.claims) == (its.footprint, its.claims), chosen
        assert (mine.labels, mine.pod.namespace) == (pod.labels, pod.namespace), chosen
    # Each pod is found again, in any order.
    again = [together.find_all([one], FRAMEWORKS) for one in reversed(interned[: len(found)])]
    assert [one for some in reversed(again) for one in some] == found
    assert together.all == [*dict.fromkeys(found)]


@settings(max_examples=examples(150))
@given(many, st.integers(0, 4))
def test_classes_of_pods_that_come_together(chosen: list[dict[str, Any]], n_before: int) -> None:
    same_classes(chosen, n_before)


def test_pods_that_come_together_are_found_by_their_outline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that the property is about the short way."""
    n_short = 0

    def counted(spec: PodSpec, content: bytes) -> bytes | None:
        nonlocal n_short
        found = take_resources(spec, content)
        n_short += found is not None
        return found

    monkeypatch.setattr(classes, "take_resources", counted)
    same_classes([{"cpu": f"{i}m", "labels": {"i": f"{i}"}} for i in range(1, 9)])
    assert n_short == 7


def labels_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pods of a spec's outline have what the pod before has in common with others."""
    monkeypatch.setattr(PodOutline, "holds", lambda self, pod: True)


def specs_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spec that a decoder has read has the outline of the one before."""

    def taken(spec: PodSpec, content: bytes) -> bytes | None:
        kept = spec.__dict__.pop("outline", None)
        return None if kept is None else kept[1]

    monkeypatch.setattr(classes, "take_resources", taken)


def look_up_as_the_first(pods: Any, start: int, **parts: str) -> list[Pod]:
    """The pods, of which those from `start` on have these parts of the first of them."""
    first = pods[start]
    fields = {part: getattr(first.metadata, name) for part, name in parts.items()}
    return [*pods[:start], *(replace(p, metadata=replace(p.metadata, **fields))
                             for p in pods[start:])]  # fmt: skip


def only_the_first_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that follow each other have the labels of the first."""
    right = PodClassIndex._find_alike

    def find(self: PodClassIndex, pods: Any, start: int, outline: PodOutline) -> Any:
        return right(self, look_up_as_the_first(pods, start, labels="labels"), start, outline)

    monkeypatch.setattr(PodClassIndex, "_find_alike", find)


def statuses_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that is nominated has a class, if its spec is like that of the pods before."""
    right = PodClassIndex._find_alike

    def find(self: PodClassIndex, pods: Any, start: int, outline: PodOutline) -> Any:
        alike = [*pods[:start], *(replace(p, status=pods[start].status) for p in pods[start:])]
        return right(self, alike, start, outline)

    monkeypatch.setattr(PodClassIndex, "_find_alike", find)


def profiles_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Specs with another outline are looked up with that of the pod before."""

    def taken(spec: PodSpec, content: bytes) -> bytes | None:
        kept = spec.__dict__.pop("outline", None)
        return None if kept is None or spec.priority else kept[1]

    monkeypatch.setattr(classes, "take_resources", taken)


def keys_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outline is not part of the key of a class."""
    right = PodOutline.__init__

    def init(self: PodOutline, *given: Any) -> None:
        right(self, *given)
        self.prefix = self.prefix[:8]

    monkeypatch.setattr(PodOutline, "__init__", init)


WRONG: dict[Callable[[pytest.MonkeyPatch], None], list[dict[str, Any]]] = {
    labels_do_not_count: [{}, {"cpu": "2", "labels": {"a": "b"}}],
    keys_run_together: [{}, {"labels": {"a": "b"}}],
    only_the_first_is_compared: [{}, {"cpu": "2"}, {"cpu": "1000m", "labels": {"a": "b"}}],
    statuses_do_not_count: [{}, {"cpu": "2"}, {"cpu": "1000m", "status": NOMINATED}],
    profiles_do_not_count: [
        {},
        {"cpu": "2"},
        {"cpu": "1000m", "spec": {"scheduler_name": "other"}},
    ],
    specs_do_not_count: [{}, {"cpu": "2"}, {"spec": {"priority": 3}}],
}
"""With pods with which each was found."""


@pytest.mark.parametrize("wrong", WRONG)
def test_pods_that_are_taken_for_others_are_noticed(
    wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = WRONG[wrong]
    same_classes(known)
    wrong(monkeypatch)
    assert_caught(same_classes, many, known=(known,))
