"""Jobs of other controllers are expanded to pods and gangs."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.inputs.cluster_reader import Cluster, read_cluster, read_workload
from stowplan.inputs.importers import IMPORTERS, LABELLED
from stowplan.inputs.input_error import InputError
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.simulation.simulate_jobs import simulate_jobs

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 8, memory: 16Gi, pods: 110}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: default}
spec: {weight: 1}
---
"""
TEMPLATE = "{spec: {containers: [{name: main, resources: {requests: {cpu: 2}}}]}}"
VOLCANO = f"""\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: mpi}}
spec:
  minAvailable: 2
  priorityClassName: system-node-critical
  plugins: {{ssh: []}}
  tasks:
  - {{name: master, replicas: 1, template: {TEMPLATE}}}
  - name: worker
    replicas: 2
    policies: [{{event: PodEvicted, action: RestartJob}}]
    template: {TEMPLATE}
"""
JOBSET = f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: js}}
spec:
  replicatedJobs:
  - {{name: leader, template: {{spec: {{template: {TEMPLATE}}}}}}}
  - name: workers
    replicas: 2
    dependsOn: [{{name: leader, status: Ready}}]
    template: {{spec: {{parallelism: 3, completions: 2, template: {TEMPLATE}}}}}
"""
PYTORCH = f"""\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: pt}}
spec:
  runPolicy: {{schedulingPolicy: {{minAvailable: 2, queue: research}}}}
  pytorchReplicaSpecs:
    Worker: {{replicas: 2, template: {TEMPLATE}}}
    Master: {{template: {TEMPLATE}}}
"""
TRAIN = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tj}
spec:
  runtimeRef: {name: torch}
  trainer: {numNodes: 3, resourcesPerNode: {requests: {cpu: 1}}}
"""
RUNTIME = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
spec:
  mlPolicy: {numNodes: 1, torch: {numProcPerNode: auto}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              spec: {nodeSelector: {pool: gpu}, containers: [{name: node, image: torch}]}
"""
KUEUE = f"""\
apiVersion: batch/v1
kind: Job
metadata: {{name: kj, labels: {{kueue.x-k8s.io/queue-name: lq}}}}
spec: {{suspend: true, parallelism: 2, completions: 2, template: {TEMPLATE}}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {{name: lq}}
spec: {{clusterQueue: cq}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {{name: cq}}
spec: {{resourceGroups: [{{coveredResources: [cpu], flavors: [{{name: f, resources:
  [{{name: cpu, nominalQuota: 4}}]}}]}}]}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: %s}
"""
CONFIG = """\
actions: "allocate, backfill"
tiers: [{plugins: [{name: gang}, {name: predicates}, {name: proportion}]}]
batch: {schedulerName: volcano}
"""


def read(folder: Path, *texts: str, validate: str = "auto") -> Cluster:
    path = folder / "a.yaml"
    path.write_text(NODE + "---\n".join(texts))
    return read_cluster(path, validate=validate)


def names(cluster: Cluster) -> list[str]:
    return [pod.name for pod in cluster.pods]


def groups(cluster: Cluster) -> dict[str, tuple[int, str]]:
    found = (one for one in cluster.objects if isinstance(one, PodGroup))
    return {one.name: (one.spec.min_member, one.spec.queue) for one in found}


def annotated(cluster: Cluster) -> set[str]:
    name = "scheduling.k8s.io/group-name"
    return {pod.metadata.annotations.get(name, "") for pod in cluster.pods}


def test_a_volcano_job(tmp_path: Path) -> None:
    cluster = read(tmp_path, VOLCANO)
    assert names(cluster) == ["mpi-master-0", "mpi-worker-0", "mpi-worker-1"]
    assert {pod.spec.scheduler_name for pod in cluster.pods} == {"volcano"}
    assert groups(cluster) == {"mpi": (2, "default")}
    assert annotated(cluster) == {"mpi"}
    (note,) = cluster.notes
    assert note == (
        "Job.batch.volcano.sh read as pods and gangs: default/mpi;"
        " not modelled: spec.plugins, spec.tasks[].policies"
    )
    assert cluster.ignored == {}


def test_a_volcano_job_is_expanded_as_by_its_controller(tmp_path: Path) -> None:
    cluster = read(tmp_path, VOLCANO)
    (group,) = (one for one in cluster.objects if isinstance(one, PodGroup))
    assert group.spec.min_resources == {"cpu": "4", "pods": "2"}


def test_a_volcano_job_needs_all_its_tasks_where_it_does_not_say(tmp_path: Path) -> None:
    assert groups(read(tmp_path, VOLCANO.replace("minAvailable: 2", "maxRetry: 1"))) == {
        "mpi": (3, "default")
    }


def test_what_a_volcano_job_has_made_is_not_made_again(tmp_path: Path) -> None:
    job = VOLCANO.replace("{name: mpi}", "{name: mpi, uid: u1, resourceVersion: '1'}")
    there = POD % "mpi-worker-0, uid: p, resourceVersion: '2'"
    group = (
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: mpi-u1,"
        " ownerReferences: [{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: mpi,"
        " uid: u1, controller: true}]}\nspec: {minMember: 3}\n"
    )
    cluster = read(tmp_path, job, there, group)
    assert sorted(names(cluster)) == ["mpi-master-0", "mpi-worker-0", "mpi-worker-1"]
    assert groups(cluster) == {"mpi-u1": (3, "")}


def test_a_volcano_job_that_has_ended_makes_nothing(tmp_path: Path) -> None:
    assert names(read(tmp_path, VOLCANO + "status: {state: {phase: Completed}}\n")) == []


def test_a_gang_is_decided_by_sessions(tmp_path: Path) -> None:
    (tmp_path / "batch.yaml").write_text(CONFIG)
    config = str(tmp_path / "batch.yaml")
    run = simulate_jobs(read(tmp_path, VOLCANO), config=config)
    assert [bool(one.node) for one in run.placements] == [True] * 3
    large = VOLCANO.replace("minAvailable: 2", "minAvailable: 3").replace("cpu: 2", "cpu: 3")
    run = simulate_jobs(read(tmp_path, large), config=config)
    assert [bool(one.node) for one in run.placements] == [False] * 3


def test_a_job_set(tmp_path: Path) -> None:
    cluster = read(tmp_path, JOBSET)
    assert names(cluster) == [
        "js-leader-0-0-0",
        "js-workers-0-0-0",
        "js-workers-0-1-0",
        "js-workers-1-0-0",
        "js-workers-1-1-0",
    ]
    assert groups(cluster) == {"js": (5, "")}
    last = cluster.pods[-1].labels
    assert last["jobset.sigs.k8s.io/job-index"] == "1"
    assert last["jobset.sigs.k8s.io/job-global-index"] == "2"
    assert cluster.notes[0].endswith("not modelled: spec.replicatedJobs[].dependsOn")


def test_a_suspended_job_set_is_not_expanded(tmp_path: Path) -> None:
    suspended = JOBSET.replace("spec:\n", "spec:\n  suspend: true\n", 1)
    assert names(read(tmp_path, suspended)) == []
    labelled = suspended.replace("{name: js}", "{name: js, labels: {kueue.x-k8s.io/queue-name: l}}")
    cluster = read(tmp_path, labelled)
    assert len(names(cluster)) == 5
    assert "LocalQueue default/l is not in the input: default queue" in cluster.notes


def test_a_local_queue_of_the_cluster_is_read_by_kueue_only(tmp_path: Path) -> None:
    labelled = JOBSET.replace("{name: js}", "{name: js, labels: {kueue.x-k8s.io/queue-name: l}}")
    (tmp_path / "jobs.yaml").write_text(labelled)
    queue = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: NAME, namespace: default}
spec: {clusterQueue: cq}
"""
    for name, note in (
        ("l", "LocalQueue default/l is read with --compat kueue, or --config FILE with"),
        ("other", "LocalQueue default/l is not in the input: default queue"),
    ):
        cluster = read(tmp_path, queue.replace("NAME", name))
        notes = read_workload(tmp_path / "jobs.yaml", cluster).notes
        assert [one for one in notes if one.startswith(note)], notes


def test_a_pytorch_job(tmp_path: Path) -> None:
    cluster = read(tmp_path, PYTORCH)
    assert names(cluster) == ["pt-master-0", "pt-worker-0", "pt-worker-1"]
    assert groups(cluster) == {"pt": (2, "research")}
    assert cluster.pods[0].labels["training.kubeflow.org/job-role"] == "master"


@pytest.mark.parametrize("order", [(TRAIN, RUNTIME), (RUNTIME, TRAIN)], ids=["before", "after"])
def test_a_train_job_is_expanded_by_its_runtime(tmp_path: Path, order: tuple[str, str]) -> None:
    cluster = read(tmp_path, *order)
    assert names(cluster) == ["tj-node-0-0-0", "tj-node-0-1-0", "tj-node-0-2-0"]
    for pod in cluster.pods:
        assert pod.spec.node_selector == {"pool": "gpu"}
        assert pod.spec.containers[0].resources.requests == {"cpu": 1}
    assert groups(cluster) == {"tj": (3, "")}


def test_a_train_job_without_its_runtime_is_reported(tmp_path: Path) -> None:
    cluster = read(tmp_path, TRAIN)
    assert len(cluster.pods) == 3
    assert cluster.notes[-1].startswith("ClusterTrainingRuntime torch is not in the input:")


def test_a_job_that_kueue_admits(tmp_path: Path) -> None:
    cluster = read(tmp_path, KUEUE)
    assert names(cluster) == ["kj-0", "kj-1"]
    assert groups(cluster) == {"kj": (2, "cq")}
    (queue,) = (one for one in cluster.objects if isinstance(one, Queue) and one.name == "cq")
    assert (queue.spec.weight, queue.spec.capability) == (1, {"cpu": 4})
    assert any(note.startswith("Kueue: workloads") for note in cluster.notes)


def test_imported_objects_keep_their_position(tmp_path: Path) -> None:
    cluster = read(tmp_path, POD % "first", VOLCANO, POD % "middle", PYTORCH, POD % "last")
    found = names(cluster)
    assert [found.index(name) for name in ("first", "middle", "last")] == [0, 4, 8]


@pytest.mark.parametrize("mode", ["auto", "warn", "ignore"])
@pytest.mark.parametrize("amount", ["four", "-4"])
def test_a_quota_that_is_none_is_named_once_where_it_is(
    tmp_path: Path, mode: str, amount: str
) -> None:
    """Not for the Queue that is made of it, nor for each job."""
    with pytest.raises(InputError) as caught:
        read(tmp_path, KUEUE.replace("nominalQuota: 4", f"nominalQuota: {amount}"), validate=mode)
    (line,) = str(caught.value).split("\n")
    field = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"
    assert f"ClusterQueue cq: {field}: Invalid value: " in line
    assert amount in line


def test_a_job_of_kueue_is_invalid_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, KUEUE.replace("parallelism: 2", "parallelism: -5"))
    assert str(caught.value).count("spec.parallelism") == 1


def test_mistakes_in_templates_are_found_once(tmp_path: Path) -> None:
    wrong = VOLCANO.replace("{spec: {containers", "{spec: {restartPolicy: Maybe, containers")
    with pytest.raises(InputError) as caught:
        read(tmp_path, wrong)
    (line,) = str(caught.value).split("\n")
    assert "Job default/mpi: Pod default/mpi-master-0: spec.restartPolicy: Unsupported" in line


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            VOLCANO.replace("replicas: 1", "replicas: -1"),
            "Job default/mpi: spec.tasks[0].replicas: 'replicas' must be >= 0 in task: master",
        ),
        (
            JOBSET.replace("replicas: 2", "replicas: two"),
            "JobSet default/js: spec.replicatedJobs[1].replicas: Invalid value: 'two': "
            "expected a whole number",
        ),
        (
            PYTORCH.replace("Master: {template: ", "Master: {template: 5} # "),
            "PyTorchJob default/pt: spec.pytorchReplicaSpecs.Master.template: Invalid value: 5: "
            "expected a",
        ),
        (VOLCANO + "---\n" + VOLCANO, "Job default/mpi: Duplicate value"),
    ],
)
def test_what_cannot_be_expanded_is_refused(tmp_path: Path, text: str, wanted: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert wanted in str(caught.value)


def test_every_importer_is_in_the_table_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()
    for (group, kind), module in {**IMPORTERS, **LABELLED}.items():
        row = next((line for line in page.splitlines() if line.startswith(f"| {kind} ")), "")
        assert row, module
        assert f"`{group}`" in page or group == "batch"
