"""Compat: the defects of the original, each a switch that brings it back.

By default none is on. `KUBE_BATCH_0_5` is all of them: then sessions answer as kube-batch v0.5
does. docs/parity.md gives for each switch the reason why it is mended and a scenario that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class Compat(msgspec.Struct, frozen=True):
    """Which defects of kube-batch v0.5 are kept. The comment at each says what it does when on."""

    # Accounting.
    coarse_epsilon: bool = False  # 10m CPU, 10 MiB, 10 thousandths count as nothing
    nil_scalars: bool = False  # comparisons fail where one side names no scalar resource
    containers_only: bool = False  # a pod takes what its app containers ask for, nothing else
    subtraction_panics: bool = False  # taking more than there is ends the process
    drops_tasks_over_idle: bool = False  # a pod that exceeds its node is forgotten, the node too
    node_update_keeps_releasing: bool = False  # what is released counts again at each update
    gone_nodes_are_empty: bool = False  # pods of a node that goes and comes back do not count

    # Jobs and groups.
    validates_before_tiers: bool = False  # jobs are never found invalid
    solo_pods_linger: bool = False  # pods without a group are not found again when they change
    solo_pods_bare: bool = False  # their jobs have no priority and no creation time
    foreign_pending_unseen: bool = False  # bound pods of others do not count until they run
    phase_falls_back: bool = False  # a finished group is Pending again
    conditions_stay: bool = False  # Unschedulable remains after the group runs
    rewrites_status: bool = False  # every group's status is written every session
    budget_jobs_panic: bool = False  # an unready job of a PodDisruptionBudget ends the process
    missing_unsaid: bool = False  # nothing is said of jobs whose queue or group is not there
    fit_error_of_choice: bool = False  # why a pod waits is told of the chosen node only

    # Allocate and backfill.
    keeps_unready: bool = False  # what an incomplete gang was given stays taken in the session
    unfit_task_ends_job: bool = False  # smaller pods behind one that fits nowhere are not tried
    forgets_promises: bool = False  # room that is being freed for a pod is anybody's next time
    releasing_competes: bool = False  # a node that must first free room may win over a free one
    init_only_waits: bool = False  # a pod that asks in init containers alone is never placed
    backfill_unordered: bool = False  # any job first, any node that passes

    # Victims.
    tiers_stick: bool = False  # tiers after the first one with a say about victims are not heard
    drf_spares_own_job: bool = False  # drf lets no pod of the job itself go for another of it
    drf_over_priority: bool = False  # drf keeps small jobs from gangs of higher priority
    gang_counts_singly: bool = False  # each victim is judged as if it were the only one
    any_sum_suffices: bool = False  # victims go although they do not free enough
    ignores_free_room: bool = False  # all room must come from victims, even where it is free
    ignores_priority: bool = False  # preempt takes equals and betters
    tried_tasks_are_spent: bool = False  # who found no victim in other jobs has none in its own
    intra_job_in_queue_loop: bool = False  # pods are preempted within jobs before queues had a turn
    unevict_loses_node: bool = False  # an eviction taken back is not taken back on the node
    reclaims_once_per_job: bool = False  # reclaim serves one pod of a job in a session
    reclaims_at_once: bool = False  # reclaim evicts although the pod may not come to fit

    # Shares, order, rules.
    deserved_uncapped: bool = False  # a queue deserves what it does not want
    ignores_capability: bool = False  # the capability of a queue is not looked at
    affinity_weights_ignored: bool = False  # both affinities weigh what balance weighs
    rules_of_1_13: bool = False  # predicates and priorities of Kubernetes 1.13
    lenient_file: bool = False  # what a file names and nobody knows is passed over

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Every switch, in the order of the table in docs/parity.md."""
        return cls.__struct_fields__

    def on(self) -> Iterator[str]:
        """The switches that are on."""
        return (name for name in self.names() if getattr(self, name))

    def turned(self, name: str, *, on: bool) -> Compat:
        """The same with one switch turned."""
        return msgspec.structs.replace(self, **{name: on})


KUBE_BATCH_0_5 = Compat(**dict.fromkeys(Compat.__struct_fields__, True))

COMPATS = {"kube-batch-0.5": KUBE_BATCH_0_5}
"""What `--compat` may be given -> its switches."""
