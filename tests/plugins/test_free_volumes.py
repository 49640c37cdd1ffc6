"""Free volumes that are kept as volumes change are those that are found anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.columns import NodeTable
from stowplan.framework import ObjectStore
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim
from stowplan.plugins.volumes import volume_matching
from stowplan.plugins.volumes import volume_topology as volume_topology_module
from stowplan.plugins.volumes.volume_index import VolumeIndex
from stowplan.plugins.volumes.volume_matching import (
    FreeVolumes,
    VolumesOfKind,
    find_volume_candidates,
    volume_bound_to_claim,
)
from stowplan.plugins.volumes.volume_search import smallest_matching_volume
from stowplan.plugins.volumes.volume_topology import (
    AccessibleTopology,
    RowsByLabel,
    rows_within,
    topology_admits,
    volume_topology,
)
from stowplan.testing.generators.choices import chance, pick, random_int
from tests.plugins.volume_cases import HOST, ZONE, claim, node, volume, within
from tests.property.wrong import assert_caught
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)
NODES = ("n1", "n2", "n3", "n4")
NOT_THERE = {
    "required": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": ["n1"]}]}
        ]
    }
}
AFFINITIES = (
    None,
    NOT_THERE,
    within(HOST, "n1"),
    within(HOST, "n2", "n3"),
    within(HOST, "n4"),
    within(ZONE, "a"),
    within(ZONE, "a", "b"),
)
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"size": "1Gi"},
    {"modes": ("ReadOnlyMany",)},
    {"storage_class": "local"},
)


class Volumes:
    """A store in which volumes come, are claimed, are given back, and go."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.store = ObjectStore()
        self.table = NodeTable()
        self.rows = RowsByLabel()
        self._n_made = 0
        self.assumed: list[PersistentVolume] = []
        for name in NODES:
            self.table.add_node(node(name, pick(self.rng, ("a", "b", ""))))
        for _ in range(random_int(self.rng, 1, 6)):
            self._put()

    def _put(self) -> None:
        rng = self.rng
        self._n_made += 1
        made = volume(
            f"v{random_int(rng, 0, 7)}",
            pick(rng, ("wait", "wait", "local")),
            size=pick(rng, ("1Gi", "5Gi", "5Gi", "10Gi")),
            affinity=pick(rng, AFFINITIES),
            modes=pick(rng, (("ReadWriteOnce",), ("ReadWriteOnce", "ReadOnlyMany"))),
            phase=pick(rng, ("Available", "Available", "Available", "Released")),
        )
        if self.store.find(PersistentVolume, made.name) is None:
            meta = replace(made.metadata, uid=f"uid-{self._n_made}")
        else:
            meta = self.store.find(PersistentVolume, made.name).metadata  # type: ignore[union-attr]
        self.store.put(replace(made, metadata=meta))

    def step(self) -> None:
        """Something happens to a volume or to a node."""
        rng, there = self.rng, list(self.store.all(PersistentVolume))
        what = random_int(rng, 0, 4)
        if what == 0 or not there:
            self._put()
        elif what == 1:
            free = pick(rng, there)
            self.assumed.append(volume_bound_to_claim(free, claim(f"c{random_int(rng, 0, 3)}")))
            self.store.assume(self.assumed[-1])
        elif what == 2 and self.assumed:
            self.store.restore(self.assumed.pop(random_int(rng, 0, len(self.assumed) - 1)))
        elif what == 3:
            self.store.drop(PersistentVolume, pick(rng, there).name)
        else:
            self.table.update_node(node(pick(rng, NODES), pick(rng, ("a", "b", ""))))

    def compare(self, wanted: PersistentVolumeClaim) -> None:
        """Look for the volume of a claim on every node, by what is kept and anew."""
        kept = FreeVolumes.of(self.store).for_claim(wanted)
        index, name = VolumeIndex(self.store), wanted.spec.storage_class_name or ""
        naming = index.claimed.get((name, wanted.key), ())
        assert (kept is None) == bool(naming)
        if kept is None:
            return
        anew = find_volume_candidates(wanted, naming, index.unclaimed.get(name, ()))
        for affinity in AFFINITIES:
            reach = volume_topology(volume("other", "wait", affinity=affinity))
            found_rows = self.rows.within(reach, self.table).tolist()
            assert found_rows == rows_within(reach, self.table).tolist()
        reached = kept.reached(self.table)
        for row, there in enumerate(self.table.nodes):
            found = smallest_matching_volume(anew, there, set())
            assert kept.smallest(there) == ("" if found is None else found.name)
            assert reached[row] == (found is not None)


def kept_is_anew(seed: int, n_steps: int = 25) -> None:
    """After every step the volumes of a claim are those found anew."""
    volumes = Volumes(seed)
    for _ in range(n_steps):
        for _ in range(random_int(volumes.rng, 1, 3)):
            volumes.step()
        kind = pick(volumes.rng, KINDS)
        name = f"c{random_int(volumes.rng, 0, 3)}" if chance(volumes.rng, 3) else "other"
        volumes.compare(claim(name, **kind))


@settings(max_examples=examples(100), deadline=None)
@given(SEEDS)
def test_kept_volumes_are_those_found_anew(seed: int) -> None:
    kept_is_anew(seed)


def claimed_volumes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume that has a claim is still offered."""
    right = VolumesOfKind.update

    def update(self: VolumesOfKind, name: str, order: int, one: PersistentVolume | None) -> None:
        if one is None or one.spec.claim_ref is None:
            right(self, name, order, one)

    monkeypatch.setattr(VolumesOfKind, "update", update)


def rows_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a volume reaches are not counted when it comes or goes."""
    monkeypatch.setattr(VolumesOfKind, "_count", lambda self, reach, sign: None)


def names_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not count that a volume names a claim."""
    monkeypatch.setattr(FreeVolumes, "_name", lambda self, one, sign: None)


def claims_of_a_volume_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume that had a claim and has one is not looked at, whichever claim it is."""
    monkeypatch.setattr(
        volume_matching,
        "_is_taken_alike",
        lambda before, after: None not in (before.spec.claim_ref, after.spec.claim_ref),
    )


def rows_keep_their_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are sorted by their labels once for a table, whatever its shape."""
    right = RowsByLabel.within

    def within_first(self: RowsByLabel, reach: Any, nodes: NodeTable) -> Any:
        if self._made_for[0] is nodes:
            self._made_for = nodes, nodes.shape
        return right(self, reach, nodes)

    monkeypatch.setattr(RowsByLabel, "within", within_first)


@pytest.mark.parametrize(
    "break_it",
    [
        claimed_volumes_stay,
        rows_are_not_counted,
        names_are_not_followed,
        claims_of_a_volume_are_alike,
        rows_keep_their_labels,
    ],
)
def test_control_what_is_left_out_is_noticed(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert_caught(kept_is_anew, SEEDS, known=(0,))


def topologies(seed: int) -> tuple[Volumes, list[AccessibleTopology]]:
    volumes = Volumes(seed)
    affinities = [pick(volumes.rng, AFFINITIES[1:]) for _ in range(random_int(volumes.rng, 0, 4))]
    return volumes, [volume_topology(volume("v", "wait", affinity=one)) for one in affinities]


def any_is_one_of_them(seed: int) -> None:
    """The rows of several topologies together are those of each."""
    volumes, reaches = topologies(seed)
    found = volume_topology_module.rows_of_any(reaches, volumes.table).tolist()
    nodes = volumes.table.nodes
    assert found == [any(topology_admits(one, n.labels) for one in reaches) for n in nodes]


@settings(max_examples=examples(200), deadline=None)
@given(SEEDS)
def test_rows_of_topologies_together_are_those_of_each(seed: int) -> None:
    any_is_one_of_them(seed)


def test_control_all_values_of_a_label_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topology counts with the first of its values alone."""
    right = volume_topology_module.single_in_requirement

    def first_value(reach: AccessibleTopology) -> Any:
        found = right(reach)
        return found and replace(found, values=found.values[:1])

    monkeypatch.setattr(volume_topology_module, "single_in_requirement", first_value)
    assert_caught(any_is_one_of_them, SEEDS, known=(0,))
