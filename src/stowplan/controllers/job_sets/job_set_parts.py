"""The controllers of JobSets and jobs of Kubeflow, as the controller manager runs them."""

from __future__ import annotations

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import ObjectIndex
from stowplan.controllers.job_sets.job_set_controller import JobSetController
from stowplan.controllers.job_sets.train_job_controller import TrainJobController
from stowplan.objects.store import Store


def job_set_controllers(
    api: Store, index: ObjectIndex, recorder: EventRecorder
) -> list[Controller]:
    """All of them."""
    kinds = (JobSetController, TrainJobController)
    return [kind(api, index, recorder) for kind in kinds]
