"""What sessions promise, on drawn clusters, through the machine; each promise once broken.

The wrong variants are what kube-batch does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.batch import Session
from stowplan.batch.actions.preempt import Preempt
from stowplan.batch.actions.victims import VictimCandidates, running
from stowplan.batch.session_plugins.proportion import ProportionPlugin
from stowplan.batch.state.capability import QueueCapabilities
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.statement import Statement
from stowplan.testing.session_invariants import Violation, check_session
from tests.scenarios.cluster_script import ClusterScript
from tests.soak import examples

SESSIONS_MAX = 50
PRIORITIES = ("", "low", "high")


class RandomJob(NamedTuple):
    """A job: its pods, alike, and how many of them are there when the scheduler starts."""

    size: int
    least: int
    cpu: int
    queue: int
    priority: str
    comes_s: int
    runs_s: int = 0
    gpus: int = 0

    def command(self, number: int) -> str:
        priority = f" priority={self.priority}" if self.priority else ""
        runs = f" runs={self.runs_s}" if self.runs_s else ""
        gpus = f" gpus={self.gpus}" if self.gpus else ""
        head = f"job j{number} min={min(self.least, self.size)} queue=q{self.queue}{priority}"
        pod_priority = f" priority={self.priority}" if self.priority else ""
        return f"{head} : p*{self.size} cpu={self.cpu}{gpus}{pod_priority}{runs}"


class RandomCluster(NamedTuple):
    """A cluster, its queues by weight, and its jobs. cpu, gpus: of each node. capabilities: the
    most CPU that each queue may have, 0 for any."""

    nodes: int
    cpu: int
    weights: list[int]
    jobs: list[RandomJob]
    gpus: int = 0
    capabilities: tuple[int, ...] = (0, 0, 0)


def clusters(runs: bool = False, limited: bool = False) -> st.SearchStrategy[RandomCluster]:
    job = st.builds(
        RandomJob,
        size=st.integers(1, 5),
        least=st.integers(0, 5),
        cpu=st.integers(1, 3),
        queue=st.integers(0, 2),
        priority=st.sampled_from(PRIORITIES),
        comes_s=st.sampled_from((0, 0, 3, 5)),
        runs_s=st.sampled_from((0, 4)) if runs else st.just(0),
        gpus=st.sampled_from((0, 0, 1, 2)),
    )
    return st.builds(
        RandomCluster,
        nodes=st.integers(1, 3),
        # Where there is plenty of CPU it is the cards that are scarce.
        cpu=st.sampled_from((2, 3, 4, 5, 6, 64)),
        gpus=st.sampled_from((0, 2, 4)),
        weights=st.lists(st.integers(1, 3), min_size=3, max_size=3),
        jobs=st.lists(job, min_size=1, max_size=6),
        capabilities=st.tuples(*[st.sampled_from((0, 1, 2, 3, 5, 8) if limited else (0,))] * 3),
    )


def script_of(random_cluster: RandomCluster) -> ClusterScript:
    """The script as all jobs have come, with every session judged."""
    script = ClusterScript()
    script.check = check_session
    setup = [
        f"nodes {random_cluster.nodes} cpu={random_cluster.cpu} memory=64Gi "
        f"gpus={random_cluster.gpus}",
        "class low 1",
        "class high 100",
    ]
    for number, (weight, most) in enumerate(
        zip(random_cluster.weights, random_cluster.capabilities, strict=True)
    ):
        limit = f" capability={most}" if most else ""
        setup.append(f"queue q{number} weight={weight}{limit}")
    script.play(setup)
    at = 0
    for number, job in sorted(enumerate(random_cluster.jobs), key=lambda one: one[1].comes_s):
        if job.comes_s > at:
            script.play([f"wait {job.comes_s - at}s"])
            at = job.comes_s
        script.play([job.command(number)])
    return script


def come_to_rest(script: ClusterScript) -> None:
    """Time passes until nothing happens: within fifty sessions."""
    started = script.n_sessions
    while True:
        before = script.n_sessions
        script.play(["wait 8s"])
        evicted = sum(script.evictions.values())
        if script.n_sessions == before or (not evicted and script.n_sessions - before <= 1):
            return
        if script.n_sessions - started > SESSIONS_MAX:
            raise Violation(f"no rest after {script.n_sessions - started} sessions")


@given(clusters())
@settings(max_examples=examples(60), deadline=None)
def test_sessions_keep_their_promises_and_come_to_rest(random_cluster: RandomCluster) -> None:
    come_to_rest(script_of(random_cluster))


@given(clusters(runs=True))
@settings(max_examples=examples(30), deadline=None)
def test_they_do_while_pods_come_to_their_end(random_cluster: RandomCluster) -> None:
    script_of(random_cluster).play(["wait 40s"])


@given(clusters(runs=True, limited=True))
@settings(max_examples=examples(100), deadline=None)
def test_no_queue_has_more_than_its_capability(random_cluster: RandomCluster) -> None:
    script_of(random_cluster).play(["wait 20s"])


@given(clusters(limited=True))
@settings(max_examples=examples(60), deadline=None)
def test_queues_with_a_capability_come_to_rest(random_cluster: RandomCluster) -> None:
    come_to_rest(script_of(random_cluster))


# Each promise, broken.


def job(size: int, least: int = 0, cpu: int = 1, queue: int = 0, **more: Any) -> RandomJob:
    settings_ = {"priority": "", "comes_s": 0} | more
    return RandomJob(size, least, cpu, queue, **settings_)


def random_cluster(
    *jobs: RandomJob, nodes: int = 1, cpu: int = 4, gpus: int = 0, most: tuple[int, ...] = (0, 0, 0)
) -> RandomCluster:
    return RandomCluster(nodes, cpu, [1, 1, 1], list(jobs), gpus, most)


LIMITED = random_cluster(job(6), cpu=8, most=(3, 0, 0))
LIMITED_WITH_GANG = random_cluster(
    job(2), job(3, 3, priority="high", comes_s=3), cpu=8, most=(4, 0, 0)
)
LIMITED_WITH_LARGE_GANG = random_cluster(
    job(2, cpu=2), job(3, 3, cpu=2, priority="high", comes_s=3), cpu=8, most=(7, 0, 0)
)
GANG_ABOVE_LIMIT = random_cluster(job(6, 6), job(8, 1, queue=1), cpu=8, most=(2, 0, 0))
GANG_TOO_LARGE = random_cluster(job(5, 5))
BLOCKED = random_cluster(job(3, 3, cpu=2), job(2, 1, priority="low"))
EQUALS = random_cluster(job(4), job(2, comes_s=3))
OTHER_QUEUE_AT_ITS_PART = random_cluster(
    job(2, queue=0), job(2, queue=1), job(2, queue=1, comes_s=3, priority="high")
)
ROOM_BESIDE = random_cluster(job(6), job(1, cpu=3, priority="high", comes_s=3), cpu=8)
TWO_QUEUES = random_cluster(job(4, queue=0), job(4, queue=1, comes_s=3))
HIGH_AND_LOW = random_cluster(
    job(2, priority="low"), job(2, priority="high"), job(2, queue=1, comes_s=3, priority="high")
)
LOW_RECLAIMS = random_cluster(job(4, priority="high"), job(2, queue=1, comes_s=3, priority="low"))
LESS_ELSEWHERE = random_cluster(
    job(2, queue=0), job(2, queue=1, priority="low"), job(1, queue=1, priority="high", comes_s=3)
)
MORE_THAN_ALL = random_cluster(job(5, 5), job(4, 1, queue=1))
CARDS = random_cluster(job(4, gpus=1), job(4, gpus=1, queue=1, comes_s=3), cpu=64, gpus=4)


def ready(self: JobInfo) -> bool:
    return True


def everybody(self: ProportionPlugin, task: TaskInfo, candidates: list[TaskInfo]) -> list[TaskInfo]:
    return list(candidates)


STARVED = random_cluster(job(2, 1, cpu=2), job(2, 1, cpu=4), nodes=2)


def test_wrong_a_job_that_has_no_turn_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a queue is left when one of its jobs cannot be served, and the others with it."""
    come_to_rest(script_of(STARVED))
    monkeypatch.setattr("stowplan.batch.actions.allocate._serve", lambda *given: False)
    with pytest.raises(Violation, match="waits, and"):
        come_to_rest(script_of(STARVED))


def evict_all(
    session: Session,
    statement: Statement,
    task: TaskInfo,
    row: int,
    victims: Sequence[TaskInfo],
    reason: str,
) -> bool:
    for victim in victims:
        statement.evict(victim, reason)
    return bool(victims)


def anyone(*given: object, **more: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("cluster", "wrong", "message"),
    [
        (
            BLOCKED,
            {"statement.Statement.rollback": lambda *given: None},
            "holds resources for 1 of its minimum",
        ),
        (
            EQUALS,
            {
                "actions.preempt._may_be_taken": anyone,
                "actions.preempt._without_lower": lambda *given: set(),
            },
            "of no higher rank",
        ),
        (ROOM_BESIDE, {"actions.victims._evict_until": evict_all}, "would fit"),
        (
            TWO_QUEUES,
            {"statement.Statement._note_preemptors": lambda self: None},
            "evicted without need",
        ),
    ],
)
def test_a_defect_of_the_original_is_noticed(
    cluster: RandomCluster, wrong: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong: what an incomplete gang got is kept; priorities do not matter; idle resources do not
    count; victims are evicted for no task in particular."""
    come_to_rest(script_of(cluster))
    for place, function in wrong.items():
        monkeypatch.setattr(f"stowplan.batch.{place}", function)
    with pytest.raises(Violation, match=message):
        come_to_rest(script_of(cluster))


def test_wrong_an_ignored_capability_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    come_to_rest(script_of(LIMITED))
    monkeypatch.setattr("stowplan.batch.state.capability.limits_of", lambda queue: {})
    monkeypatch.setattr("stowplan.batch.session_plugins.proportion.limits_of", lambda queue: {})
    with pytest.raises(Violation, match=r"queue q0 has 6000.0 cpu, above its capability 3000.0"):
        come_to_rest(script_of(LIMITED))


def test_wrong_a_capability_that_allocate_alone_looks_at_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: preempt finds room on nodes, and promises it whatever the queue has."""
    come_to_rest(script_of(LIMITED_WITH_LARGE_GANG))
    monkeypatch.setattr(QueueCapabilities, "shortage", lambda self, task: {})
    with pytest.raises(Violation, match=r"above its capability 7000.0"):
        come_to_rest(script_of(LIMITED_WITH_LARGE_GANG))


def test_wrong_a_capability_that_forgets_pods_on_their_way_out_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: pods that are being deleted have no part in what a queue has."""
    come_to_rest(script_of(LIMITED_WITH_GANG))
    right = QueueCapabilities.allows
    monkeypatch.setattr(
        QueueCapabilities,
        "allows",
        lambda self, task, *, later=False: right(self, task, later=True),
    )
    with pytest.raises(Violation, match=r"above its capability 4000.0"):
        come_to_rest(script_of(LIMITED_WITH_GANG))


def test_wrong_a_gang_above_the_capability_of_its_queue_keeps_room_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: what such a gang wants counts like what others want."""
    come_to_rest(script_of(GANG_ABOVE_LIMIT))
    monkeypatch.setattr(ProportionPlugin, "_may_start", lambda self, job: True)
    with pytest.raises(Violation, match="waits, and"):
        come_to_rest(script_of(GANG_ABOVE_LIMIT))


def test_wrong_a_gang_that_starts_in_part_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    come_to_rest(script_of(GANG_TOO_LARGE))
    monkeypatch.setattr(JobInfo, "is_ready", property(ready))
    with pytest.raises(Violation, match="starts with"):
        come_to_rest(script_of(GANG_TOO_LARGE))


def test_wrong_a_queue_below_its_part_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    come_to_rest(script_of(OTHER_QUEUE_AT_ITS_PART))
    monkeypatch.setattr(ProportionPlugin, "victims", everybody)
    monkeypatch.setattr(ProportionPlugin, "overused", lambda self, queue: False)
    monkeypatch.setattr(ProportionPlugin, "spares", lambda self, job: False)
    with pytest.raises(Violation, match="keeps"):
        come_to_rest(script_of(OTHER_QUEUE_AT_ITS_PART))


def test_wrong_victims_of_another_queue_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: preempt takes what is less important wherever it runs."""
    come_to_rest(script_of(LESS_ELSEWHERE))

    def anywhere(self: Preempt, session: Session, *given: Any, within: bool) -> bool:
        statement, task, job = given

        def preemptable_tasks() -> Iterator[TaskInfo]:
            theirs = running(
                j for j in self._search.reclaimable_jobs("preemptable") if j.priority < job.priority
            )
            return (other for other in theirs if other.job != job.uid)

        key = (job.uid, within)
        victims = partial(session.hooks.victims, "preemptable")
        candidates = self._search.candidates(key, preemptable_tasks)
        return self._search.place(statement, task, candidates, key, victims, "preempt")

    monkeypatch.setattr(Preempt, "_make_room", anywhere)
    with pytest.raises(Violation, match="of another queue is preempted"):
        come_to_rest(script_of(LESS_ELSEWHERE))


def test_wrong_what_is_more_important_goes_first_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: reclaim takes the most important pods of the other queue."""
    come_to_rest(script_of(HIGH_AND_LOW))
    right = VictimCandidates.on
    monkeypatch.setattr(VictimCandidates, "on", lambda self, row: right(self, row)[::-1])
    with pytest.raises(Violation, match=r"of lower (rank|priority), stays"):
        come_to_rest(script_of(HIGH_AND_LOW))


def test_wrong_a_queue_that_gives_to_its_betters_only_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: reclaim takes from jobs of lower priority alone."""
    come_to_rest(script_of(LOW_RECLAIMS))
    right = ProportionPlugin.victims

    def lower(self: ProportionPlugin, task: TaskInfo, candidates: list[TaskInfo]) -> list[TaskInfo]:
        jobs = self._session.jobs
        found = right(self, task, candidates)
        return [one for one in found if jobs[one.job].priority < jobs[task.job].priority]

    monkeypatch.setattr(ProportionPlugin, "victims", lower)
    with pytest.raises(Violation, match=r"waits, and .* could be evicted"):
        come_to_rest(script_of(LOW_RECLAIMS))


def test_wrong_cards_that_are_kept_while_cpu_is_plentiful_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: a queue gives nothing up as long as it has less than it wants of anything."""
    come_to_rest(script_of(CARDS))
    monkeypatch.setattr(ProportionPlugin, "_is_scarce", lambda *given: False)
    with pytest.raises(Violation, match=r"waits, and .* could be evicted"):
        come_to_rest(script_of(CARDS))


def test_wrong_what_a_gang_beyond_the_cluster_keeps_from_others_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: what such a gang wants counts like what others want."""
    come_to_rest(script_of(MORE_THAN_ALL))
    monkeypatch.setattr("stowplan.batch.session_plugins.proportion.can_start", lambda *given: True)
    with pytest.raises(Violation, match="waits, and"):
        come_to_rest(script_of(MORE_THAN_ALL))


def test_wrong_evictions_without_end_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues that are never satisfied reclaim from each other, as kube-batch's do."""
    monkeypatch.setattr(ProportionPlugin, "victims", everybody)
    monkeypatch.setattr(ProportionPlugin, "overused", lambda self, queue: False)
    monkeypatch.setattr(ProportionPlugin, "spares", lambda self, job: False)
    script = script_of(TWO_QUEUES)
    script.check = lambda session: None
    with pytest.raises(Violation, match="no rest"):
        come_to_rest(script)
