"""Where a simulation lets Kueue admit jobs, if it is configured.

The admission itself is imported only then: most simulations have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_placement import Placement

if TYPE_CHECKING:
    from stowplan.batch.queue_models.kueue.reports.workload_reports import KueueReport


class JobAdmission(msgspec.Struct):
    """What Kueue decided. cluster: without the pods that may not run, and with the selectors of
    flavors. held: placements of the pods that may not run. report: None where nothing is admitted.
    """

    cluster: Cluster
    held: list[Placement] = []
    report: KueueReport | None = None

    def figures(self) -> dict[str, Any]:
        """What a summary says about the workloads."""
        if self.report is None:
            return {}
        return {"workloads": msgspec.to_builtins(self.report.workloads)}


def admission_of(cluster: Cluster, options: KueueOptions | None, *, replays: bool) -> JobAdmission:
    """The cluster with its jobs admitted; as it is without options, and in a replay, whose
    controllers admit them. Raises InputError."""
    if options is None:
        return JobAdmission(cluster)
    from stowplan.simulation.kueue.job_admission import admit_jobs, check_admission, for_kueue

    check_admission(cluster)
    return JobAdmission(for_kueue(cluster)) if replays else admit_jobs(cluster, options)
