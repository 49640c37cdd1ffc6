"""Changes of claims and devices on generated clusters: each lets the pod run, and no cheaper one of
its kind does. The changes are applied to the manifests by code of the tests, and so are the cheaper
ones, all of which it enumerates."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stowplan.cycle.change import PodChanges
from stowplan.forecast.explain import explain_changes
from stowplan.insight.changes import claim_problems, device_edits
from stowplan.insight.changes.claim_problems import ClaimProblems, NodeDeviceEdits
from stowplan.plugins.devices.claim_search import ClaimSearch
from tests.insight.claim_manifests import (
    CLASS,
    DRIVER,
    POD,
    Tree,
    can_run,
    card,
    claim,
    held,
    node,
    pod,
    read,
    request,
    selected_by,
    slices,
)
from tests.insight.json_patch import applied
from tests.insight.test_claim_changes import CASES
from tests.property.wrong import assert_caught
from tests.soak import examples

TAINT = {"key": "old", "value": "yes", "effect": "NoSchedule"}
SELECTORS = (
    f'device.attributes["{DRIVER}"].model == "A100"',
    f'device.capacity["{DRIVER}"].memory.compareTo(quantity("60Gi")) >= 0',
)
AMOUNTS = (20, 40, 80)
COUNTER = "slices"


# Clusters.


@st.composite
def devices(draw: st.DrawFn, index: int, *, parted: bool) -> Tree:
    more: Tree = {}
    if draw(st.integers(0, 2)) == 0:
        more["taints"] = [TAINT]
    if draw(st.integers(0, 2)) == 0:
        more["allowMultipleAllocations"] = True
    if parted:
        amount = {COUNTER: {"value": str(draw(st.integers(1, 2)))}}
        more["consumesCounters"] = [{"counterSet": "card", "counters": amount}]
    memory, model = draw(st.sampled_from(AMOUNTS)), draw(st.sampled_from(["H100", "A100"]))
    return card(f"g{index}", f"{memory}Gi", model, **more)


@st.composite
def requests(draw: st.DrawFn, name: str) -> Tree:
    asked = draw(st.fixed_dictionaries({"count": st.integers(1, 3)}))
    if draw(st.integers(0, 2)) == 0:
        some = st.lists(st.sampled_from(SELECTORS), min_size=1, max_size=2, unique=True)
        asked["selectors"] = selected_by(*draw(some))
    if draw(st.integers(0, 3)) == 0:
        asked["tolerations"] = [{"key": "other", "operator": "Exists"}]
    if draw(st.integers(0, 2)) == 0:
        asked["capacity"] = {"requests": {"memory": draw(st.sampled_from(["30Gi", "100Gi"]))}}
    if draw(st.integers(0, 4)) == 0:
        sub = {"deviceClassName": "gpu", "allocationMode": "ExactCount", **asked}
        easy = {"name": "b", "deviceClassName": "gpu", "count": 4}
        return {"name": name, "firstAvailable": [{"name": "a", **sub}, easy]}
    return request(name, **asked)


@st.composite
def clusters(draw: st.DrawFn) -> list[Tree]:
    found: list[Tree] = [CLASS]
    for number in range(draw(st.integers(1, 2))):
        name = f"n{number}"
        found.append(node(name))
        parted = draw(st.integers(0, 2)) == 0
        cards = [draw(devices(i, parted=parted)) for i in range(draw(st.integers(1, 3)))]
        counters = {COUNTER: {"value": str(draw(st.integers(1, 3)))}}
        sets = ({"name": "card", "counters": counters},) if parted else ()
        found += slices(name, *cards, counters=sets)
        if draw(st.integers(0, 2)) == 0 and not parted:
            is_shared = cards[0].get("allowMultipleAllocations")
            found.append(held(f"of-{name}", name, "g0", memory="10Gi" if is_shared else ""))
    asked = [draw(requests(f"r{i}")) for i in range(draw(st.sampled_from([1, 1, 2])))]
    more: Tree = {}
    if draw(st.integers(0, 3)) == 0:
        more["constraints"] = [{"matchAttribute": f"{DRIVER}/model"}]
    return [*found, claim(*asked, **more), pod()]


# Every change of the kinds that are searched, by the manifests.

Variant = tuple[str, int, list[Tree]]


def variants(manifests: list[Tree]) -> Iterator[Variant]:
    for at, one in enumerate(manifests):
        if one["kind"] == "ResourceClaim" and one["metadata"]["name"] == "c":
            changes = _of_claim(one["spec"]["devices"])
        elif one["kind"] == "ResourceSlice":
            changes = _of_slice(one["spec"])
        else:
            continue
        for kind, cost, change in changes:
            changed = copy.deepcopy(manifests)
            change(changed[at]["spec"])
            yield kind, cost, changed


Edit = tuple[str, int, Callable[[Tree], Any]]


def _of_claim(devices: Tree) -> Iterator[Edit]:
    for at, one in enumerate(devices["requests"]):
        paths = [("exactly",)] if "exactly" in one else [("firstAvailable", i) for i in (0, 1)]
        for path in paths:
            for kind, cost, change in _of_request(_inside(one, path)):

                def on_spec(
                    spec: Tree, at: int = at, path: Any = path, change: Any = change
                ) -> None:
                    change(_inside(spec["devices"]["requests"][at], path))

                yield kind, cost, on_spec
    for at in range(len(devices.get("constraints", ()))):
        yield "device-constraint", 20, lambda spec, at=at: spec["devices"]["constraints"].pop(at)


def _inside(tree: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        tree = tree[part]
    return tree


def _percent(asked: int, value: int) -> int:
    return -(-100 * (asked - value) // asked)


def _of_request(asked: Tree) -> Iterator[Edit]:
    count = asked.get("count", 1)
    for n in range(1, count):
        yield "device-count", _percent(count, n), lambda one, n=n: one.update(count=n)
    for at in range(len(asked.get("selectors", ()))):
        yield "device-selector", 20, lambda one, at=at: one["selectors"].pop(at)
    added = [{"key": "old", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}]
    yield (
        "device-toleration",
        10,
        lambda one: one.update(tolerations=one.get("tolerations", []) + added),
    )
    if "capacity" in asked:
        need = int(asked["capacity"]["requests"]["memory"].removesuffix("Gi"))
        for gi in range(1, need):
            yield (
                "device-capacity",
                _percent(need, gi),
                lambda one, gi=gi: one["capacity"]["requests"].update(memory=f"{gi}Gi"),
            )


def _of_slice(spec: Tree) -> Iterator[Edit]:
    devices = spec.get("devices", [])
    tainted = [at for at, one in enumerate(devices) if one.get("taints")]
    for size in range(1, len(tainted) + 1):
        for some in combinations(tainted, size):
            yield (
                "device-taint",
                20 * size,
                lambda spec, some=some: [spec["devices"][at].pop("taints") for at in some],
            )
    for at in range(len(devices)):
        for n in range(1, 9):
            yield "add-device", 500 * n, lambda spec, at=at, n=n: _add(spec["devices"], at, n)
    for counters in spec.get("sharedCounters", ()):
        value = int(counters["counters"][COUNTER]["value"])
        for more in range(1, 9):
            yield (
                "counter",
                min(-(-100 * more // value), 900),
                lambda spec, to=value + more: spec["sharedCounters"][0]["counters"].update(
                    {COUNTER: {"value": str(to)}}
                ),
            )


def _add(devices: list[Tree], at: int, n: int) -> None:
    devices += [devices[at] | {"name": f"more-{i}"} for i in range(n)]


# Properties.


def check(manifests: list[Tree], folder: Path) -> PodChanges:
    found = explain_changes(POD, read(manifests, folder))
    if can_run(manifests, folder):
        assert not found.changes
        return found
    costs = {change.kind: change.cost for change in found.changes}
    for change in found.changes:
        after = applied(manifests, msgspec.to_builtins(change.objects))
        assert can_run(after, folder), change.text
    least: dict[str, int] = {}
    for kind, cost, changed in sorted(variants(manifests), key=lambda one: one[1]):
        if kind not in least and can_run(changed, folder):
            least[kind] = cost
    single = {kind: cost for kind, cost in costs.items() if kind not in ("add-node", "combined")}
    assert single == least
    return found


@given(manifests=clusters())
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_each_change_lets_the_pod_run_and_none_of_its_kind_is_cheaper(
    manifests: list[Tree], tmp_path: Path
) -> None:
    check(manifests, tmp_path)


def what_is_tried_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search on the node stands for the decision, and it always succeeds."""
    monkeypatch.setattr(ClaimSearch, "would_serve", lambda *given: True)


def counts_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are lowered from one up."""

    def from_one(place: Any) -> Iterator[Any]:
        for count in range(1, place.asked.count):
            yield device_edits.lower_count(place, count)

    monkeypatch.setattr(device_edits, "lower_counts", from_one)


def what_others_have_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Amounts are those of devices that are not in use."""
    monkeypatch.setattr(claim_problems, "_allowed_amounts", lambda left, device, name: [1])


def all_taints_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A taint is removed from every device that has it."""
    monkeypatch.setattr(claim_problems, "_sets_of", lambda places: [places])


def counters_are_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters stay as they are."""
    monkeypatch.setattr(NodeDeviceEdits, "_raise_counters", lambda *given: iter(()))


def nodes_answer_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """What helps on the first node counts for all."""
    monkeypatch.setattr(ClaimProblems, "_kind_of", lambda problems, row: ("state", 0))


FEW = [node("n1"), *slices("n1", card("g0"))]
TAINTED = [node("n1"), *slices("n1", *(card(f"g{i}", taints=[TAINT]) for i in (0, 1)))]


@pytest.mark.parametrize(
    ("break_it", "known"),
    [
        (what_is_tried_is_not_decided, [*FEW, claim(request(count=3))]),
        (counts_are_halved, CASES["fewer devices, or more of them"][0]),
        (what_others_have_is_not_seen, CASES["a capacity that others share"][0]),
        (all_taints_are_removed, [*TAINTED, claim(request())]),
        (counters_are_not_raised, CASES["a counter"][0]),
        (nodes_answer_alike, CASES["an amount of a capacity"][0]),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_control_what_is_left_out_is_noticed(
    break_it: Callable[[pytest.MonkeyPatch], None],
    known: list[Tree],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    break_it(monkeypatch)
    example = [CLASS, *known, pod()]
    assert_caught(lambda manifests: check(manifests, tmp_path), clusters(), known=(example,))
