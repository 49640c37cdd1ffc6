"""JobSets and jobs of Kubeflow on the embedded cluster: their paths and definitions.

The definitions have the fields of `apis/custom/job_types.py`, those of kinds without a table there
every field, and the columns of the originals. Where those of the originals are applied those serve.

Source: sigs.k8s.io/jobset of 2026-08-18, api/jobset/v1alpha2; kubeflow trainer v2.1 and
training-operator v1.9, manifests/base.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.controller_runtime.custom_kind import CustomKind
from stowplan.objects.encoding.tree import Tree

JOB_SET_GROUP, JOB_SET_VERSION = "jobset.x-k8s.io", "jobset.x-k8s.io/v1alpha2"
JOB_SETS = f"{JOB_SET_GROUP}/jobsets"
TRAINER_GROUP = "trainer.kubeflow.org"
TRAINING_GROUP = "kubeflow.org"

_AGE = ("Age", "date", ".metadata.creationTimestamp")
_JOB_SET_COLUMNS = (
    ("TerminalState", "string", ".status.terminalState"),
    ("Restarts", "string", ".status.restarts"),
    ("Completed", "string", ".status.conditions[?(@.type=='Completed')].status"),
    ("Suspended", "string", ".spec.suspend"),
    _AGE,
)
_TRAIN_JOB_COLUMNS = (("State", "string", ".status.conditions[-1:].type"), _AGE)
_TRAINING_COLUMNS = (("State", "string", ".status.conditions[-1:].type"), _AGE)
_TRAINING_KINDS = {
    "PyTorchJob": "v1", "TFJob": "v1", "XGBoostJob": "v1", "PaddleJob": "v1", "JAXJob": "v1",
    "MPIJob": "v2beta1",
}  # fmt: skip

_KINDS = (
    CustomKind(
        JOB_SET_GROUP, "JobSet", "jobsets", ("v1alpha2",), columns=_JOB_SET_COLUMNS
    ),
    CustomKind(TRAINER_GROUP, "TrainJob", "trainjobs", ("v1alpha1",), columns=_TRAIN_JOB_COLUMNS),
    CustomKind(
        TRAINER_GROUP, "ClusterTrainingRuntime", "clustertrainingruntimes", ("v1alpha1",),
        namespaced=False,
    ),
    CustomKind(TRAINER_GROUP, "TrainingRuntime", "trainingruntimes", ("v1alpha1",)),
    *(
        CustomKind(TRAINING_GROUP, kind, f"{kind.lower()}s", (version,), columns=_TRAINING_COLUMNS)
        for kind, version in _TRAINING_KINDS.items()
    ),
)  # fmt: skip


def job_set_definitions() -> Iterator[Tree]:
    """CustomResourceDefinitions of all kinds."""
    return (kind.definition() for kind in _KINDS)
