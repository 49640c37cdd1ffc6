"""The controllers of JobSets and jobs of Kubeflow, as the controller manager runs them."""

from __future__ import annotations

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import ObjectIndex
from stowplan.controllers.job_sets.job_set_controller import JobSetController
from stowplan.controllers.job_sets.train_job_controller import TrainJobController
from stowplan.controllers.job_sets.training_job_controller import TrainingJobController
from stowplan.objects.store import Store

_TRAINING_KINDS = (
    ("PyTorchJob", "pytorchReplicaSpecs"),
    ("TFJob", "tfReplicaSpecs"),
    ("XGBoostJob", "xgbReplicaSpecs"),
    ("PaddleJob", "paddleReplicaSpecs"),
    ("JAXJob", "jaxReplicaSpecs"),
    ("MPIJob", "mpiReplicaSpecs", "v2beta1"),
)
"""Kinds of the training operator: name, field of `spec` with the replicas, and version."""


def job_set_controllers(
    api: Store, index: ObjectIndex, recorder: EventRecorder
) -> list[Controller]:
    """All of them."""
    return [
        JobSetController(api, index, recorder),
        TrainJobController(api, index, recorder),
        *(TrainingJobController(api, index, recorder, *kind) for kind in _TRAINING_KINDS),
    ]
