"""Gates that are found by the outline of a new spec keep out the pods that all gates keep out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.framework import ObjectStore
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import (
    Container,
    Pod,
    PodResourceClaim,
    PodSchedulingGate,
    PodSchedulingGroup,
    PodSpec,
    ResourceRequirements,
)
from stowplan.objects.pod_templates import PodTemplates, kept_outline
from stowplan.queue import pre_enqueue
from stowplan.queue.pod_record import PodRecord
from stowplan.queue.pre_enqueue import PreEnqueueGates
from tests.cycle.engine_and_walk import framework_for
from tests.property.wrong import assert_caught
from tests.soak import examples

PARTS: list[dict[str, Any]] = [
    {},
    {},
    {"scheduling_gates": (PodSchedulingGate(name="hold"),)},
    {"resource_claims": (PodResourceClaim(name="card", resource_claim_name="none"),)},
    {"scheduling_group": PodSchedulingGroup(pod_group_name="none")},
    {"priority": 3},
]
FRAMEWORK = framework_for()
FRAMEWORK.shared.object_store = ObjectStore()

random_pods = st.lists(
    st.tuples(st.integers(0, len(PARTS) - 1), st.sampled_from(["1", "2", "3"])),
    min_size=2,
    max_size=12,
)


def pod_of(i: int, part: int, cpu: str) -> Pod:
    container = Container(name="c", resources=ResourceRequirements(requests={"cpu": cpu}))
    spec = PodSpec(
        containers=(container,), scheduler_name="default-scheduler", **PARTS[part]
    )  # fmt: skip
    return Pod(ObjectMeta(name=f"p{i}", namespace="default", uid=f"u{i}"), spec)


def same_gates(chosen: list[tuple[int, str]]) -> None:
    gates = PreEnqueueGates.of({"default-scheduler": FRAMEWORK})
    templates = PodTemplates()
    for i, (part, cpu) in enumerate(chosen):
        mine = PodRecord.of(templates.intern(pod_of(i, part, cpu)), 0)
        its = PodRecord.of(pod_of(i, part, cpu), 0)
        alone = PreEnqueueGates.of({"default-scheduler": FRAMEWORK})
        assert gates.concern(mine.pod) == alone.concern(its.pod)
        assert gates.admits(mine) == alone.admits(its), chosen
        assert (mine.gated_by, mine.refused_by) == (its.gated_by, its.refused_by), chosen


@settings(max_examples=examples(100))
@given(random_pods)
def test_gates_of_pods_that_come_one_after_the_other(chosen: list[tuple[int, str]]) -> None:
    same_gates(chosen)


def test_plugins_are_asked_once_for_an_outline() -> None:
    """So that the property is about gates that are shared."""
    n_asked = 0

    def applies_to(pod: Pod) -> bool:
        nonlocal n_asked
        n_asked += 1
        return False

    for by_outline, wanted in (("Lock",), 1), ((), 5):
        n_asked = 0
        gates = PreEnqueueGates(
            {"default-scheduler": [("Lock", lambda pod: pytest.fail("asked"))]},
            {"Lock": applies_to},
            by_outline=by_outline,
        )
        templates = PodTemplates()
        for i in range(5):
            one = templates.intern(pod_of(i, 0, f"{i}"))
            assert not gates.concern(one)
            # None of a profile in which other pods of the outline may have other gates.
            assert (gates.shared_outline is not None) == bool(by_outline)
            assert not gates.concern(one)
            assert gates.shared_outline in (None, kept_outline(one.spec))
        assert n_asked == wanted


def test_pods_of_another_outline_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [(0, "1"), (2, "2")]
    same_gates(known)
    monkeypatch.setattr(pre_enqueue, "kept_outline", lambda spec: b"")
    assert_caught(same_gates, random_pods, known=(known,))
