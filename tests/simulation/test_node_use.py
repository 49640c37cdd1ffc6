"""usage.json: shares of nodes over time, and what pods request."""

import base64
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from msgspec.structs import replace

from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.kai.kai_kinds import (
    KaiPodGroupObject,
    KaiPodGroupSpec,
    KaiQueueObject,
)
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.podgroup import GROUP_ANNOTATIONS, PodGroup, PodGroupSpec
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.results.node_use import (
    ABSENT,
    RESOURCES_MAX,
    SAMPLES_MAX,
    NodeUse,
    NodeUseSampler,
    as_steps,
    decode_runs,
    encode_runs,
    pod_table,
    resources_of,
)
from stowplan.simulation.simulate import Simulation, simulate
from stowplan.testing import builders

START = datetime(2026, 1, 1, tzinfo=UTC)


def timed_pods(n_pods: int = 40) -> list[builders.Pod]:
    found = []
    for k in range(n_pods):
        pod = builders.pod(f"p{k}", cpu=f"{1 + k % 3}", memory=f"{1 + k % 2}Gi")
        metadata = replace(
            pod.metadata,
            creation_timestamp=START + timedelta(minutes=k),
            annotations={RUN_ANNOTATION: str(300 + 60 * (k % 9))},
        )
        found.append(replace(pod, metadata=metadata))
    return found


def cluster() -> Cluster:
    nodes = [builders.node(f"n{k}", cpu="4", memory="16Gi") for k in range(3)]
    return Cluster(nodes, [builders.pod("there", cpu="1", on="n2"), *timed_pods()])


def shares(use: NodeUse) -> np.ndarray:
    return decode_runs(use.shares, (len(use.resources), len(use.nodes), len(use.at)))


def recount(run: Simulation, late: float = 0.0) -> np.ndarray:
    """The shares from `placements.jsonl` and the requests; `there` is not in it and runs on."""
    use = run.node_use
    assert use is not None
    amounts = np.zeros((len(use.resources), len(use.nodes), len(use.at)))
    amounts[use.resources.index("cpu"), use.nodes.index("n2")] = 1000
    for placement, size in zip(run.placements, use.pod_sizes, strict=True):
        bound = placement.bound_s + late
        ended = np.inf if placement.ended_s is None else placement.ended_s
        is_there = (np.array(use.at) >= bound) & (np.array(use.at) < ended)
        row = use.nodes.index(placement.node)
        for k, asked in enumerate(use.sizes[size]):
            amounts[k, row, is_there] += asked
    offered = np.array(use.allocatable).T[:, :, None]
    return as_steps(amounts, offered)


def test_shares_of_a_replay_are_those_of_its_placements() -> None:
    run = simulate(cluster(), replay=ReplayOptions(sample_s=37.0))
    assert run.node_use is not None
    assert run.node_use.resources == ["cpu", "memory"]
    found = shares(run.node_use)
    assert found.max() == 200
    # At the start the first pod is assumed on its node; it is bound 10 ms later.
    np.testing.assert_array_equal(found[:, :, 1:], recount(run)[:, :, 1:])
    # The recount notices a minute's delay.
    assert (recount(run, late=60.0) != found)[:, :, 1:].any()


def test_shares_of_a_fill_end_as_the_cluster_does() -> None:
    run = simulate(cluster())
    use = run.node_use
    assert use is not None
    assert (use.axis, use.at[0], use.at[-1]) == ("pods", 0.0, 40.0)
    found = shares(use)
    cpu = use.resources.index("cpu")
    assert found[cpu, :, 0].tolist() == [0, 0, 50]
    assert (np.diff(found.astype(int), axis=2) >= 0).all()
    share = run.summary["utilisation"]["cpu"]["share"]
    assert found[cpu, :, -1].sum() / 3 == pytest.approx(200 * share)
    placed = np.array([bool(one.node) for one in run.placements[:10]])
    milli = np.array([use.sizes[k][cpu] for k in use.pod_sizes[:10]])
    at = use.at.index(10.0)
    assert found[cpu, :, at].sum() / 200 * 4000 == pytest.approx(1000 + (milli * placed).sum())


def test_nodes_that_come_and_go_are_absent() -> None:
    sampler = NodeUseSampler(["cpu"])
    table = Cluster([builders.node("a", cpu="4"), builders.node("b", cpu="8")], []).table()
    sampler.take(0, table)
    table.remove_node("a")
    table.add_node(builders.node("c", cpu="2"))
    table.refresh()
    sampler.take(10**9, table)
    use = sampler.result([], [])
    assert (use.nodes, use.at) == (["a", "b", "c"], [0.0, 1.0])
    assert shares(use)[0].tolist() == [[0, ABSENT], [0, 0], [ABSENT, 0]]
    assert use.allocatable == [[4000], [8000], [2000]]


def test_samples_are_thinned_out() -> None:
    sampler = NodeUseSampler(["cpu"])
    table = Cluster([builders.node("a", cpu="4")], []).table()
    for k in range(5 * SAMPLES_MAX):
        sampler.take(k * 10**9, table)
    at = sampler.result([], []).at
    assert SAMPLES_MAX / 2 <= len(at) <= SAMPLES_MAX
    assert set(np.diff(at)) == {8.0}


def test_pods_are_grouped_by_the_queue_that_they_name() -> None:
    """By label, by annotation, and by KAI's group; as the measures of an experiment do it."""

    def named(name: str, **metadata: dict[str, str]) -> builders.Pod:
        pod = builders.pod(name, cpu="1")
        return replace(pod, metadata=replace(pod.metadata, **metadata))

    pods = [
        named("a", labels={"kai.scheduler/queue": "team-a"}),
        named("b", annotations={"scheduling.volcano.sh/queue-name": "team-b"}),
        named("c", annotations={"pod-group-name": "g"}),
        named("d"),
    ]
    meta = ObjectMeta(name="g", namespace="default")
    group = KaiPodGroupObject(metadata=meta, spec=KaiPodGroupSpec(queue="team-c"))
    table = pod_table(pods, [group])
    assert table.grouped_by == "queue"
    assert table.groups == ["team-a", "team-b", "team-c", "default"]
    assert pod_table(pods[3:], []).grouped_by == "namespace"
    assert pod_table(pods[3:], [KaiQueueObject(metadata=meta)]).grouped_by == "queue"


def test_pods_are_grouped_by_queue_where_they_have_one() -> None:
    def grouped(name: str, group: str) -> builders.Pod:
        pod = builders.pod(name, cpu="1")
        metadata = replace(pod.metadata, annotations={GROUP_ANNOTATIONS[0]: group})
        return replace(pod, metadata=metadata)

    pods = [grouped("a", "g"), grouped("b", "none"), builders.pod("c", cpu="2")]
    assert pod_table(pods, []).grouped_by == "namespace"
    meta = ObjectMeta(name="g", namespace="default")
    table = pod_table(pods, [PodGroup(metadata=meta, spec=PodGroupSpec(queue="gold"))])
    assert (table.grouped_by, table.groups) == ("queue", ["gold", "default"])
    assert table.pod_groups == [0, 1, 1]
    assert table.sizes == [[1000], [2000]]


def test_gpus_come_first_and_few_resources_are_kept() -> None:
    names = {f"example.com/r{k}": "1" for k in range(RESOURCES_MAX)}
    pod = builders.pod("a", cpu="1", memory="1Gi", resources={**names, "nvidia.com/gpu": "1"})
    found = resources_of([pod])
    assert found[:3] == ["nvidia.com/gpu", "cpu", "memory"]
    assert len(found) == RESOURCES_MAX


@given(
    arrays(
        np.uint8,
        array_shapes(min_dims=3, max_dims=3, max_side=6).map(lambda s: (*s[:2], s[2] * 90)),
        elements=st.sampled_from([0, 1, 255]),
    )
)
def test_runs_read_back(values: np.ndarray) -> None:
    text = encode_runs(values)
    np.testing.assert_array_equal(decode_runs(text, values.shape), values)


def test_a_run_counts_up_to_256() -> None:
    text = encode_runs(np.zeros((1, 300), dtype=np.uint8))
    assert base64.b64decode(text) == bytes([0, 255, 0, 43])
    with pytest.raises(ValueError, match="reshape"):
        decode_runs(text, (1, 299))
