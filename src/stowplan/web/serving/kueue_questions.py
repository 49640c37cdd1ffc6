"""Questions of the page about Kueue's quota: what a change does, what would admit a workload."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.what_if.requested_changes import RequestedChange
from stowplan.objects.encoding.tree import Tree
from stowplan.simulation.kueue.admitting_changes import admitting_changes
from stowplan.simulation.kueue.job_admission import admit_jobs
from stowplan.simulation.kueue.quota_changes import are_of_queues, kueue_what_if
from stowplan.web.serving.page_source import BadRequest

__all__ = ["are_of_queues", "quota_difference", "what_admits"]


def quota_difference(
    cluster: Cluster, options: KueueOptions, changes: Sequence[RequestedChange]
) -> Tree:
    """What `stowplan what-if` answers; raises InputError."""
    tree: Tree = msgspec.to_builtins(kueue_what_if(cluster, cluster, changes, options))
    return tree


def what_admits(cluster: Cluster, options: KueueOptions, workload: str) -> Tree:
    """What `stowplan explain` says of a workload, with changes that would admit it.

    workload: namespace and job, as `default/job/train`. Raises InputError and BadRequest.
    """
    report = admit_jobs(cluster, options).report
    assert report is not None, "admitting reports"
    namespace, _, job = workload.partition("/")
    for one in report.workloads:
        if (one.namespace, one.job) == (namespace, job):
            made = admitting_changes(cluster, options, report, one)
            return {
                "workload": msgspec.to_builtins(one),
                "short": [shortage.text for shortage in one.shortages],
                "admittedBy": [
                    {
                        "text": change.text,
                        "changes": [{request.kind: request.text} for request in change.requests],
                    }
                    for change in made
                ],
            }
    raise BadRequest(f'workload: "{job}" not found in namespace "{namespace}"')
