"""Compat: the defects of kube-batch v0.5, one switch each.

By default all switches are off. `KUBE_BATCH_0_5` turns all of them on: sessions then decide as
kube-batch v0.5 does. docs/parity.md lists for each switch why the defect was fixed and a scenario
that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class Compat(msgspec.Struct, frozen=True):
    """Defects of kube-batch v0.5 that are kept. The comment of a switch describes its effect when
    on."""

    # Accounting.
    coarse_epsilon: bool = False  # differences up to 10m CPU, 10 MiB or 10 thousandths are ignored
    nil_scalars: bool = False  # comparisons fail if one side names no scalar resource
    containers_only: bool = False  # only requests of app containers count
    subtraction_panics: bool = False  # subtracting more than is available ends the process
    drops_tasks_over_idle: bool = (
        False  # a pod that exceeds its node is forgotten, and the node too
    )
    node_update_keeps_releasing: bool = False  # releasing resources count again at each update
    gone_nodes_are_empty: bool = False  # pods of a deleted and recreated node do not count

    # Jobs and groups.
    validates_before_tiers: bool = False  # jobs are never found invalid
    solo_pods_linger: bool = False  # updates of pods without a group are lost
    solo_pods_bare: bool = (
        False  # jobs of pods without a group have no priority and no creation time
    )
    foreign_pending_unseen: bool = (
        False  # bound pods of other schedulers do not count until they run
    )
    phase_falls_back: bool = False  # a finished group is Pending again
    conditions_stay: bool = False  # Unschedulable remains after the group runs
    rewrites_status: bool = False  # every group's status is written every session
    budget_jobs_panic: bool = False  # an unready job of a PodDisruptionBudget ends the process
    missing_objects_unreported: bool = False  # jobs with a missing queue or group are not reported
    fit_error_of_choice: bool = False  # fit errors name the chosen node only

    # Allocate and backfill.
    keeps_unready: bool = False  # placements of an incomplete gang are kept during the session
    infeasible_task_ends_job: bool = False  # tasks behind one that fits nowhere are not tried
    forgets_nominations: bool = False  # nominations are forgotten after the session
    releasing_competes: bool = (
        False  # a node with releasing resources may win over one with idle resources
    )
    init_only_waits: bool = False  # a pod with requests only in init containers is never placed
    backfill_unordered: bool = False  # jobs in any order, on any node that passes

    # Victims.
    tiers_stick: bool = False  # tiers after the first one that selects victims are ignored
    drf_spares_own_job: bool = False  # drf protects a job's tasks from other tasks of the same job
    drf_over_priority: bool = False  # drf protects small jobs from gangs of higher priority
    gang_counts_singly: bool = False  # each victim is evaluated as if it were the only one
    any_sum_suffices: bool = False  # victims are evicted even if they do not free enough
    ignores_free_room: bool = False  # all resources must come from victims, even if some are idle
    ignores_priority: bool = False  # preempt evicts tasks of equal or higher priority
    tried_tasks_are_spent: bool = (
        False  # a task that found no victims in other jobs is not tried in its own
    )
    intra_job_in_queue_loop: bool = False  # preemption within jobs precedes other queues' turns
    unevict_loses_node: bool = False  # an undone eviction is not undone on the node
    reclaims_once_per_job: bool = False  # reclaim serves one pod of a job per session
    reclaims_at_once: bool = False  # reclaim evicts even if the pod may not fit afterwards

    # Shares, order, rules.
    deserved_uncapped: bool = False  # the deserved share may exceed the request
    ignores_capability: bool = False  # queue capabilities are ignored
    affinity_weights_ignored: bool = False  # affinity scores use the weight of balanced resources
    rules_of_1_13: bool = False  # predicates and priorities of Kubernetes 1.13
    lenient_file: bool = False  # unknown names in a file are ignored

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """All switches, in the order of the table in docs/parity.md."""
        return cls.__struct_fields__

    def on(self) -> Iterator[str]:
        """The switches that are on."""
        return (name for name in self.names() if getattr(self, name))


KUBE_BATCH_0_5 = Compat(**dict.fromkeys(Compat.__struct_fields__, True))

COMPATS = {"kube-batch-0.5": KUBE_BATCH_0_5}
"""Value of `--compat` -> switches."""
