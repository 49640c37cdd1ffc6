"""Reading clusters from files, and the error lines of invalid input."""

from pathlib import Path

import pytest

from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.counts import count_of
from stowplan.inputs.input_error import InputError
from tests.simulation import openb_trace as trace

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 4, memory: 16Gi, pods: 110}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p1}
spec: {containers: [{name: main, resources: {requests: {cpu: 1}}}]}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main}]}}
"""


def write(folder: Path, **files: str) -> Path:
    """Files of a folder: `a_yaml=...` becomes a.yaml."""
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def read(folder: Path, **files: str) -> Cluster:
    return read_cluster(write(folder, **files))


def error_text(folder: Path, **files: str) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, **files)
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix(f"{folder}/")


# Valid input.


def test_documents_of_several_files_are_one_cluster(tmp_path: Path) -> None:
    cluster = read(tmp_path, a_yaml=f"{NODE}---\n{DEPLOYMENT}", b_yml=POD)
    assert [node.name for node in cluster.nodes] == ["n1"]
    assert [pod.key for pod in cluster.pending()] == ["shop/web-0", "shop/web-1", "default/p1"]


def test_a_daemon_set_sees_the_nodes_of_a_trace(tmp_path: Path) -> None:
    agent = DEPLOYMENT.replace("Deployment", "DaemonSet").replace("  replicas: 2\n", "")
    cluster = read(tmp_path, a_yaml=agent, nodes_csv=trace.nodes(5))
    assert len(cluster.pods) == 5


def test_kinds_that_are_passed_over_are_reported(tmp_path: Path) -> None:
    other = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
    assert read(tmp_path, a_yaml=f"{NODE}---\n{other}").ignored == {"Secret": 1}


def test_pods_are_bound_waiting_leaving_or_finished(tmp_path: Path) -> None:
    def pod(name: str, spec: str = "{}", status: str = "{}", meta: str = "") -> str:
        head = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}{meta}}}\n"
        return f"{head}spec: {spec}\nstatus: {status}\n---\n"

    text = (
        pod("bound", "{nodeName: n1}")
        + pod("away", "{nodeName: elsewhere}")
        + pod("done", "{nodeName: n1}", "{phase: Succeeded}")
        + pod("never-ran", status="{phase: Failed}")
        + pod("leaving", meta=", deletionTimestamp: 2026-01-01T00:00:00Z")
        + pod("late", meta=", creationTimestamp: 2026-01-01T00:00:02Z")
        + pod("undated")
        + pod("early", meta=", creationTimestamp: 2026-01-01T00:00:01Z")
    )
    cluster = read(tmp_path, a_yaml=text + NODE)
    assert [p.name for p in cluster.bound()] == ["bound"]
    assert [p.name for p in cluster.pending()] == ["early", "late", "away", "undated"]
    assert [info.pod.name for info in cluster.table().pods[0]] == ["bound"]


def test_the_form_is_detected_where_the_name_has_no_suffix(tmp_path: Path) -> None:
    for name, text in {"nodes": trace.nodes(3), "pods": POD, "more": '{"kind": "List"}'}.items():
        (tmp_path / name).write_text(text)
    cluster = read_cluster([tmp_path / "nodes", tmp_path / "pods", tmp_path / "more"])
    assert (len(cluster.nodes), len(cluster.pods)) == (3, 1)


def test_a_single_path_is_accepted(tmp_path: Path) -> None:
    write(tmp_path, a_yaml=NODE)
    assert len(read_cluster(str(tmp_path / "a.yaml")).nodes) == 1


# Invalid input.


def test_no_path() -> None:
    with pytest.raises(InputError, match=r"^cluster: Required value: expected at least one path$"):
        read_cluster([])


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_cluster([tmp_path / "a.yaml"])
    wanted = "no such file or directory: expected a readable file"
    assert str(caught.value) == f"{tmp_path}/a.yaml: {wanted}"


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        (
            {"a_yaml": f"{NODE}---\n# b\n---\n{POD.replace('cpu: 1', 'cpu: 1x')}"},
            "a.yaml: document 3, line 8: Pod default/p1: "
            "spec.containers[0].resources.requests.cpu: Invalid value: '1x': "
            "expected a quantity: a decimal "
            "number, with or without one of the suffixes n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or "
            "an exponent such as e3",
        ),
        (
            {"a_yaml": NODE.replace("16Gi", "-1")},
            "a.yaml: document 1, line 1: Node n1: status.allocatable.memory: "
            'Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            {"a_yaml": POD.replace("[{name: main,", "[{name: 5,")},
            "a.yaml: document 1, line 1: Pod default/p1: spec.containers[0].name: "
            "Invalid value: 5: expected a string",
        ),
        (
            {"a_json": '{"apiVersion": "v1", "kind": "Pod"}'},
            "a.json: document 1: Pod: metadata.name: Required value: "
            "name or generateName is required",
        ),
        (
            {"a_yaml": NODE, "b_yaml": f"{POD}---\n{NODE}"},
            "b.yaml: document 2, line 6: Node n1: Duplicate value: "
            "first defined in {folder}/a.yaml: document 1, line 1",
        ),
        (
            {"a_yaml": f"{NODE}---\n{POD}---\n{POD}"},
            "a.yaml: document 3, line 11: Pod default/p1: Duplicate value: "
            "first defined in {folder}/a.yaml: document 2, line 6",
        ),
        (
            {"a_csv": trace.nodes(2), "b_csv": trace.nodes(1)},
            "b.csv: line 2: Node node-000: Duplicate value: "
            "first defined in {folder}/a.csv: line 2",
        ),
        (
            {"a_csv": trace.nodes(2), "p_csv": trace.pods(3) + trace.pods(1).split("\n")[1]},
            "p.csv: line 5: Pod default/pod-0000: Duplicate value: "
            "first defined in {folder}/p.csv: line 2",
        ),
        (
            {"a_csv": trace.nodes(2).replace("64000", "many")},
            "a.csv: line 2, cpu_milli: Invalid value: 'many': "
            "expected a whole number from 0 to 1000000000000",
        ),
        (
            {"a_yaml": NODE, "b_yaml": DEPLOYMENT.replace("replicas: 2", "replicas: -2")},
            "b.yaml: document 1, line 1: Deployment shop/web: spec.replicas: "
            "Invalid value: -2: must be greater than or equal to 0",
        ),
        (
            {"a_yaml": NODE, "b_yaml": DEPLOYMENT.replace("replicas: 2", "replicas: 1000001")},
            "b.yaml: document 1, line 1: Deployment shop/web: spec.replicas: "
            "Invalid value: 1000001: expected a whole number from 0 to 1000000",
        ),
        (
            {"a_yaml": NODE + "status: {}\n"},
            "a.yaml: line 5, column 1: the key 'status' again: expected each key once",
        ),
    ],
)
def test_bad_input(tmp_path: Path, files: dict[str, str], wanted: str) -> None:
    assert error_text(tmp_path, **files) == wanted.replace("{folder}", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "n_pods"), [(POD, 1), ("", 0), ("# nothing\n", 0), (DEPLOYMENT, 2)]
)
def test_a_cluster_without_nodes(tmp_path: Path, text: str, n_pods: int) -> None:
    write(tmp_path, a_yaml=text)
    with pytest.raises(InputError) as caught:
        read_cluster(tmp_path)
    wanted = f"no nodes ({count_of(n_pods, 'pod')}): expected a cluster with at least one node"
    assert str(caught.value) == f"{tmp_path}: {wanted}"


def test_nesting_that_no_object_has(tmp_path: Path) -> None:
    deep = '{"a": ' * 200_000 + "null" + "}" * 200_000
    text = f'{{"apiVersion": "v1", "kind": "Pod", "spec": null, "x": {deep}}}'
    assert "deeper nesting: expected" in error_text(tmp_path, a_json=text)
