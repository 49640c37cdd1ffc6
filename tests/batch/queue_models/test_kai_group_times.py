"""Times that KAI-Scheduler writes to PodGroups: they are written, and outlive a restart."""

from __future__ import annotations

import datetime

import pytest

from stowplan.batch.queue_models.kai.model.kai_memory import moment_of, time_text
from stowplan.benchmarks.sessions.kai_benchmarks import KaiBenchmark
from stowplan.messages import events as happened
from stowplan.messages.effects import AnnotateGroup, Evict
from stowplan.messages.events import Event
from stowplan.objects.kai.kai_kinds import KaiPodGroupObject, KaiPodGroupSpec
from stowplan.objects.meta import ObjectMeta
from tests.batch.queue_models.test_kai_time import Idle

SECOND = 10**9
STARTED, STALE, EVICTED = (
    f"kai.scheduler/{name}-timestamp" for name in ("last-start", "stale-podgroup", "last-eviction")
)
ASKS = ("1", "1Gi", "1")


def group(name: str, least: int, notes: dict[str, str], **spec: str) -> KaiPodGroupObject:
    meta = ObjectMeta(name=name, namespace="ns", uid=name, annotations=notes)
    return KaiPodGroupObject(meta, spec=KaiPodGroupSpec(queue="q", min_member=least, **spec))


def text(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def written(cluster: KaiBenchmark) -> list[tuple[str, dict[str, str | None]]]:
    """(group, annotations) of each write; they are forgotten."""
    found = [(e.name, e.annotations) for e in cluster.effects if isinstance(e, AnnotateGroup)]
    cluster.effects[:] = [e for e in cluster.effects if not isinstance(e, AnnotateGroup)]
    return found


def gang_of(cluster: KaiBenchmark, notes: dict[str, str], nodes: tuple[int, ...]) -> list[Event]:
    """A gang g that needs two pods, whose group has annotations."""
    _, *members = cluster.gang("g", "q", len(nodes) or 2, ASKS, nodes)
    return [happened.ObjectAdded(group("g", 2, notes)), *members]


def cluster_of(cards: int = 2, **queue: str) -> Idle:
    cluster = Idle(1, cards)
    cluster.show([cluster.queue("q", **queue)])
    cluster.now = 1000 * SECOND
    return cluster


def test_a_start_is_written_once_and_again_if_that_failed() -> None:
    cluster = cluster_of()
    cluster.show(gang_of(cluster, {}, ()))
    cluster.session(happened.Synced())
    began = {STARTED: text(cluster.now // SECOND)}
    assert written(cluster) == [("g", began)]
    cluster.settle()
    cluster.session()
    assert written(cluster) == []
    # The watch shows the group without it: the write failed.
    cluster.session(happened.ObjectUpdated(group("g", 2, {"other": "x"})))
    (effect,) = [one for one in cluster.effects if isinstance(one, AnnotateGroup)]
    assert (effect.name, effect.annotations) == ("g", began)
    cluster.effects.clear()
    cluster.session(happened.PatchFailed(effect.effect, effect.uid, 500))
    assert written(cluster) == [("g", began)]
    cluster.session(happened.ObjectUpdated(group("g", 2, {STARTED: str(began[STARTED])})))
    assert written(cluster) == []


def test_staleness_is_written_and_removed_again() -> None:
    cluster = cluster_of()
    cluster.show(gang_of(cluster, {}, (0, 0)))
    cluster.session(happened.Synced())
    gone = cluster.pods.pop("g-0")
    cluster.now = 1010 * SECOND
    cluster.session(happened.PodDeleted(gone))
    (known,) = written(cluster)
    assert known == ("g", {STALE: text(cluster.now // SECOND)})
    cluster.session(happened.ObjectUpdated(group("g", 2, {STALE: str(known[1][STALE])})))
    cluster.pods["g-0"] = gone
    cluster.session(happened.PodAdded(gone))
    assert written(cluster) == [("g", {STALE: None})]


@pytest.mark.parametrize("zone", ["Z", "+00:00"])
def test_a_gang_that_was_stale_before_a_restart_has_what_is_left_of_its_grace_period(
    zone: str,
) -> None:
    cluster = cluster_of()
    since = text(1000 - 50).removesuffix("Z") + zone
    cluster.show(gang_of(cluster, {STALE: since}, (0,)))
    cluster.session(happened.Synced())
    assert written(cluster) == []
    assert cluster.until(5) == []
    assert cluster.until(10) == ["g-0"]


def test_a_minimum_runtime_goes_on_after_a_restart() -> None:
    cluster = cluster_of(preempt_min_runtime="5m")
    cluster.show(gang_of(cluster, {STARTED: text(1000 - 200)}, (0, 0)))
    cluster.session(happened.Synced())
    high = cluster.gang("high", "q", 1, ASKS, priority_class_name="build-preemptible")
    cluster.session(*high)
    assert cluster.until(90) == []
    assert cluster.until(20)


def test_a_start_that_another_scheduler_writes_counts() -> None:
    cluster = cluster_of(preempt_min_runtime="5m")
    cluster.show(gang_of(cluster, {STARTED: text(0)}, (0, 0)))
    cluster.session(happened.Synced())
    cluster.session(happened.ObjectUpdated(group("g", 2, {STARTED: text(1000)})))
    high = cluster.gang("high", "q", 1, ASKS, priority_class_name="build-preemptible")
    cluster.session(*high)
    assert cluster.until(200) == []
    assert cluster.until(200)


def test_the_time_of_an_eviction_is_written_and_delays_what_the_job_may_evict() -> None:
    cluster = cluster_of(1)
    low = group("g", 1, {}, preemption_delay="10m", priority_class_name="build-preemptible")
    _, pod = cluster.gang("g", "q", 1, ASKS, (0,))
    cluster.show([happened.ObjectAdded(low), pod])
    cluster.session(happened.Synced())
    spec = {"priority_class_name": "inference", "preemptibility": "preemptible"}
    cluster.session(*cluster.gang("high", "q", 1, ASKS, **spec))
    (gone,) = [one for one in cluster.effects if isinstance(one, Evict)]
    assert ("g", {EVICTED: text(cluster.now // SECOND)}) in written(cluster)
    # It waits again, and the room is taken by a job that it could preempt.
    cluster.effects.clear()
    deleted = [happened.PodDeleted(cluster.pods.pop(name)) for name in (gone.name, "high-0")]
    cluster.now = 1100 * SECOND
    least = cluster.gang("least", "q", 1, ASKS, (0,))
    _, again = cluster.gang("g", "q", 1, ASKS)
    cluster.session(*deleted, *least, again)
    assert cluster.until(450) == []
    assert cluster.until(100) == ["least-0"]


def test_times_are_read_as_kai_writes_them() -> None:
    assert time_text(0.9) == "1970-01-01T00:00:00Z"
    assert moment_of(time_text(12345.0)) == 12345.0
    assert moment_of("1970-01-01T01:00:00+01:00") == 0.0
    assert moment_of("1970-01-01T01:00:00") is None
    assert moment_of("yesterday") is None
