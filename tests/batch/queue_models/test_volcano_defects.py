"""Each defect of Volcano that is mended by default, with both answers."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from stowplan.batch.queue_models.volcano.model.volcano_objects import VolcanoObjects, cluster_of
from stowplan.batch.queue_models.volcano.plugins.jobs.tdm import is_within
from stowplan.batch.queue_models.volcano.plugins.nodes.vgpu_cards import NodeCards, VgpuCard
from stowplan.batch.queue_models.volcano.volcano_defects import (
    ALL_DEFECTS,
    BOUND_RUNS,
    EMPTY_INTERSECTION,
    MEMORY_PERCENTAGE,
    SPREAD_SCORE,
)
from stowplan.batch.queue_models.volcano.volcano_hooks import HookTable, VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_options import VolcanoOptions, VolcanoPluginOption
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.nodetable import table_of
from stowplan.config.session_configuration import VOLCANO_1_15
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.encoding.json_codec import decode
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue
from tests.batch.queue_models.test_volcano_queues import random_cluster
from tests.batch.queue_models.volcano_clusters import SessionCluster, node, queue, tiers


def pod(text: str) -> Pod:
    return decode(text.encode(), Pod)


@pytest.mark.parametrize(("compat", "deserved"), [("", 0.0), (VOLCANO_1_15, 2000.0)])
def test_a_limit_stays_when_guarantees_use_up_a_scalar(compat: str, deserved: float) -> None:
    gpu = {"nvidia.com/gpu": "2"}
    queues = [queue("all", guarantee=gpu), queue("none", deserved=gpu)]
    cluster = SessionCluster([node("n", gpu=2)], queues, tiers("gang capacity predicates"))
    cluster.add_job("job", "none", 1, cpu=1, gpu=1)
    found = cluster.run(compat)["queuesOpen"]["none"]
    assert found["deserved"]["nvidia.com/gpu"] == deserved


class Chooser(VolcanoPlugin):
    """Chooses tasks by name."""

    chosen: ClassVar[str] = ""

    def preemptable(self, task: Any, others: list[VolcanoTask]) -> list[VolcanoTask]:
        return [other for other in others if other.pod.name in self.chosen]


@pytest.mark.parametrize(("mends", "victims"), [((), ["c"]), ((EMPTY_INTERSECTION,), [])])
def test_an_intersection_without_tasks_stays_so(mends: tuple[str, ...], victims: list[str]) -> None:
    tasks = [VolcanoTask.of(pod(f'{{"metadata": {{"name": "{name}"}}}}')) for name in "abc"]
    plugins: dict[str, VolcanoPlugin] = {}
    for name in "abc":
        plugins[name] = type("Chooser", (Chooser,), {"name": name, "chosen": name})({})
    tier = [VolcanoPluginOption(name, frozenset({"enablePreemptable"})) for name in "abc"]
    found = HookTable([tier], plugins, mends).victims("preemptable", tasks[0], tasks)
    assert [task.pod.name for task in found] == victims


@pytest.mark.parametrize(("compat", "n_evicted"), [("", 0), (VOLCANO_1_15, 4)])
def test_a_permissive_plugin_alone_in_a_tier_does_not_decide(compat: str, n_evicted: int) -> None:
    queues = [queue("full", deserved={"cpu": "8"}), queue("poor", deserved={"cpu": "8"})]
    config = tiers("conformance", "gang capacity predicates", actions="reclaim")
    cluster = SessionCluster([node("n")], queues, config)
    cluster.add_job("old", "full", 8, running="n", cpu=1)
    cluster.add_job("new", "poor", 1, cpu=4)
    cluster.groups[-1]["status"] = {"phase": "Inqueue"}
    assert len(cluster.run(compat)["evicts"]) == n_evicted


@pytest.mark.parametrize(
    ("mends", "status"), [((), TaskStatus.RUNNING), ((BOUND_RUNS,), TaskStatus.BOUND)]
)
def test_a_bound_pod_is_bound_again(mends: tuple[str, ...], status: TaskStatus) -> None:
    bound = pod(
        '{"metadata": {"name": "p", "annotations": {"scheduling.k8s.io/group-name": "g"}},'
        ' "spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}'
    )
    table = table_of([decode(b'{"metadata": {"name": "n"}}', Node)], [bound])
    objects = VolcanoObjects(
        [bound],
        [decode(b'{"metadata": {"name": "g"}, "spec": {"queue": "q"}}', PodGroup)],
        [decode(b'{"metadata": {"name": "q"}}', Queue)],
    )
    options = VolcanoOptions((), (), {}, frozenset(mends))
    session = VolcanoSession(cluster_of(table, objects), options, None, {})  # type: ignore[arg-type]
    (task,) = session.jobs["default/g"].tasks.values()
    session.evict(task)
    session.undo_evict(task)
    assert task.status is status


@pytest.mark.parametrize(
    ("minute", "nights", "inside"),
    [
        (60, True, True),
        (60, False, False),
        (23 * 60, False, True),
        (12 * 60, True, False),
    ],
)
def test_a_window_over_midnight(minute: int, nights: bool, inside: bool) -> None:
    assert is_within("22:00-06:00", minute, nights=nights) is inside


def asking(**limits: str) -> Pod:
    given = ", ".join(f'"volcano.sh/vgpu-{key}": "{value}"' for key, value in limits.items())
    given = given.replace("_", "-")
    return pod(f'{{"spec": {{"containers": [{{"resources": {{"limits": {{{given}}}}}}}]}}}}')


@pytest.mark.parametrize(("mends", "memory"), [((), 1000), ((MEMORY_PERCENTAGE,), 250)])
def test_the_percentage_of_memory_counts(mends: tuple[str, ...], memory: int) -> None:
    cards = NodeCards([VgpuCard(0, "GPU-0", 4, 1000, "NVIDIA-A100")], "hami-core")
    choice = cards.choose(asking(number="1", memory_percentage="25"), "", mends)
    assert choice is not None
    assert choice.shares[0][0].memory == memory


@pytest.mark.parametrize(("mends", "score"), [((), 0.0), ((SPREAD_SCORE,), 100.0)])
def test_an_unused_card_scores_with_spread(mends: tuple[str, ...], score: float) -> None:
    cards = NodeCards([VgpuCard(0, "GPU-0", 4, 1000, "NVIDIA-A100")], "hami-core")
    choice = cards.choose(asking(number="1", memory="100"), "spread", mends)
    assert choice is not None
    assert choice.score == score


@pytest.mark.parametrize(("compat", "goes_on"), [("", False), (VOLCANO_1_15, True)])
def test_room_made_by_evictions_is_not_taken_by_others(compat: str, goes_on: bool) -> None:
    cluster = random_cluster(3)
    evicted = [len(cluster.run(compat)["evicts"]) for _ in range(8)]
    assert bool(evicted[-1]) is goes_on


def test_every_defect_has_a_case() -> None:
    assert len(ALL_DEFECTS) == 11
