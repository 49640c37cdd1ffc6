"""Kinds of jobs that Kueue starts and stops: where they have pod templates, and how they end.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/controller/jobs: job, jobset, kubeflow, mpijob.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.controllers.kueue.kueue_kinds import MIN_PARALLELISM
from stowplan.objects.encoding.tree import Tree

POD_SET = "main"


class QueuedJobKind:
    """A kind of jobs: here those of batch/v1."""

    path = "batch/jobs"
    kind, group, version = "Job", "batch", "v1"
    ends = ("Complete", "Failed")
    """Types of the conditions that end a job, the one of success first."""

    @property
    def api_version(self) -> str:
        """`apiVersion` of its objects."""
        return f"{self.group}/{self.version}"

    @property
    def component(self) -> str:
        """Source of its events."""
        return f"{self.group}/{self.kind.lower()}-kueue-controller"

    def pod_sets(self, job: Tree) -> Iterator[tuple[str, int, Tree]]:
        """Name, number of pods and template of each pod set."""
        spec = job["spec"]
        yield POD_SET, pods_at_once(spec), spec["template"]

    def min_count(self, job: Tree) -> int | None:
        """How many pods would do; None: all are needed."""
        text = (job["metadata"].get("annotations") or {}).get(MIN_PARALLELISM, "")
        return int(text) if text.isdecimal() else None

    def switch(self, job: Tree) -> Tree:
        """The mapping with the field `suspend`."""
        spec: Tree = job["spec"]
        return spec

    def end(self, job: Tree) -> Tree | None:
        """The condition by which a job has ended; None while it has not."""
        for one in (job.get("status") or {}).get("conditions") or ():
            if one.get("type") in self.ends and one.get("status") == "True":
                found: Tree = one
                return found
        return None


class JobSetKind(QueuedJobKind):
    """JobSets."""

    path = "jobset.x-k8s.io/jobsets"
    kind, group, version = "JobSet", "jobset.x-k8s.io", "v1alpha2"
    ends = ("Completed", "Failed")

    def pod_sets(self, job: Tree) -> Iterator[tuple[str, int, Tree]]:
        """One for each replicated job."""
        for one in job["spec"].get("replicatedJobs") or ():
            spec = one["template"]["spec"]
            count = int(one.get("replicas", 1)) * pods_at_once(spec)
            yield str(one["name"]), count, spec["template"]

    def min_count(self, job: Tree) -> int | None:
        """All pods are needed."""
        return None


class KubeflowKind(QueuedJobKind):
    """Jobs of Kubeflow's training operator, with pods by the type of a replica."""

    group = "kubeflow.org"
    ends = ("Succeeded", "Failed")

    def __init__(self, kind: str, field: str, version: str = "v1") -> None:
        self.kind, self.version, self._field = kind, version, field
        self.path = f"{self.group}/{kind.lower()}s"

    def pod_sets(self, job: Tree) -> Iterator[tuple[str, int, Tree]]:
        """One for each type."""
        for name, one in (job["spec"].get(self._field) or {}).items():
            yield name.lower(), int(one.get("replicas", 1)), one["template"]

    def min_count(self, job: Tree) -> int | None:
        """All pods are needed."""
        return None

    def switch(self, job: Tree) -> Tree:
        """The field is one of the run policy."""
        found: Tree = job["spec"].setdefault("runPolicy", {})
        return found


def pods_at_once(spec: Tree) -> int:
    """How many pods of a Job run at the same time."""
    parallelism = int(spec.get("parallelism", 1))
    return min(parallelism, int(spec.get("completions") or parallelism))


BATCH_JOBS = QueuedJobKind()
JOB_KINDS: tuple[QueuedJobKind, ...] = (
    BATCH_JOBS,
    JobSetKind(),
    KubeflowKind("PyTorchJob", "pytorchReplicaSpecs"),
    KubeflowKind("TFJob", "tfReplicaSpecs"),
    KubeflowKind("XGBoostJob", "xgbReplicaSpecs"),
    KubeflowKind("PaddleJob", "paddleReplicaSpecs"),
    KubeflowKind("JAXJob", "jaxReplicaSpecs"),
    KubeflowKind("MPIJob", "mpiReplicaSpecs", "v2beta1"),
)
KINDS_BY_NAME = {one.kind: one for one in JOB_KINDS}
