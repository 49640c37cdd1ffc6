"""The Hypothesis strategies, and what happens where Hypothesis is missing."""

import subprocess
import sys

from hypothesis import Phase, find, given, settings

from stowplan.columns.invariants import validate
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.testing import GeneratedCluster
from stowplan.testing.strategies import clusters, nodes, pods
from tests.soak import examples


@given(nodes("n7"), pods("p7", on="n7"))
def test_objects_have_the_names_that_were_asked_for(node: Node, pod: Pod) -> None:
    assert (node.name, pod.name, pod.node_name) == ("n7", "p7", "n7")


@settings(max_examples=examples(50))
@given(clusters(n_nodes_max=3, n_pods_max=2, n_pending_max=2))
def test_clusters_keep_to_their_size(scene: GeneratedCluster) -> None:
    assert len(scene.nodes) <= 3
    assert len(scene.pods) <= 2
    assert 1 <= len(scene.pending) <= 2
    validate(scene.table())


def test_examples_shrink_to_the_plainest() -> None:
    looking = settings(phases=(Phase.generate, Phase.shrink), database=None)
    node = find(nodes(), lambda node: bool(node.taints), settings=looking)
    assert (len(node.taints), node.spec.unschedulable, node.status.images) == (1, False, ())
    pod = find(pods(), lambda pod: bool(pod.spec.affinity), settings=looking)
    assert len(pod.spec.containers) == 1
    assert not pod.tolerations
    assert not pod.spec.volumes


def run_without_hypothesis(code: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.modules['hypothesis'] = None\n{code}"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_hypothesis_one_line_names_what_to_install() -> None:
    done = run_without_hypothesis("import stowplan.testing.strategies")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: stowplan.testing.strategies needs Hypothesis: pip install 'stowplan[testing]'"
    )


def test_without_hypothesis_everything_else_works() -> None:
    done = run_without_hypothesis(
        "from stowplan.testing import check_plugin, draw\n"
        "from stowplan.testing.generators.table_changes import random_steps\n"
        "class Mine:\n"
        "    name = 'Mine'\n"
        "    def score(self, node): return node.pod_limit % 101\n"
        "check_plugin(Mine, seeds=range(2))\n"
    )
    assert done.returncode == 0, done.stderr
