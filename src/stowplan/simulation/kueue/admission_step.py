"""Where a simulation lets Kueue admit jobs, if it is configured.

The admission itself is imported only then: most simulations have none.
"""

from __future__ import annotations

from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.inputs.cluster_reader import Cluster
from stowplan.simulation.kueue.admitted_cluster import JobAdmission


def admission_of(cluster: Cluster, options: KueueOptions | None, *, replays: bool) -> JobAdmission:
    """The cluster with its jobs admitted; as it is without options, and in a replay, whose
    controllers admit them. Raises InputError."""
    if options is None:
        return JobAdmission(cluster)
    from stowplan.simulation.kueue.job_admission import admit_jobs, check_admission, for_kueue

    check_admission(cluster)
    return JobAdmission(for_kueue(cluster)) if replays else admit_jobs(cluster, options)
