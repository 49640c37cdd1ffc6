"""Manifests are validated by the API server's rules; objects that it has stored are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.inputs.validation.object_validation import PROBLEMS_MAX

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 4, memory: 16Gi, pods: 110}}
---
"""
GOOD = "name: main"


def pod(spec: str = "", container: str = GOOD, meta: str = "") -> str:
    return f"""\
apiVersion: v1
kind: Pod
metadata: {{name: web{meta}}}
spec: {{{spec}{", " if spec else ""}containers: [{{{container}}}]}}
"""


def read(folder: Path, text: str, validate: str = "auto") -> Cluster:
    path = folder / "a.yaml"
    path.write_text(NODE + text)
    return read_cluster(path, validate=validate)


def errors(folder: Path, text: str, validate: str = "auto") -> list[str]:
    with pytest.raises(InputError) as caught:
        read(folder, text, validate)
    head = f"{folder}/a.yaml: "
    return [line.removeprefix(head).partition(": ")[2] for line in str(caught.value).split("\n")]


MISTAKES = {
    "a misspelt field": (
        pod("tolerationz: []"),
        'unknown field "spec.tolerationz" (did you mean "tolerations"?)',
    ),
    "another case": (
        pod("nodeselector: {a: b}"),
        'unknown field "spec.nodeselector" (did you mean "nodeSelector"?)',
    ),
    "one inside a list": (
        pod(container="name: main, resources: {request: {cpu: 1}}"),
        'unknown field "spec.containers[0].resources.request" (did you mean "requests"?)',
    ),
    "one that belongs above": (
        pod(container="name: main, nodeSelector: {a: b}"),
        'unknown field "spec.containers[0].nodeSelector" (did you mean "spec.nodeSelector"?)',
    ),
    "one that is like none": (pod("zzz: 1"), 'unknown field "spec.zzz"'),
    "a misspelt field of a toleration": (
        pod("tolerations: [{key: a, operater: Exists}]"),
        'unknown field "spec.tolerations[0].operater" (did you mean "operator"?)',
    ),
    "an operator that there is not": (
        pod("tolerations: [{key: a, operator: Exist}]"),
        'spec.tolerations[0].operator: Unsupported value: "Exist": supported values:',
    ),
    "a word that there is not": (
        pod("restartPolicy: Sometimes"),
        'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always",',
    ),
    "a selector": (
        pod(meta=", labels: {a: b c}"),
        'metadata.labels: Invalid value: "b c": a valid label must',
    ),
    "a quantity": (
        pod(container="name: main, resources: {requests: {cpu: 1x}}"),
        "spec.containers[0].resources.requests.cpu: Invalid value: '1x': expected a quantity",
    ),
    "a quantity of a field that is not read": (
        pod("volumes: [{name: v, emptyDir: {sizeLimit: 1x}}]"),
        "spec.volumes[0].emptyDir.sizeLimit: Invalid value: '1x': expected a quantity",
    ),
    "a request below 0": (
        pod(container='name: main, resources: {requests: {cpu: "-1"}}'),
        'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or',
    ),
    "a request above its limit": (
        pod(container="name: main, resources: {requests: {cpu: 2}, limits: {cpu: 1}}"),
        'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to',
    ),
}


@pytest.mark.parametrize(("text", "wanted"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_pod(tmp_path: Path, text: str, wanted: str) -> None:
    (line,) = errors(tmp_path, text)
    assert line.startswith(("Pod default/web: " + wanted, wanted)), line


def test_templates_of_workloads_are_validated(tmp_path: Path) -> None:
    text = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  containers: [{name: main}]
  template: {spec: {dnsPolicy: None of these, containers: [{name: main}]}}
"""
    misplaced, word = errors(tmp_path, text)
    assert misplaced.endswith(
        'unknown field "spec.containers" (did you mean "spec.template.spec.containers"?)'
    )
    assert 'spec.template.spec.dnsPolicy: Unsupported value: "None of these"' in word


def test_all_mistakes_of_all_objects_are_reported(tmp_path: Path) -> None:
    text = pod("zzz: 1, yyy: 2") + "---\n" + pod("xxx: 1").replace("web", "db")
    assert [line.partition(": ")[2] for line in errors(tmp_path, text)] == [
        'unknown field "spec.zzz"',
        'unknown field "spec.yyy"',
        'unknown field "spec.xxx"',
    ]


def test_values_that_cannot_be_read_hide_no_other_mistake(tmp_path: Path) -> None:
    container = (
        "name: main, resources: {requests: {cpu: 1x, nvidia.com/gpu: 2y}, "
        "limits: {memory: 3z}}, terminationMessagePolicy: Loud"
    )
    text = pod("restartPolicy: Sometimes, hostIPC: 7, zzz: 1", container=container)
    found = errors(tmp_path, text.replace("name: web", "name: Web"))
    starts = [
        'unknown field "spec.zzz"',
        "metadata.name: Invalid value",
        "spec.containers[0].resources.limits.memory: Invalid value: '3z': expected",
        "spec.containers[0].resources.requests.cpu: Invalid value: '1x'",
        "spec.containers[0].resources.requests['nvidia.com/gpu']: Invalid value: '2y': expected",
        "spec.containers[0].terminationMessagePolicy: Unsupported value",
        "spec.hostIPC: json: cannot unmarshal number",
        "spec.restartPolicy: Unsupported value",
    ]
    assert len(found) == len(starts), found
    for start in starts:
        assert sum(line.startswith(f"Pod default/Web: {start}") for line in found) == 1, start


def test_mistakes_are_bounded(tmp_path: Path) -> None:
    several = "---\n".join(pod("zzz: 1").replace("web", f"p{n}") for n in range(PROBLEMS_MAX + 7))
    with pytest.raises(InputError) as caught:
        read(tmp_path, several)
    lines = str(caught.value).split("\n")
    assert (len(lines), lines[-1]) == (PROBLEMS_MAX + 1, "and 7 more errors")


def test_pods_that_are_alike_but_for_their_names_are_all_filtered(tmp_path: Path) -> None:
    text = pod() + "---\n" + pod().replace("name: web", "name: Not_A_Name")
    (line,) = errors(tmp_path, text)
    assert 'metadata.name: Invalid value: "Not_A_Name"' in line


@pytest.mark.parametrize("meta", [", uid: 1-2-3", ', resourceVersion: "7"'])
def test_what_an_api_server_stored_is_not_validated(tmp_path: Path, meta: str) -> None:
    text = pod("zzz: 1", meta=meta)
    assert len(read(tmp_path, text).pods) == 1
    (line,) = errors(tmp_path, text.replace("{name: main}", GOOD_IMAGE), "strict")
    assert line.endswith('unknown field "spec.zzz"')


GOOD_IMAGE = "{name: main, image: web}"


def test_a_list_of_a_server_may_hold_objects_of_people(tmp_path: Path) -> None:
    text = """\
apiVersion: v1
kind: List
metadata: {resourceVersion: "7"}
items:
- {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {zzz: 1}}
"""
    assert errors(tmp_path, text) == ['Pod default/web: unknown field "spec.zzz"']


def test_what_is_left_out_and_never_read_is_a_mistake_only_where_asked(tmp_path: Path) -> None:
    job = """\
---
apiVersion: batch/v1
kind: Job
metadata: {name: j}
spec: {template: {spec: {containers: [{name: main}]}}}
"""
    assert len(read(tmp_path, pod() + job).pods) == 2
    lines = errors(tmp_path, pod() + job, "strict")
    assert lines[0] == "Pod default/web: spec.containers[0].image: Required value"
    assert any("restartPolicy" in line for line in lines)


def test_mistakes_can_be_notes_or_nothing(tmp_path: Path) -> None:
    cluster = read(tmp_path, pod("zzz: 1"), "warn")
    assert [note.partition("Pod ")[2] for note in cluster.notes][-1].endswith(
        'unknown field "spec.zzz"'
    )
    assert read(tmp_path, pod("zzz: 1"), "ignore").notes == []


def test_the_word_for_how_to_validate_is_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected one of auto, strict, warn, ignore"):
        read(tmp_path, pod(), "loud")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\n"
            "metadata: {name: g}\nspec: {minMembers: 3}\n",
            'PodGroup default/g: unknown field "spec.minMembers" (did you mean "minMember"?)',
        ),
        (
            "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: j}\n"
            "spec: {tasks: [{replica: 3}]}\n",
            'Job default/j: unknown field "spec.tasks[0].replica" (did you mean "replicas"?)',
        ),
    ],
)
def test_custom_kinds_that_are_read_are_validated_too(
    tmp_path: Path, text: str, wanted: str
) -> None:
    assert errors(tmp_path, text) == [wanted]


@pytest.mark.parametrize(
    ("kind", "spec", "wanted"),
    [
        (
            "PersistentVolumeClaim",
            'accessModes: [ReadWriteOnce], resources: {requests: {storage: "-1"}}',
            'spec.resources[storage]: Invalid value: "-1": must be greater than zero',
        ),
        (
            "ResourceQuota",
            'hard: {requests.cpu: "-1"}',
            'spec.hard[requests.cpu]: Invalid value: "-1": must be greater than or equal to 0',
        ),
    ],
)
def test_an_amount_below_0_is_one_mistake(
    tmp_path: Path, kind: str, spec: str, wanted: str
) -> None:
    text = f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: c}}\nspec: {{{spec}}}\n"
    assert errors(tmp_path, text) == [f"{kind} default/c: {wanted}"]


def test_services_and_claims_need_no_server(tmp_path: Path) -> None:
    text = """\
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {selector: {a: b}, type: NodePort, ports: [{port: 80}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""
    assert len(read(tmp_path, text, "strict").objects) == 2
