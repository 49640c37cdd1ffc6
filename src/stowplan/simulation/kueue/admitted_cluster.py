"""A cluster after Kueue has admitted jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

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
