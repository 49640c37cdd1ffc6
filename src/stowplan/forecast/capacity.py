"""capacity(): how many more pods or gangs of a workload fit into a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from stowplan.assembly import frameworks_for
from stowplan.assembly.deciders import Deciders
from stowplan.batch.job_report import JobReport
from stowplan.config.queue_models.scheduler_hints import no_sessions
from stowplan.cycle.attempt import filter_pod
from stowplan.cycle.explanation import pending_form
from stowplan.framework import Framework
from stowplan.framework.deciders.tasks import group_of
from stowplan.inputs.cluster_reader import Cluster, cluster_of, read_workload
from stowplan.inputs.counts import count_of
from stowplan.inputs.input_error import InputError
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.insight.autoscaler_notes import autoscaler_note
from stowplan.insight.autoscaling.autoscale_config import AutoscaleConfig, with_all_nodes
from stowplan.insight.capacity.allowed_disruptions import Budgets
from stowplan.insight.capacity.compact import (
    MOVES_MAX,
    Blocker,
    CompactPlan,
    CompactSearch,
    drain_step,
)
from stowplan.insight.capacity.count import (
    SCHEMA,
    CapacityCount,
    UnitCapacity,
    count_on_copy,
    placed_units,
    unit_capacity,
)
from stowplan.insight.capacity.node_fit import DECISIONS_MAX, FitSearch, NodeFit, PoolCount
from stowplan.insight.capacity.pools import pools_of, runs_on_every_node
from stowplan.insight.capacity.units import GROUP_KINDS, Unit, UnitCopier, UnitCopy, units_of
from stowplan.insight.cluster_copy import ClusterCopy, follows
from stowplan.objects.node import Node
from stowplan.objects.pod import DEFAULT_SCHEDULER, Pod
from stowplan.objects.pod_requests import fit_requests
from stowplan.objects.workload import PodDisruptionBudget
from stowplan.simulation.scheduler_configuration import ConfigSource, deciders_for
from stowplan.simulation.session_runner import SessionRunner
from stowplan.simulation.simulate import assign_profile, fill_of, without_post_filter

LIMIT = 10_000
"""Units up to which is counted."""

NOT_FOLLOWED = "volumes and devices that are reserved after a decision are not followed"
Paths = str | Path | Iterable[str | Path]


def capacity(
    workload: Cluster | Paths,
    cluster: Cluster | Paths,
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    profile: str | None = None,
    limit: int = LIMIT,
    autoscale: AutoscaleConfig | None = None,
) -> CapacityCount:
    """Count how many more pods or gangs of a workload fit into a cluster.

    workload: files with pods, or with workloads that have pods; or a Cluster, of which the pods
    count. cluster: as for `explain`. profile: used instead of the pods' schedulerName. limit: units
    up to which is counted. autoscale: count with all nodes that this autoscaler may add.

    Each unit (a template, a gang, the whole workload) is counted alone: its copies are decided one
    after another by the scheduler, without preemption, until one does not fit. Raises InputError,
    ConfigError and ContractError.
    """
    if limit < 1:
        raise InputError("limit", "", str(limit), "a whole number from 1 up")
    cluster = cluster_of(cluster)
    deciders = deciders_for(cluster, config, plugins)
    wanted = pending_workload(workload, cluster, profile)
    given = cluster.nodes
    if autoscale is not None:
        cluster = with_all_nodes(cluster, autoscale)
    counting = _Counting(wanted, cluster, deciders, limit)
    units = tuple(counting.count(unit) for unit in units_of(wanted))
    n_pending = len(cluster.pending())
    notes = [*counting.notes]
    if n_pending:
        what = count_of(n_pending, "pending pod")
        notes.append(f"{what} of the cluster may use the same resources first: not placed here")
    notes.append(autoscaler_note(given, is_modelled=autoscale is not None))
    return CapacityCount(SCHEMA, units, tuple(dict.fromkeys(note for note in notes if note)))


def pending_workload(
    workload: Cluster | Paths, cluster: Cluster, profile: str | None = None
) -> Cluster:
    """The workload with all its pods pending; raises InputError without pods."""
    given = workload if isinstance(workload, Cluster) else read_workload(workload, cluster)
    pods = [pending_form(pod) for pod in given.pods if not pod.is_finished]
    if not pods:
        raise InputError("workload", "", "no pods", "pods, or workloads that have pods")
    found = replace(given, pods=pods)
    return found if profile is None else assign_profile(profile, found)


def trial_frameworks(deciders: Deciders) -> dict[str, Framework]:
    """The profiles without PostFilter plugins: nothing is evicted in a trial."""
    return frameworks_for(
        without_post_filter(deciders.configuration), deciders.registry, deciders.gates
    )


def trial_copy(
    cluster: Cluster, workload: Cluster, frameworks: dict[str, Framework]
) -> ClusterCopy:
    """A copy of the cluster with the objects of a workload."""
    both = replace(cluster, objects=[*cluster.objects, *workload.objects])
    return ClusterCopy(cluster.nodes, cluster.bound(), both.object_store(), frameworks)


class _Counting:
    """Counts the units of one workload. notes: what limits the answers."""

    def __init__(self, workload: Cluster, cluster: Cluster, deciders: Deciders, limit: int) -> None:
        self.workload = workload
        self.cluster = cluster
        self.deciders = deciders
        self.limit = limit
        self.notes: list[str] = list(workload.notes)
        self.frameworks = trial_frameworks(deciders)
        self._copy: ClusterCopy | None = None

    @property
    def copy(self) -> ClusterCopy:
        """The copy of the cluster, made when it is first needed."""
        if self._copy is None:
            self._copy = trial_copy(self.cluster, self.workload, self.frameworks)
        return self._copy

    def count(self, unit: Unit) -> UnitCapacity:
        """Count by the lane that decides the unit's pods."""
        copier = UnitCopier(unit, self.workload)
        batch = self.deciders.batch
        names = {pod.spec.scheduler_name for pod in unit.pods}
        if batch is not None and (names & set(batch.scheduler_names) or not self.frameworks):
            return self._by_sessions(unit, copier)
        for name in sorted(names - set(self.frameworks)):
            wanted = f"one of {', '.join(sorted(self.frameworks))}"
            raise InputError("profile", "", repr(name), f"{wanted}; {no_sessions([name])}")
        if unit.group is not None:
            self.notes.append(f"gangs were decided pod by pod: {no_sessions(names)}")
        if all(follows(pod, self.frameworks) for pod in unit.pods):
            return count_on_copy(unit, copier, self.copy, self.limit)
        return self._by_placement_run(unit, copier)

    def _by_placement_run(self, unit: Unit, copier: UnitCopier) -> UnitCapacity:
        """Count with a whole scheduler, as pods need whose volumes or devices are reserved."""
        both = replace(self.cluster, objects=[*self.cluster.objects, *self.workload.objects])
        run = fill_of(
            both,
            self.deciders.configuration,
            self.deciders.registry,
            None,
            gates=self.deciders.gates,
        )
        refused: list[Pod] = []

        def place_one(one: UnitCopy) -> dict[str, str]:
            for value in one.objects:
                run.cluster.put_object(value)
            placed: dict[str, str] = {}
            for pod in one.pods:
                home = run.place(pod).node
                if not home:
                    refused.append(pod)
                    break
                placed[pod.key] = home
            return placed

        def place(units: Sequence[UnitCopy]) -> list[dict[str, str]]:
            found: list[dict[str, str]] = []
            for one in units:
                placed = place_one(one)
                if len(placed) < len(one.pods):
                    break
                found.append(placed)
            return found

        placed, _ = placed_units(copier, place, self.limit)
        next_pod, reasons = "", dict[str, int]()
        if refused:
            framework = self.frameworks[refused[0].spec.scheduler_name]
            attempt = filter_pod(refused[0], run.scheduler.cache.snapshot(), framework)
            counts = attempt.diagnosis.reasons() if attempt.failure is None else {}
            reasons = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
            next_pod = refused[0].name
        return unit_capacity(unit, placed, self.cluster.nodes, self.limit, next_pod, reasons)

    def _by_sessions(self, unit: Unit, copier: UnitCopier) -> UnitCapacity:
        """Count the copies that sessions start, all of them waiting at once."""
        n_copies = min(self.limit, _most_by_amounts(unit, self.cluster) + 1)
        copies = [copier.copy(number) for number in range(n_copies)]
        # Copies have groups of their own; Volcano would keep room for one without pods.
        objects = [one for one in self.workload.objects if not isinstance(one, GROUP_KINDS)]
        cluster = replace(
            self.cluster,
            pods=[*self.cluster.bound(), *(pod for one in copies for pod in one.pods)],
            objects=[
                *self.cluster.objects,
                *objects,
                *(value for one in copies for value in one.objects),
            ],
        )
        own = {pod.key for one in copies for pod in one.pods}

        def is_waiting(job: JobReport) -> bool:
            pods = (*job.waiting, *job.promised)
            return not job.is_ready and bool(job.message) and not own.isdisjoint(pods)

        bound: dict[str, str] = {}
        n_evicted, message = 0, ""
        for session in SessionRunner(cluster, self.deciders).until_idle():
            bound |= session.bound
            n_evicted += len(session.evicted)
            # Jobs of the cluster wait, too, for reasons of their own.
            message = next((job.message for job in session.jobs if is_waiting(job)), message)
        placed = [
            {pod.key: bound[pod.key] for pod in one.pods}
            for one in copies
            if all(pod.key in bound for pod in one.pods)
        ]
        if n_evicted:
            self.notes.append(
                f"sessions evict {count_of(n_evicted, 'running pod')} for {unit.name}"
            )
        if len(placed) == n_copies:
            message = ""
        reasons = {message: len(self.cluster.nodes)} if message else {}
        found = unit_capacity(unit, placed, self.cluster.nodes, self.limit, "", reasons)
        return replace(found, message=message)


def _most_by_amounts(unit: Unit, cluster: Cluster) -> int:
    """An upper bound of the units that fit, by what is free on all nodes together."""
    table = cluster.table()
    needed: Counter[str] = Counter()
    for pod in unit.pods:
        needed.update(fit_requests(pod))
    free = {name: table.allocatable(name) - table.requested(name) for name in needed}
    counts = [int(free[name].clip(0).sum()) // amount for name, amount in needed.items() if amount]
    slots = int((table.pod_limit - table.pod_count).clip(0).sum()) // len(unit.pods)
    return min([*counts, slots])


def fit_nodes(
    cluster: Cluster | Paths,
    workload: Cluster | Paths | None = None,
    *,
    prices: Mapping[str, float] | None = None,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    profile: str | None = None,
    decisions: int = DECISIONS_MAX,
) -> NodeFit:
    """Find the cheapest new nodes, of the pools of a cluster, on which a workload runs.

    workload: None for the pods of the cluster itself, without those of DaemonSets, which run on
    every new node. prices: pool -> price of one node; pools without one are left out; without any
    each node costs 1. decisions: pods decided in the search. Every answer is the scheduler's: it
    places all pods, in order of arrival, on the nodes found. Raises InputError, ConfigError and
    ContractError.
    """
    cluster = cluster_of(cluster)
    deciders = deciders_for(cluster, config, plugins)
    if workload is None:
        own = [pod for pod in cluster.pods if not runs_on_every_node(pod)]
        workload = replace(cluster, nodes=[], pods=own, objects=[], notes=[])
    wanted = pending_workload(workload, cluster, profile)
    _check_has_profiles(deciders)
    frameworks = trial_frameworks(deciders)
    _check_profiles(wanted.pods, frameworks)
    pools = pools_of(cluster.nodes, cluster.bound(), prices or {})
    both = replace(cluster, objects=[*cluster.objects, *wanted.objects])
    object_store = both.object_store()

    def copy_of(nodes: Sequence[Node], bound: Sequence[Pod]) -> ClusterCopy:
        return ClusterCopy(nodes, bound, object_store, frameworks)

    search = FitSearch(wanted.pods, pools, copy_of, decisions)
    found = search.run()
    notes = [*wanted.notes]
    if not all(follows(pod, frameworks) for pod in search.samples):
        notes.append(NOT_FOLLOWED)
    if any(group_of(pod) for pod in search.samples):
        notes.append("gangs were decided pod by pod")
    notes.append(autoscaler_note(cluster.nodes))
    homes = Counter(found.homes)
    counts = tuple(
        PoolCount(pool.name, n, pool.price, homes[p])
        for p, (pool, n) in enumerate(zip(pools, found.mix, strict=False))
        if n
    )
    return NodeFit(
        SCHEMA,
        len(wanted.pods),
        sum(found.mix),
        found.cost,
        found.bound,
        found.is_least,
        counts,
        found.unplaceable,
        found.n_mixes,
        found.not_searched,
        tuple(note for note in notes if note),
    )


def compact(
    cluster: Cluster | Paths,
    *,
    prices: Mapping[str, float] | None = None,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    profile: str | None = None,
    moves: int = MOVES_MAX,
) -> CompactPlan:
    """Find nodes that can be emptied one after another, and where their pods go.

    prices: pool -> price of one node, for what is saved. moves: pods moved in the search. The pods
    of each node are evicted one by one, within PodDisruptionBudgets, and decided again by the
    scheduler on the other nodes. Raises InputError, ConfigError and ContractError.
    """
    cluster = cluster_of(cluster)
    deciders = deciders_for(cluster, config, plugins)
    _check_has_profiles(deciders)
    pools_of(cluster.nodes, (), prices or {})
    frameworks = trial_frameworks(deciders)
    bound = cluster.bound()
    if profile is not None:
        if profile not in frameworks:
            wanted = f"one of {', '.join(sorted(frameworks))}"
            raise InputError("profile", "", repr(profile), wanted)
        names = {pod.spec.scheduler_name for pod in bound}
        frameworks = {**frameworks, **dict.fromkeys(names, frameworks[profile])}
    copy = ClusterCopy(cluster.nodes, bound, cluster.object_store(), frameworks)
    budgets = [one for one in cluster.objects if isinstance(one, PodDisruptionBudget)]
    search = CompactSearch(copy, Budgets(budgets, bound), moves)
    steps = tuple(drain_step(drain, search, prices or {}) for drain in search.run())
    emptied = {step.node for step in steps}
    stay = sorted(set(search.blockers) - emptied)
    blockers = tuple(Blocker(name, search.blockers[name]) for name in stay)
    notes = [autoscaler_note(cluster.nodes)]
    moved = {move.pod for step in steps for move in step.moves}
    if not all(follows(pod, frameworks) for pod in bound if pod.key in moved):
        notes.append(NOT_FOLLOWED)
    if cluster.pending():
        notes.append(f"{count_of(len(cluster.pending()), 'pending pod')} not placed here")
    return CompactPlan(
        SCHEMA,
        len(cluster.nodes),
        sum(step.price for step in steps),
        steps,
        blockers,
        f"kubectl cordon {' '.join(step.node for step in steps)}" if steps else "",
        tuple(search.not_searched),
        tuple(note for note in notes if note),
    )


def _check_has_profiles(deciders: Deciders) -> None:
    """Raise InputError where sessions decide all pods: these questions place them one by one."""
    if not deciders.configuration.profiles:
        how = f"without a configuration: --profile {DEFAULT_SCHEDULER}"
        wanted = f"profiles: these nodes are looked for pod by pod ({how})"
        raise InputError(deciders.configuration.source, "", "only sessions", wanted)


def _check_profiles(pods: Iterable[Pod], frameworks: Mapping[str, Framework]) -> None:
    """Raise InputError when no profile has the schedulerName of a pod."""
    for name in sorted({pod.spec.scheduler_name for pod in pods} - set(frameworks)):
        wanted = f"one of {', '.join(sorted(frameworks))}; use --profile"
        raise InputError("profile", "", repr(name), wanted)
