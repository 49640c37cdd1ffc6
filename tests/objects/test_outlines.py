"""Outlines: what specs say beside the resources of their containers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.objects import pod_templates
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import (
    Container,
    Pod,
    PodSchedulingGroup,
    PodSpec,
    ResourceRequirements,
    Toleration,
)
from stowplan.objects.pod_templates import OutlineReader, PodTemplates, outline_of
from tests.property.wrong import assert_caught
from tests.soak import examples

QUANTITIES = st.sampled_from(["1", 1, 1.0, "2"])
requests = st.dictionaries(st.sampled_from(["cpu", "a.com/x"]), QUANTITIES, max_size=2)
containers = st.builds(
    Container,
    name=st.sampled_from(["a", "b"]),
    image=st.sampled_from(["x", "y"]),
    resources=st.builds(ResourceRequirements, requests=requests, limits=requests),
)
some = st.lists(containers, max_size=2).map(tuple)
specs = st.builds(
    PodSpec,
    containers=some,
    init_containers=st.one_of(st.just(()), st.just(()), some),
    overhead=st.one_of(st.just({}), requests),
    resources=st.one_of(st.none(), st.builds(ResourceRequirements, requests=requests)),
    tolerations=st.sampled_from([(), (Toleration(key="gpu"),)]),
    scheduling_group=st.sampled_from([None, PodSchedulingGroup("a"), PodSchedulingGroup("b")]),
)


def read_one_by_one(many: list[PodSpec]) -> None:
    """Read after others, specs have the same outline where they have alone, and are equal where
    both parts are."""
    reader = OutlineReader()
    got, alone = [reader.outline_of(spec) for spec in many], [outline_of(spec) for spec in many]
    for i, mine in enumerate(got):
        for k, its in enumerate(got):
            assert (mine[0] == its[0]) == (alone[i][0] == alone[k][0])
            assert (mine == its) == (alone[i] == alone[k])


@settings(max_examples=examples(100))
@given(st.lists(specs, min_size=2, max_size=6))
def test_outlines_are_the_same_whatever_was_read_before(many: list[PodSpec]) -> None:
    read_one_by_one(many)


def images_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Specs with as many containers are taken for equal."""
    monkeypatch.setattr(pod_templates, "_without_resources", lambda one: Container(name=one.name))


def overhead_is_compared_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 and 1.0 are equal numbers, and quantities that are written otherwise."""

    def outline(self: OutlineReader, spec: PodSpec) -> tuple[bytes, bytes]:
        bare = pod_templates.replace(spec, containers=())
        if bare != self._latest[0]:
            self._latest = bare, outline_of(bare)[0]
        return self._latest[1], outline_of(spec)[1]

    monkeypatch.setattr(OutlineReader, "outline_of", outline)


OF_IMAGES = [PodSpec((Container("a", image=image),)) for image in ("x", "y")]
OF_OVERHEADS = [PodSpec((Container("a"),), overhead={"cpu": amount}) for amount in (1, 1.0)]
"""Specs that the wrong variants take for alike."""


@pytest.mark.parametrize(
    ("wrong", "known"),
    [(images_do_not_count, OF_IMAGES), (overhead_is_compared_by_value, OF_OVERHEADS)],
)
def test_wrong_outlines_are_noticed(
    wrong: Callable[[pytest.MonkeyPatch], None],
    known: list[PodSpec],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = outline_of
    wrong(monkeypatch)

    def check(many: list[PodSpec]) -> None:
        reader = OutlineReader()
        got = [reader.outline_of(spec) for spec in many]
        monkeypatch.undo()
        alone = [right(spec) for spec in many]
        wrong(monkeypatch)
        assert [a == b for a in got for b in got] == [a == b for a in alone for b in alone]

    assert_caught(check, st.lists(specs, min_size=2, max_size=6), known=(known,))


def test_a_template_is_prepared_once_and_only_while_it_is_pending() -> None:
    seen: list[str] = []
    templates = PodTemplates(prepare=lambda pod: seen.append(pod.name))
    for name, node in (("a", ""), ("b", ""), ("c", "n1")):
        spec = PodSpec(containers=(Container(image="x"),), node_name=node)
        templates.intern(Pod(ObjectMeta(name=name), spec))
    templates.intern(Pod(ObjectMeta(name="d"), PodSpec(node_name="n1")))
    assert seen == ["a"]


def test_a_template_with_a_request_that_cannot_be_read_is_known_all_the_same() -> None:
    asked = ResourceRequirements(requests={"cpu": "much"})
    spec = PodSpec(containers=(Container(resources=asked),))
    templates = PodTemplates()
    first, second = (templates.intern(Pod(ObjectMeta(name=name), spec)) for name in "ab")
    assert first.spec is second.spec
