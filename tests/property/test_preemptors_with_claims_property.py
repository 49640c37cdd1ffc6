"""Preemptors with bound claims, which are planned together while no node limits volumes: effects
equal the walk's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from msgspec.structs import replace

from stowplan.benchmarks.benchmark_objects import make_object
from stowplan.cycle.preemptor_attempts import ClassSearch, PreemptorAttempts
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from stowplan.objects.volume import PVCVolumeSource, Volume
from stowplan.plugins.preemption.kept_candidates import KeptCandidates
from stowplan.plugins.volumes.claims import bound_claims
from stowplan.scheduler.lanes.kernel_placement import KernelPlacement
from stowplan.testing import builders
from stowplan.testing.generators.choices import chance, pick, random_int
from tests.property.test_preemption_plans_property import Bursts
from tests.property.test_preemptor_search_property import N_STEPS, SEEDS
from tests.property.wrong import assert_caught
from tests.soak import examples

DRIVER = "disks.example.com"
BOUND = {"pv.kubernetes.io/bind-completed": "true"}
ZONE = "topology.kubernetes.io/zone"


class BurstsWithClaims(Bursts):
    """Most preemptors and some of their victims have claims; some volumes are in a zone that few
    nodes are in. Nodes get limits of volumes, and lose them."""

    def __init__(self, seed: int) -> None:
        self._kind_of: dict[str, str] = {}
        super().__init__(seed)

    def _node(self, name: str) -> Any:
        # With taints that are scored, pods with claims have no plan.
        zone = pick(self.rng, ("a", "b", ""))
        labels = {"disk": "ssd"} | ({ZONE: zone} if zone else {})
        return builders.node(name, cpu=pick(self.rng, ("2", "4", "4")), labels=labels)

    def _pod(self, priority: int, cpu: str, on: str = "") -> Event:
        added = super()._pod(priority, cpu, on)
        assert isinstance(added, happened.PodAdded)
        pod = added.pod
        if chance(self.rng, 3 if on else 5) != bool(on):
            return added
        volumes = []
        for place in range(pick(self.rng, (1, 1, 2))):
            name = f"{pod.name}-{place}"
            self._kind_of[name] = pick(self.rng, ("any", "any", "zone", "unbound"))
            if on or not chance(self.rng, 6):
                self._kind_of[name] = "any"
            volumes.append(Volume(f"v{place}", persistent_volume_claim=PVCVolumeSource(name)))
        pod = replace(pod, spec=replace(pod.spec, volumes=tuple(volumes)))
        self.pods[pod.name] = pod
        return happened.PodAdded(pod)

    def _claims_of(self, pod: Pod) -> list[Event]:
        events: list[Event] = []
        for volume in pod.spec.volumes:
            assert volume.persistent_volume_claim is not None
            name = volume.persistent_volume_claim.claim_name
            kind, size = self._kind_of[name], {"storage": "1Gi"}
            modes = {"accessModes": ["ReadWriteOnce"]}
            spec = {
                **modes,
                "csi": {"driver": DRIVER, "volumeHandle": name},
                "capacity": size,
                "claimRef": {"namespace": "default", "name": name},
            }
            labels = {ZONE: "a"} if kind == "zone" else {}
            made = make_object(PersistentVolume, f"v-{name}", labels=labels, spec=spec)
            events.append(happened.ObjectAdded(made))
            spec = {**modes, "resources": {"requests": size}, "volumeName": f"v-{name}"}
            notes = {} if kind == "unbound" else BOUND
            claim = make_object(
                PersistentVolumeClaim, name, "default", annotations=notes, spec=spec
            )
            events.append(happened.ObjectAdded(claim))
        return events

    def _limits(self) -> list[Event]:
        """A node has a limit of volumes, or lost it."""
        name, most = pick(self.rng, self.names), pick(self.rng, (1, 2, 5))
        limit = {} if chance(self.rng, 2) else {"allocatable": {"count": most}}
        spec = {"drivers": [{"name": DRIVER, "nodeID": name, **limit}]}
        return [happened.ObjectUpdated(make_object(CSINode, name, spec=spec))]

    def _handle(self, events: list[Event]) -> None:
        added = [event.pod for event in events if isinstance(event, happened.PodAdded)]
        before = [event for pod in added for event in self._claims_of(pod)]
        if chance(self.rng, 6):
            before += self._limits()
        super()._handle(before + events)


def same_effects(seed: int, n_steps: int = N_STEPS) -> None:
    """Run both, and compare all that they do."""
    found = BurstsWithClaims(seed)
    for _ in range(n_steps):
        found.burst()
        if chance(found.rng, random_int(found.rng, 2, 4)):
            found.step()
    found.pair.compare()


@settings(max_examples=examples(60), deadline=None)
@given(SEEDS)
# A volume is out of reach of a node that is short of CPU once another preemptor is nominated to it.
@example(1000807)
def test_preemptors_with_claims_decide_as_the_walk(seed: int) -> None:
    same_effects(seed)


def test_they_are_planned_and_placed_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    right, bound = PreemptorAttempts.begin, KernelPlacement._bind_nominated

    def begin(self: PreemptorAttempts, plan_of: Any, scores: Any, one: Any, *given: Any) -> Any:
        search = right(self, plan_of, scores, one, *given)
        found.append("begun" if search is not None and one.claims is not None else "")
        return search

    def bind(
        self: Any, entries: Any, classes: Any, end: int, rows: dict[int, Any], *given: Any
    ) -> None:
        those = classes[end - len(rows) : end]
        found.extend("placed" for one in those if one.claims is not None)
        bound(self, entries, classes, end, rows, *given)

    monkeypatch.setattr(PreemptorAttempts, "begin", begin)
    monkeypatch.setattr(KernelPlacement, "_bind_nominated", bind)
    for seed in range(12):
        same_effects(seed)
    assert found.count("begun") > 3
    assert found.count("placed") > 5


def limits_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that get limits of volumes take any number of them."""
    monkeypatch.setattr(bound_claims, "has_no_limits", lambda snapshot: True)


def claims_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zones of volumes do not count."""
    right = ClassSearch.__init__

    def init(self: ClassSearch, search: Any, *given: Any) -> None:
        right(self, search, *given)
        search._static_numbers = lambda members, pod, nodes: nodes.rank * 0

    monkeypatch.setattr(ClassSearch, "__init__", init)


def closed_rows_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is short on a row without candidates stays as it was when the plan was made."""
    monkeypatch.setattr(KeptCandidates, "closed_later", None)


@pytest.mark.parametrize(
    ("break_it", "seed"),
    [(limits_do_not_count, 0), (claims_are_alike, 0), (closed_rows_are_not_followed, 1000807)],
)
def test_control_what_is_left_out_is_noticed(
    break_it: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert_caught(lambda seed: same_effects(seed, 2 * N_STEPS), SEEDS, known=(seed,))
