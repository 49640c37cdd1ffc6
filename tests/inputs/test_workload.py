"""The generated workload: sizes, determinism, and variety."""

import pytest

from stowplan.inputs.generated_workload import POOLS, TEMPLATES, generate_workload
from stowplan.inputs.manifests import quantity_error


@pytest.mark.parametrize(("n_nodes", "n_pods"), [(1, 0), (2, 1), (7, 13), (50, 100), (1000, 5000)])
def test_sizes(n_nodes: int, n_pods: int) -> None:
    cluster = generate_workload(n_nodes, n_pods)
    assert len({node.name for node in cluster.nodes}) == len(cluster.nodes) == n_nodes
    assert len({pod.key for pod in cluster.pods}) == len(cluster.pods) == n_pods


def test_the_seed_decides() -> None:
    first, again, other = (
        generate_workload(50, 200, 1),
        generate_workload(50, 200, 1),
        generate_workload(50, 200, 2),
    )
    assert (first.nodes, first.pods, first.objects) == (again.nodes, again.pods, again.objects)
    assert first.nodes != other.nodes
    assert first.pods != other.pods


def test_all_kinds_of_pods_occur() -> None:
    cluster = generate_workload()
    assert len({node.labels["topology.kubernetes.io/zone"] for node in cluster.nodes}) == 3
    pools = {node.labels["stowplan.dev/pool"] for node in cluster.nodes}
    assert pools == {pool.name for pool in POOLS}
    used = {pod.name.rsplit("-", 2)[0] for pod in cluster.pods}
    assert used == {template.name for template in TEMPLATES}
    assert len({id(pod.spec) for pod in cluster.pods}) == len(TEMPLATES)


def test_quantities_can_be_read() -> None:
    cluster = generate_workload(50, 500)
    amounts = [q for node in cluster.nodes for q in node.status.allocatable.values()]
    for pod in cluster.pods:
        amounts += [q for c in pod.spec.containers for q in c.resources.requests.values()]
    assert not any(map(quantity_error, amounts))
