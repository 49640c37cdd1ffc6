"""Kinds of jobs that Kueue starts and stops: where they have pod templates, and how they end.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/controller/jobs: job, jobset, kubeflow, mpijob,
trainjob.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stowplan.controllers.kueue.job_templates import restore_template, start_template
from stowplan.controllers.kueue.kueue_kinds import MIN_PARALLELISM
from stowplan.controllers.kueue.train_jobs import (
    GROUP,
    RUNTIMES,
    TRAIN_JOBS,
    child_job_set_spec,
    runtime_key,
    set_kueue_patches,
)
from stowplan.controllers.kueue.workload_status import PodSetInfo
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store

POD_SET = "main"


class QueuedJobKind:
    """A kind of jobs: here those of batch/v1."""

    path = "batch/jobs"
    kind, group, version = "Job", "batch", "v1"
    ends = ("Complete", "Failed")
    """Types of the conditions that end a job, the one of success first."""
    references: tuple[str, ...] = ()
    """Paths of the objects that pod sets depend on."""
    keeps_start = True
    """Whether a start time in the status of a suspended job forbids to change its template."""
    owns_jobs = False
    """Whether its pods are those of other jobs, which it owns."""

    @property
    def api_version(self) -> str:
        """`apiVersion` of its objects."""
        return f"{self.group}/{self.version}"

    @property
    def component(self) -> str:
        """Source of its events."""
        return f"{self.group}/{self.kind.lower()}-kueue-controller"

    def problem(self, job: Tree, api: Store) -> str:
        """Why the pod sets of a job are not known; "" if they are."""
        return ""

    def pod_sets(self, job: Tree, api: Store) -> Iterator[tuple[str, int, Tree]]:
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

    def is_active(self, job: Tree) -> bool:
        """Whether pods run, as its status has it."""
        return bool((job.get("status") or {}).get("active"))

    def are_pods_ready(self, job: Tree) -> bool | None:
        """Whether its pods are ready, as its status has it; None: their own statuses count."""
        status = job.get("status") or {}
        uncounted = (status.get("uncountedTerminatedPods") or {}).get("succeeded") or ()
        n = int(status.get("ready", 0)) + int(status.get("succeeded", 0)) + len(uncounted)
        return n >= pods_at_once(job["spec"])

    def reclaimable(self, job: Tree, api: Store) -> list[Tree]:
        """Pods that will not be created again, by pod set."""
        return reclaimable(job)

    def priority_class(self, job: Tree, templates: Iterable[Tree]) -> str:
        """Name of the PriorityClass of its pods; "" for none."""
        return next((name for one in templates if (name := _priority_class(one))), "")

    def start(self, job: Tree, infos: Mapping[str, PodSetInfo], workload: Tree, api: Store) -> None:
        """Change a job as its Workload is admitted. infos: by pod set."""
        for pod_set, _, template in self.pod_sets(job, api):
            info = infos.get(pod_set) or PodSetInfo(1)
            start_template(template, info, workload["metadata"]["name"], pod_set)
        first = workload["spec"]["podSets"][0]
        if first.get("minCount") is not None and first["name"] in infos:
            job["spec"]["parallelism"] = infos[first["name"]].count

    def restore(self, job: Tree, workload: Tree, api: Store) -> None:
        """Undo `start`."""
        held = {one["name"]: one for one in workload["spec"]["podSets"]}
        for pod_set, _, template in self.pod_sets(job, api):
            if pod_set in held:
                restore_template(template, held[pod_set]["template"])
        first = workload["spec"]["podSets"][0]
        if first.get("minCount") is not None:
            job["spec"]["parallelism"] = first["count"]


class JobSetKind(QueuedJobKind):
    """JobSets."""

    path = "jobset.x-k8s.io/jobsets"
    kind, group, version = "JobSet", "jobset.x-k8s.io", "v1alpha2"
    ends = ("Completed", "Failed")
    keeps_start = False
    owns_jobs = True
    counts = "replicatedJobsStatus"
    """Field of the status with the numbers of its Jobs."""

    def pod_sets(self, job: Tree, api: Store) -> Iterator[tuple[str, int, Tree]]:
        """One for each replicated job."""
        for one in self.replicated_jobs(job, api):
            count = int(one.get("replicas", 1)) * _pods_of_replica(one)
            yield str(one["name"]), count, one["template"]["spec"]["template"]

    def replicated_jobs(self, job: Tree, api: Store) -> list[Tree]:
        """Its replicated jobs."""
        return job["spec"].get("replicatedJobs") or []

    def min_count(self, job: Tree) -> int | None:
        """All pods are needed."""
        return None

    def is_active(self, job: Tree) -> bool:
        """Whether a Job of it runs."""
        return any(one.get("active") for one in self._counts(job))

    def are_pods_ready(self, job: Tree) -> bool | None:
        """None: the statuses of pods count, since no controller here writes that of the job."""
        return None

    def reclaimable(self, job: Tree, api: Store) -> list[Tree]:
        """The pods of Jobs that have succeeded."""
        done = {one.get("name"): int(one.get("succeeded") or 0) for one in self._counts(job)}
        return [
            {"name": one["name"], "count": n * _pods_of_replica(one)}
            for one in (self.replicated_jobs(job, api) if any(done.values()) else ())
            if 0 < (n := done.get(one["name"], 0)) <= int(one.get("replicas", 1))
        ]

    def _counts(self, job: Tree) -> list[Tree]:
        return (job.get("status") or {}).get(self.counts) or []


class TrainJobKind(JobSetKind):
    """Jobs of Kubeflow's trainer, whose pods are those of the JobSet that the trainer makes."""

    path = TRAIN_JOBS
    kind, group, version = "TrainJob", GROUP, "v1alpha1"
    ends = ("Complete", "Failed")
    references = tuple(RUNTIMES.values())
    counts = "jobsStatus"

    def problem(self, job: Tree, api: Store) -> str:
        """A runtime that is not there."""
        path, namespace, name = runtime_key(job)
        if path and api.get(path, namespace, name) is not None:
            return ""
        return f"runtime '{name}' not found"

    def replicated_jobs(self, job: Tree, api: Store) -> list[Tree]:
        """Those of the JobSet, as copies."""
        found: list[Tree] = self._job_set(job, api)["replicatedJobs"]
        return found

    def start(self, job: Tree, infos: Mapping[str, PodSetInfo], workload: Tree, api: Store) -> None:
        """What is changed stands in a runtime patch of Kueue's."""
        patches = []
        for pod_set, info in infos.items():
            template: Tree = {"metadata": {}, "spec": {}}
            start_template(template, info, workload["metadata"]["name"], pod_set)
            patches.append({"name": pod_set, "template": {"spec": {"template": template}}})
        set_kueue_patches(job, patches)

    def restore(self, job: Tree, workload: Tree, api: Store) -> None:
        """Empty Kueue's patch."""
        set_kueue_patches(job, [])

    def _job_set(self, job: Tree, api: Store) -> Tree:
        return child_job_set_spec(job, api.get(*runtime_key(job)) or {})


class KubeflowKind(QueuedJobKind):
    """Jobs of Kubeflow's training operator, with pods by the type of a replica."""

    group = "kubeflow.org"
    ends = ("Succeeded", "Failed")
    keeps_start = False

    def __init__(
        self, kind: str, field: str, types: tuple[str, ...] = (), version: str = "v1"
    ) -> None:
        """types: of replicas, in the order of pod sets."""
        self.kind, self.version, self._field = kind, version, field
        self._types = types or ("Master", "Worker")
        self.path = f"{self.group}/{kind.lower()}s"

    def pod_sets(self, job: Tree, api: Store) -> Iterator[tuple[str, int, Tree]]:
        """One for each type."""
        replicas = job["spec"].get(self._field) or {}
        for name in self._types:
            if replicas.get(name):
                one = replicas[name]
                yield name.lower(), int(one.get("replicas", 1)), one["template"]

    def min_count(self, job: Tree) -> int | None:
        """All pods are needed."""
        return None

    def switch(self, job: Tree) -> Tree:
        """The field is one of the run policy."""
        found: Tree = job["spec"].setdefault("runPolicy", {})
        return found

    def is_active(self, job: Tree) -> bool:
        """Whether pods of a type run."""
        statuses = (job.get("status") or {}).get("replicaStatuses") or {}
        return any(one.get("active") for one in statuses.values())

    def are_pods_ready(self, job: Tree) -> bool | None:
        """Whether the operator says that it runs; without its conditions those of pods count."""
        conditions = (job.get("status") or {}).get("conditions") or ()
        if not conditions:
            return None
        return any(one["type"] == "Running" and one["status"] == "True" for one in conditions)

    def reclaimable(self, job: Tree, api: Store) -> list[Tree]:
        """None: they keep their quota until the job ends."""
        return []

    def priority_class(self, job: Tree, templates: Iterable[Tree]) -> str:
        """That of the scheduling policy, else of pods."""
        policy = (job["spec"].get("runPolicy") or {}).get("schedulingPolicy") or {}
        return str(policy.get("priorityClass") or "") or super().priority_class(job, templates)


def pods_at_once(spec: Tree) -> int:
    """How many pods of a Job run at the same time."""
    parallelism = int(spec.get("parallelism", 1))
    return min(parallelism, int(spec.get("completions") or parallelism))


def reclaimable(job: Tree) -> list[Tree]:
    """Pods of a Job that will not be created again: fewer are left than may run at once."""
    spec, done = job["spec"], int((job.get("status") or {}).get("succeeded", 0))
    parallelism = int(spec.get("parallelism", 1))
    if parallelism == 1 or not done:
        return []
    left = max(0, int(spec.get("completions") or parallelism) - done)
    return [] if left >= parallelism else [{"name": POD_SET, "count": parallelism - left}]


def _pods_of_replica(one: Tree) -> int:
    return pods_at_once((one.get("template") or {}).get("spec") or {})


def _priority_class(template: Tree) -> str:
    return str((template.get("spec") or {}).get("priorityClassName") or "")


BATCH_JOBS = QueuedJobKind()
JOB_KINDS: tuple[QueuedJobKind, ...] = (
    BATCH_JOBS,
    JobSetKind(),
    TrainJobKind(),
    KubeflowKind("PyTorchJob", "pytorchReplicaSpecs"),
    KubeflowKind("TFJob", "tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator")),
    KubeflowKind("XGBoostJob", "xgbReplicaSpecs"),
    KubeflowKind("PaddleJob", "paddleReplicaSpecs"),
    KubeflowKind("JAXJob", "jaxReplicaSpecs", ("Worker",)),
    KubeflowKind("MPIJob", "mpiReplicaSpecs", ("Launcher", "Worker"), "v2beta1"),
)
KINDS_BY_NAME = {one.kind: one for one in JOB_KINDS}
