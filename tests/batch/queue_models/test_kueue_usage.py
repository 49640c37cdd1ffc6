"""Admission scope of Kueue: usage of LocalQueues with a half-life, and the order by it.

Expected values: KEP-4136 (Admission Fair Sharing) and Kueue of 2026-08-22, worked out by hand.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from stowplan.batch.queue_models.kueue.admission_workload import ADMITTED
from stowplan.batch.queue_models.kueue.kueue_admission import KueueAdmission, KueueObjects
from stowplan.batch.queue_models.kueue.kueue_objects import (
    KueueClusterQueue,
    KueueNamespace,
    LocalQueue,
    ResourceFlavor,
    Workload,
)
from stowplan.batch.queue_models.kueue.kueue_options import (
    STRATEGIES,
    KueueOptions,
    UsageOptions,
    kueue_options_of,
)
from stowplan.batch.queue_models.kueue.manifests.kueue_versions import value_problem
from stowplan.batch.queue_models.kueue.quota.local_queue_usage import LocalQueueUsage, decayed
from stowplan.batch.queue_models.kueue.reports.usage_reports import (
    billionths_text,
    order_text,
    usage_status,
    uses_ahead,
)
from stowplan.objects.meta import ObjectMeta
from tests.batch.queue_models.test_kueue_admission import holders, job, queue

CPU = 10**9
BY_USAGE = {"admissionMode": "UsageBasedAdmissionFairSharing"}
OFF = {"admissionMode": "NoAdmissionFairSharing"}
TEN_SECONDS = UsageOptions(half_life_s=10.0, interval_s=10.0)


def local(name: str, of: str = "q", weight: Any = None, **consumed: str) -> LocalQueue:
    status = {"admissionFairSharingStatus": {"consumedResources": consumed}}
    spec = {"clusterQueue": of, "fairSharing": {"weight": weight}}
    tree = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    return msgspec.convert({**tree, "status": {"fairSharing": status}}, LocalQueue)


def cluster(
    locals_: list[LocalQueue],
    jobs: list[Workload],
    nominal: int = 4,
    usage: UsageOptions | None = TEN_SECONDS,
    scope: dict[str, str] | None = BY_USAGE,
    **spec: Any,
) -> KueueAdmission:
    """One ClusterQueue."""
    objects = KueueObjects(
        cluster_queues=[queue("q", nominal, admissionScope=scope, **spec)],
        local_queues=locals_,
        resource_flavors=[ResourceFlavor(metadata=ObjectMeta(name="default"))],
        namespaces=[KueueNamespace(metadata=ObjectMeta(name="default"))],
        workloads=jobs,
    )
    return KueueAdmission(objects, KueueOptions(usage=usage, is_fixed=True))


def usage_of(state: KueueAdmission, name: str) -> float:
    assert state.usage is not None
    return state.usage.of(f"default/{name}")


def test_what_was_used_counts_half_after_the_half_life() -> None:
    assert decayed({"cpu": 8 * CPU}, {}, 10, 10) == {"cpu": 4 * CPU}
    assert decayed({"cpu": 8 * CPU}, {}, 20, 10) == {"cpu": 2 * CPU}
    # 8 / sqrt(2), cut to billionths.
    assert decayed({"cpu": 8 * CPU}, {}, 5, 10) == {"cpu": 5_656_854_249}
    # 4 CPUs in use come near to 4: 2 after one half-life, 3 after two.
    assert decayed({}, {"cpu": 4 * CPU}, 10, 10) == {"cpu": 2 * CPU}
    assert decayed({}, {"cpu": 4 * CPU}, 20, 10) == {"cpu": 3 * CPU}
    assert decayed({"cpu": 8 * CPU}, {"cpu": 4 * CPU}, 10, 10) == {"cpu": 6 * CPU}
    assert decayed({"cpu": 8 * CPU}, {"gpu": CPU}, 10, 10) == {"cpu": 4 * CPU, "gpu": CPU // 2}


def test_usage_is_weighted_by_resource_and_divided_by_the_weight() -> None:
    options = UsageOptions(10.0, 10.0, {"cpu": 2.0, "memory": 0.0})
    queues = [local("a", weight="2", cpu="3", memory="5Gi"), local("z", weight=0, cpu="1")]
    usage = LocalQueueUsage(options, queues, 0.0)
    assert usage.of("default/a") == 2.0 * 3 / 2
    assert usage.of("default/z") == float("inf")
    plain = LocalQueueUsage(TEN_SECONDS, [local("a", cpu="500m", memory="2")], 0.0)
    assert plain.of("default/a") == 2.5


def test_an_admission_costs_an_interval_at_once() -> None:
    # 1 - 0.5^(300/600) = 0.292893218...; of 10 CPUs.
    usage = LocalQueueUsage(UsageOptions(600.0, 300.0), [local("a")], 0.0)
    usage.penalize("default/a", "w", {"cpu": 10_000})
    usage.penalize("default/a", "w", {"cpu": 10_000})
    assert usage.of("default/a") == 2.928932188
    usage.forget("default/a", "w")
    assert usage.of("default/a") == 0
    usage.penalize("default/a", "w", {"cpu": 10_000})
    usage.settle("default/a", "w", {"cpu": 10_000}, 0.0)
    assert usage.entries["default/a"].consumed == {"cpu": 2_928_932_188}
    usage.settle("default/a", "w", {"cpu": 10_000}, 600.0)
    assert usage.entries["default/a"].consumed == {"cpu": 1_464_466_094 + 5 * CPU}


def test_samples_are_taken_at_the_interval() -> None:
    usage = LocalQueueUsage(TEN_SECONDS, [local("a", cpu="8"), local("off", cpu="8")], 100.0)
    usage.sampled = {"default/a"}
    assert usage.next_at() == 110.0
    assert not usage.is_due(109.9)
    usage.sample({}, 109.9)
    assert usage.of("default/a") == 8
    # Two samples are due; the third is not.
    usage.sample({"default/a": {"cpu": 4_000}}, 129.0)
    assert usage.of("default/a") == 8 / 4 + 3
    assert (usage.next_at(), usage.of("default/off")) == (130.0, 8)
    never = LocalQueueUsage(UsageOptions(0.0, 10.0), [local("a", cpu="8")], 0.0)
    never.sampled = {"default/a"}
    never.sample({"default/a": {"cpu": 4_000}}, 10.0)
    assert never.of("default/a") == 0


def test_the_local_queue_that_used_less_comes_first() -> None:
    """Before priority and time; within it these decide."""
    queues = [local("used", cpu="3"), local("fresh", cpu="1")]
    jobs = [
        job("a", "used", 2, priority=9),
        job("b", "fresh", 2),
        job("c", "fresh", 2, priority=1),
    ]
    state = cluster(queues, jobs, nominal=2)
    assert state.pending["q"].in_order() == ["default/c", "default/b", "default/a"]
    state.run_cycle()
    assert holders(state) == ["c"]
    # Half of its 2 CPUs: the interval is the half-life.
    assert usage_of(state, "fresh") == pytest.approx(2)


@pytest.mark.parametrize(
    ("usage", "scope"),
    [
        (None, BY_USAGE),
        (TEN_SECONDS, None),
        (TEN_SECONDS, {"admissionMode": "NoAdmissionFairSharing"}),
    ],
)
def test_usage_orders_nothing_unless_both_are_configured(
    usage: UsageOptions | None, scope: dict[str, str] | None
) -> None:
    queues = [local("used", cpu="3"), local("fresh", cpu="1")]
    state = cluster(queues, [job("a", "used", 2, 9), job("b", "fresh", 2)], 2, usage, scope)
    state.run_cycle()
    assert holders(state) == ["a"]
    assert usage_of(state, "used") == 3 if usage else state.usage is None


def test_admissions_take_turns() -> None:
    """Each costs half of its request at once, or one queue would get all."""
    jobs = [job(f"{name}{i}", name, 1) for name in ("a", "b") for i in range(3)]
    state = cluster([local("a"), local("b", weight=2)], jobs, nominal=6)
    taken = [next(iter((state.run_cycle() or pytest.fail("no head")).admitted)) for _ in range(6)]
    # Usage of a and b before each: 0 0, 0.5 0, 0.5 0.25, 0.5 0.5, 1 0.5, 1 0.75.
    assert [key.removeprefix("default/") for key in taken] == ["a0", "b0", "b1", "a1", "b2", "a2"]


def test_the_order_changes_with_time() -> None:
    """A big head waits under StrictFIFO; its queue is behind once it has used more."""
    jobs = [job("first", "a", 2), job("large", "a", 3), job("small", "b", 1)]
    queues = [local("a"), local("b", cpu="1800m")]
    state = cluster(queues, jobs, queueingStrategy="StrictFIFO")
    assert state.run_cycle() is not None
    assert holders(state) == ["first"]
    # a has 1 by then, and comes near to 2; b has 1.8, and comes near to 0.
    assert state.order_may_change_at() == 10.0
    state.run_cycle()
    assert holders(state) == ["first"]
    assert state.pending["q"].in_order()[0] == "default/large"
    state.now = 10.0
    state.run_cycle()
    assert (usage_of(state, "a"), usage_of(state, "b")) == (1.5, pytest.approx(0.9 + 0.5))
    assert holders(state) == ["first", "small"]
    assert state.order_may_change_at() is None


def test_a_sticky_workload_comes_after_those_of_queues_that_used_less() -> None:
    queues = [local("used", cpu="3"), local("fresh", cpu="1")]
    state = cluster(queues, [job("a", "used", 1), job("b", "fresh", 1), job("c", "used", 1, 5)])
    state.pending["q"].sticky = "default/a"
    assert state.pending["q"].in_order() == ["default/b", "default/a", "default/c"]
    heads = [state.pending["q"].pop() for _ in range(3)]
    assert [one.key for one in heads if one is not None] == ["default/b", "default/a", "default/c"]


def test_those_of_the_queue_that_used_more_are_preempted_first() -> None:
    """Before those of lower priority."""
    queues = [local("used", cpu="3"), local("fresh", cpu="1"), local("new", weight=8)]
    jobs = [job("a", "used", 2, priority=2), job("b", "fresh", 2, priority=1)]
    for usage, victim in ((TEN_SECONDS, "default/a"), (None, "default/b")):
        preemption = {"withinClusterQueue": "LowerPriority"}
        state = cluster(queues, jobs, usage=usage, preemption=preemption)
        for _ in range(4):
            state.run_cycle()
        assert holders(state) == ["a", "b"]
        state.add([job("urgent", "new", 2, priority=9)])
        outcome = state.run_cycle()
        assert outcome is not None
        assert list(outcome.preempted) == [victim]


@pytest.mark.parametrize(("strategies", "cpus", "also"), [((), 4, {"o"}), (STRATEGIES, 2, set())])
def test_usage_orders_the_victims_of_each_queue_of_a_cohort(
    strategies: tuple[str, ...], cpus: int, also: set[str]
) -> None:
    """Between queues priority decides, as where usage does not count."""
    owners = {"own": "owner", "used": "q", "fresh": "q", "other": "other"}
    consumed = {"used": "9", "fresh": "1"}
    locals_ = [local(name, of, cpu=consumed.get(name, "0")) for name, of in owners.items()]
    reclaims = {"preemption": {"reclaimWithinCohort": "Any"}, "cohortName": "all"}
    queues = [
        queue("owner", 6, **reclaims),
        queue("q", 0, cohortName="all", admissionScope=BY_USAGE),
        queue("other", 0, cohortName="all"),
    ]
    held = [("u", "used", 3), ("f", "fresh", 1), ("o", "other", 2)]
    objects = KueueObjects(
        cluster_queues=queues,
        local_queues=locals_,
        resource_flavors=[ResourceFlavor(metadata=ObjectMeta(name="default"))],
        namespaces=[KueueNamespace(metadata=ObjectMeta(name="default"))],
        workloads=[job(name, of, 2, priority=priority) for name, of, priority in held],
    )
    for usage, victims in ((TEN_SECONDS, {"u"} | also), (None, {"f"} | also)):
        state = KueueAdmission(objects, KueueOptions(strategies=strategies, usage=usage))
        while len(holders(state)) < 3:
            state.run_cycle()
        state.add([job("owner", "own", cpus)])
        outcome = state.run_cycle()
        assert outcome is not None
        assert {key.removeprefix("default/") for key in outcome.preempted} == victims


def test_a_penalty_ends_with_its_workload() -> None:
    """One that has quota and waits for a check; the check is missing in the end."""
    state = cluster([local("a"), local("b")], [job("w", "a", 2)])
    usage = state.usage
    assert usage is not None
    usage.penalize("default/a", "default/w", {"cpu": 2_000})
    state.replace(job("w", "b", 2))
    assert usage.of("default/a") == 0
    usage.penalize("default/b", "default/w", {"cpu": 2_000})
    assert usage.of("default/b") == 1
    state.finish(["default/w"])
    assert usage.of("default/b") == 0


def test_status_and_words() -> None:
    queues = [local("used", cpu="3"), local("fresh", cpu="250m", memory="1Gi", weight=2)]
    state = cluster(queues, [job("a", "used", 9), job("b", "fresh", 9)])
    assert state.usage is not None
    state.usage.entries["default/fresh"].updated = 60.0
    consumed = {"cpu": "250m", "memory": "1073741824"}
    assert usage_status(state.usage, "default/fresh") == {
        "weightedShare": 0,
        "admissionFairSharingStatus": {
            "consumedResources": consumed, "lastUpdate": "1970-01-01T00:01:00Z",
        },
    }  # fmt: skip
    assert [billionths_text(n) for n in (0, 1, 1_500, 5 * CPU, 2_000 * CPU)] == [
        "0", "1n", "1500n", "5", "2k",
    ]  # fmt: skip
    state.usage.entries["default/fresh"].consumed = {"cpu": CPU}
    uses = uses_ahead(state.workloads["default/a"], state)
    assert order_text(uses, "default", "used") == (
        "LocalQueue used in default 3 (weight 1); after LocalQueue fresh in default 0.5 (weight 2)"
    )


def test_what_a_restart_finds_counts_on() -> None:
    state = cluster([local("a", cpu="8")], [])
    again = cluster([local("a", weight=2), local("b")], [])
    assert state.usage is not None
    assert again.usage is not None
    again.usage.take_over(state.usage)
    assert usage_of(again, "a") == 4


def test_the_scope_is_validated() -> None:
    def problem(**scope: str) -> str:
        return value_problem(queue("q", 1, admissionScope=scope))

    assert problem(**BY_USAGE) == ""
    assert problem(admissionMode="ByUse") == (
        'spec.admissionScope.admissionMode: Unsupported value: "ByUse": supported values: '
        '"UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"'
    )
    assert problem() == "spec.admissionScope.admissionMode: Required value"
    assert value_problem(local("a", weight="x"))
    assert isinstance(queue("q", 1), KueueClusterQueue)


def test_the_gate_turns_it_off() -> None:
    tree = {"admissionFairSharing": {"usageHalfLifeTime": "168h"}}
    assert kueue_options_of(tree, is_fixed=True).usage == UsageOptions(168 * 3600.0, 300.0)
    off = {**tree, "featureGates": {"AdmissionFairSharing": False}}
    assert kueue_options_of(off, is_fixed=True).usage is None


class Reference:
    """What three LocalQueues have used, in plain numbers: samples every ten seconds, half of a
    request at admission."""

    def __init__(self) -> None:
        self.used = dict.fromkeys("abc", 0.0)
        self.since = dict.fromkeys("abc", 0.0)

    def pass_to(self, name: str, now: float, cpus: float) -> None:
        kept = 0.5 ** ((now - self.since[name]) / 10)
        self.used[name] = self.used[name] * kept + cpus * (1 - kept)
        self.since[name] = now

    def sample(self, now: float, cpus: dict[str, float]) -> None:
        for name in "abc":
            while self.since[name] + 10 <= now:
                self.pass_to(name, self.since[name] + 10, cpus[name])


def check_order(seed: int) -> None:
    """Of workloads of one priority that could be admitted, one of the LocalQueue that used least
    is."""
    rng = random.Random(seed)
    weights = {name: rng.choice([1, 2, 5]) for name in "abc"}
    state = cluster([local(name, weight=n) for name, n in weights.items()], [], nominal=9)
    reference, n_jobs = Reference(), 0

    def in_use() -> dict[str, float]:
        found = dict.fromkeys("abc", 0.0)
        for one in state.workloads.values():
            if one.is_condition(ADMITTED):
                found[one.workload.spec.queue_name] += one.usage.quota["default", "cpu"] / 1000
        return found

    for _ in range(60):
        reference.sample(state.now, in_use())
        state.sample_usage(state.now)
        state.finish(
            [key for key, one in state.workloads.items() if one.holds_quota and rng.random() < 0.2]
        )
        for _ in range(rng.randrange(3)):
            n_jobs += 1
            state.add([job(f"j{n_jobs}", rng.choice("abc"), rng.randint(1, 4))])
        waiting = {one.workload.spec.queue_name for one in state.pending["q"].active.values()}
        outcome = state.run_cycle()
        for key in outcome.admitted if outcome is not None else ():
            name = state.workloads[key].workload.spec.queue_name
            least = min(reference.used[one] / weights[one] for one in waiting)
            assert reference.used[name] / weights[name] <= least + 1e-6, (key, reference.used)
            reference.pass_to(name, state.now, in_use()[name])
            reference.used[name] += state.workloads[key].usage.quota["default", "cpu"] / 2000
        state.now += rng.choice([0.0, 1.0, 4.0, 25.0])


def check_orders() -> None:
    for seed in range(40):
        check_order(seed)


def test_a_queue_with_less_usage_is_never_behind_one_with_more() -> None:
    check_orders()


@pytest.mark.parametrize("wrong", ["penalize", "sample"])
def test_the_property_fails_without_penalties_or_decay(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setattr(LocalQueueUsage, wrong, lambda *_: None)
    with pytest.raises(AssertionError):
        check_orders()
