"""Workloads, services, disruption budgets, namespaces and priority classes.

Source: Kubernetes apps/v1, batch/v1, core/v1, policy/v1 and scheduling/v1 APIs, v1.36.
"""

from __future__ import annotations

from stowplan.objects.meta import NamespacedObject, Object, ObjectMeta, Value
from stowplan.objects.pod import PodSpec
from stowplan.objects.selectors import LabelSelector

HASH_LABEL = "pod-template-hash"
"""Label of a Deployment's pods: the hash of their template."""


class PodTemplate(Value, frozen=True):
    """`spec.template` of a workload."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class WorkloadSpec(Value, frozen=True):
    """`spec` of a Deployment, ReplicaSet, StatefulSet or DaemonSet."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplate = PodTemplate()


class Deployment(NamespacedObject, frozen=True):
    """A Deployment."""

    spec: WorkloadSpec = WorkloadSpec()


class ReplicaSet(NamespacedObject, frozen=True):
    """A ReplicaSet."""

    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(NamespacedObject, frozen=True):
    """A StatefulSet."""

    spec: WorkloadSpec = WorkloadSpec()


class DaemonSet(NamespacedObject, frozen=True):
    """A DaemonSet."""

    spec: WorkloadSpec = WorkloadSpec()


class ReplicationControllerSpec(Value, frozen=True):
    """`spec` of a ReplicationController: its selector is a plain set of labels."""

    replicas: int | None = None
    selector: dict[str, str] = {}
    template: PodTemplate = PodTemplate()


class ReplicationController(NamespacedObject, frozen=True):
    """A ReplicationController."""

    spec: ReplicationControllerSpec = ReplicationControllerSpec()


class JobSpec(Value, frozen=True):
    """`spec` of a Job."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    suspend: bool = False
    active_deadline_seconds: int | None = None
    template: PodTemplate = PodTemplate()


class Job(NamespacedObject, frozen=True):
    """A Job."""

    spec: JobSpec = JobSpec()


class JobTemplate(Value, frozen=True):
    """`spec.jobTemplate` of a CronJob."""

    spec: JobSpec = JobSpec()


class CronJobSpec(Value, frozen=True):
    """`spec` of a CronJob."""

    job_template: JobTemplate = JobTemplate()


class CronJob(NamespacedObject, frozen=True):
    """A CronJob."""

    spec: CronJobSpec = CronJobSpec()


class ServiceSpec(Value, frozen=True):
    """`spec` of a Service; a service without a selector selects nothing."""

    selector: dict[str, str] | None = None


class Service(NamespacedObject, frozen=True):
    """A Service."""

    spec: ServiceSpec = ServiceSpec()


class Namespace(Object, frozen=True):
    """A Namespace."""


class PriorityClass(Object, frozen=True):
    """A PriorityClass."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class PodDisruptionBudgetSpec(Value, frozen=True):
    """`spec` of a PodDisruptionBudget."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class PodDisruptionBudgetStatus(Value, frozen=True):
    """`status` of a PodDisruptionBudget: allowed disruptions and disrupted pods.

    observed_generation: 0 before the disruption controller has counted.
    """

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] = {}
    observed_generation: int = 0


class PodDisruptionBudget(NamespacedObject, frozen=True):
    """A PodDisruptionBudget."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
