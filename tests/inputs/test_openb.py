"""OpenB CSV files: nodes, pods, and errors of lines."""

from pathlib import Path

import pytest

from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.inputs.openb import CARDS_COUNTED, GPU, GPU_MILLI, MODEL_LABEL, OpenBReader
from stowplan.objects.devices.gpu_cards import COUNT_KEY, MILLI_KEY, MODEL_KEY
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import amount
from stowplan.plugins.node_affinity.node_selector import matches_node_selector_and_affinity
from tests.simulation import openb_trace as trace


def parsed(text: str) -> list[Node | Pod]:
    return [found for _, found in OpenBReader().objects(text, "f.csv")]  # type: ignore[misc]


def the_node(line: str) -> Node:
    (found,) = parsed(f"{trace.NODE_HEADER}\n{line}\n")
    assert isinstance(found, Node)
    return found


def the_pod(line: str, header: str = trace.POD_HEADER) -> Pod:
    (found,) = parsed(f"{header}\n{line}\n")
    assert isinstance(found, Pod)
    return found


def error_text(text: str) -> str:
    with pytest.raises(InputError) as caught:
        parsed(text)
    return str(caught.value)


def asked(pod: Pod) -> dict[str, int]:
    (container,) = pod.spec.containers
    return {name: amount(name, q) for name, q in container.resources.requests.items()}


def test_a_node_with_cards() -> None:
    node = the_node("n1,64000,262144,2,P100")
    assert node.name == "n1"
    offered = {name: amount(name, q) for name, q in node.status.allocatable.items()}
    assert offered == {
        "cpu": 64_000,
        "memory": 262_144 << 20,
        "pods": 110,
        GPU: 2,
        GPU_MILLI: 2000,
        COUNT_KEY: 2,
    }
    models = {MODEL_LABEL: "P100", MODEL_KEY: "P100"}
    assert node.labels == {"kubernetes.io/hostname": "n1", **models}


def test_a_node_without_cards() -> None:
    node = the_node("n1,32000,262144,0,")
    assert set(node.status.allocatable) == {"cpu", "memory", "pods"}
    assert MODEL_LABEL not in node.labels


@pytest.mark.parametrize(
    ("cards", "gpu"),
    [
        ("0,0", {}),
        ("1,460", {GPU_MILLI: 460}),
        ("1,1000", {GPU_MILLI: 1000, GPU: 1}),
        ("8,1000", {GPU_MILLI: 8000, GPU: 8}),
        ("2,500", {GPU_MILLI: 1000}),
    ],
)
def test_a_pod_asks_for_thousandths_and_for_whole_cards(cards: str, gpu: dict[str, int]) -> None:
    pod = the_pod(f"p1,12000,16384,{cards},,LS,Running,0,9,1")
    assert asked(pod) == {"cpu": 12_000, "memory": 16_384 << 20, **gpu}


@pytest.mark.parametrize(
    ("cards", "annotations"),
    [
        ("0,0,", {}),
        ("1,460,", {COUNT_KEY: "1", MILLI_KEY: "460"}),
        ("8,1000,V100M32|P100", {COUNT_KEY: "8", MILLI_KEY: "1000", MODEL_KEY: "V100M32|P100"}),
    ],
)
def test_a_pod_asks_for_cards_as_gpu_share_reads_it(
    cards: str, annotations: dict[str, str]
) -> None:
    assert the_pod(f"p1,12000,16384,{cards},LS,Running,,,").metadata.annotations == annotations


@pytest.mark.parametrize(
    ("models", "fits"),
    [
        ("", {"T4", "P100", ""}),
        ("T4", {"T4"}),
        ("P100|T4", {"T4", "P100"}),
        ("T4|V100M16|T4", {"T4"}),
    ],
)
def test_a_pod_that_names_models_fits_on_those(models: str, fits: set[str]) -> None:
    pod = the_pod(f"p1,1,1,1,500,{models},LS,Running,0,9,1")
    labels = {model: {MODEL_LABEL: model} if model else {} for model in ("T4", "P100", "")}
    assert {
        model for model in labels if matches_node_selector_and_affinity(pod, labels[model], "n")
    } == fits


def test_models_are_named_once_and_in_one_order() -> None:
    pod = the_pod("p1,1,1,1,500,V100M32|T4|A10|P100|G2|T4,LS,Running,0,9,1")
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.node_affinity is not None
    required = pod.spec.affinity.node_affinity.required
    assert required is not None
    ((requirement,),) = (term.match_expressions for term in required.node_selector_terms)
    assert requirement.values == ("A10", "G2", "P100", "T4", "V100M32")


def test_the_first_five_columns_are_enough() -> None:
    pod = the_pod("p1,12000,16384,1,460", "name,cpu_milli,memory_mib,num_gpu,gpu_milli")
    assert asked(pod)[GPU_MILLI] == 460
    assert pod.metadata.creation_timestamp is None


def test_columns_may_be_in_any_order_with_others_between() -> None:
    pod = the_pod("460,1,x,p1,16384,12000", "gpu_milli,num_gpu,note,name,memory_mib,cpu_milli")
    assert asked(pod) == {"cpu": 12_000, "memory": 16_384 << 20, GPU_MILLI: 460}


def test_pods_of_one_shape_share_their_spec() -> None:
    lines = ["a,1,1,1,500,T4|P100,,,,,", "b,1,1,1,500,P100|T4,,,7,,", "c,1,1,1,500,T4,,,,,"]
    first, second, third = parsed("\n".join([trace.POD_HEADER, *lines]))
    assert first.spec is second.spec
    assert third.spec is not first.spec


def in_order(tmp_path: Path, *lines: str) -> list[str]:
    (tmp_path / "n.csv").write_text(f"{trace.NODE_HEADER}\nn1,1,1,0,\n")
    (tmp_path / "p.csv").write_text("\n".join([trace.POD_HEADER, *lines]))
    return [pod.name for pod in read_cluster(tmp_path).pending()]


def test_pods_arrive_by_creation_time_and_stably(tmp_path: Path) -> None:
    times = {"late": "20", "none": "", "first": "7", "second": "7.0", "early": "3.5", "last": ""}
    lines = [f"{name},1,1,0,0,,,,{time},," for name, time in times.items()]
    assert in_order(tmp_path, *lines) == ["early", "first", "second", "late", "none", "last"]


WANTED = "sn,cpu_milli,memory_mib,gpu,model (nodes) or name,cpu_milli,memory_mib,num_gpu,gpu_milli"
WANTED_COLUMNS = f"{WANTED} (pods); --trace-format names other formats"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "",
            f"f.csv: line 1: no header: expected {WANTED_COLUMNS}",
        ),
        (
            "a,b\n1,2\n",
            f"f.csv: line 1: Invalid value: 'a,b': expected {WANTED_COLUMNS}",
        ),
        (
            trace.NODE_HEADER + ",sn\nn,1,1,0,,n\n",
            "f.csv: line 1: duplicate column 'sn': expected each column once",
        ),
    ],
)
def test_invalid_headers(text: str, wanted: str) -> None:
    assert error_text(text) == wanted


WHOLE = "expected a whole number from 0 to 1000000000000"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("n2,1,1,0", "line 3: Invalid value: 4 cells: expected 5, as in the header"),
        ("n2,1,1,0,,", "line 3: Invalid value: 6 cells: expected 5, as in the header"),
        (",1,1,0,", "line 3, sn: Required value: expected a name"),
        ("n2,x,1,0,", f"line 3, cpu_milli: Invalid value: 'x': {WHOLE}"),
        ("n2,1.5,1,0,", f"line 3, cpu_milli: Invalid value: '1.5': {WHOLE}"),
        ("n2,1,-1,0,", f"line 3, memory_mib: Invalid value: '-1': {WHOLE}"),
        ("n2,1,,0,", f"line 3, memory_mib: Required value: {WHOLE}"),
        ("n2,1,99999999999999,0,", f"line 3, memory_mib: Invalid value: '99999999999999': {WHOLE}"),
        ("n2,1,1,\u0661,", f"line 3, gpu: Invalid value: '\u0661': {WHOLE}"),
        ("n2,1,1,1,T4|P100", "line 3, model: Invalid value: 'T4|P100': expected one model"),
        (
            "n2,1,1,1,a b",
            "line 3, model: Invalid value: 'a b': "
            "expected models that are valid label values, separated by |",
        ),
        (
            'n2,"1,1,0,',
            "line 3: Invalid value: 'n2,\"1,1,0,' (unexpected end of data): expected a line of CSV",
        ),
    ],
)
def test_lines_of_nodes_that_are_wrong(line: str, wanted: str) -> None:
    assert error_text(f"{trace.NODE_HEADER}\nn1,1,1,0,\n{line}\n") == f"f.csv: {wanted}"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "p,1,1,1,1001,,,,,,",
            "line 2, gpu_milli: Invalid value: '1001': expected a whole number from 0 to 1000",
        ),
        (
            "p,1,1,1,1,a b,,,,,",
            "line 2, gpu_spec: Invalid value: 'a b': "
            "expected models that are valid label values, separated by |",
        ),
        (
            "p,1,1,1,1,,,,noon,,",
            "line 2, creation_time: Invalid value: 'noon': "
            "expected seconds, from 0 to 253402300799",
        ),
        (
            "p,1,1,1,1,,,,1e20,,",
            "line 2, creation_time: Invalid value: '1e20': "
            "expected seconds, from 0 to 253402300799",
        ),
        (
            "p,1,1,1,1,,,,nan,,",
            "line 2, creation_time: Invalid value: 'nan': expected seconds, from 0 to 253402300799",
        ),
        ("p,1,1,?,1,,,,,,", f"line 2, num_gpu: Invalid value: '?': {WHOLE}"),
    ],
)
def test_lines_of_pods_that_are_wrong(line: str, wanted: str) -> None:
    assert error_text(f"{trace.POD_HEADER}\n{line}\n") == f"f.csv: {wanted}"


# Whole traces.


def check_trace(cluster: Cluster, n_nodes: int, n_pods: int) -> None:
    assert (len(cluster.nodes), len(cluster.pending())) == (n_nodes, n_pods)
    assert cluster.notes == [CARDS_COUNTED]
    assert len({id(pod.spec) for pod in cluster.pods}) < n_pods / 2
    times = [pod.metadata.creation_timestamp for pod in cluster.pending()]
    dated = [time for time in times if time is not None]
    assert dated == sorted(dated)


def test_a_small_trace(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(trace.nodes(20))
    (tmp_path / "pods.csv").write_text(trace.pods(60).replace("\n", "\r\n"))
    check_trace(read_cluster(tmp_path), 20, 60)


N_NODES = {"gpu": 1213, "all": 1523}
N_PODS = {
    "cpu100": 7853,
    "cpu250": 9420,
    "default": 8152,
    "gpushare100": 8152,
    "gpushare40": 8152,
    "gpuspec10": 8152,
    "gpuspec33": 8152,
    "multigpu20": 8324,
    "multigpu50": 9061,
}


@pytest.mark.slow
@pytest.mark.parametrize("workload", N_PODS)
@pytest.mark.parametrize("nodes", N_NODES)
def test_the_real_trace(nodes: str, workload: str) -> None:
    folder = trace.real()
    if folder is None:
        pytest.skip("STOWPLAN_TRACES names no folder with openb")
    paths = [
        folder / f"openb_node_list_{nodes}_node.csv",
        folder / f"openb_pod_list_{workload}.csv",
    ]
    cluster = read_cluster(paths)
    check_trace(cluster, N_NODES[nodes], N_PODS[workload])
    named = sum(pod.spec.affinity is not None for pod in cluster.pods)
    assert (named > 0) is workload.startswith("gpuspec")
