"""what_if(): what changes of a cluster or of its scheduler would do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.forecast.what_if.autoscaled_nodes import (
    AutoscaledPools,
    decide_with_more_nodes,
)
from stowplan.forecast.what_if.loaded_cluster import LoadedCluster
from stowplan.forecast.what_if.outcome import (
    DecisionOutcome,
    decide_pods,
    decide_sessions,
    queue_states,
    resource_use_of,
)
from stowplan.forecast.what_if.over_time import Timing, decide_over_time
from stowplan.forecast.what_if.preemption_chain import ChainResult, PreemptionChain
from stowplan.inputs.cluster_reader import Cluster, cluster_of, read_addition
from stowplan.inputs.counts import count_of
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.insight.autoscaler_notes import autoscaler_note
from stowplan.insight.autoscaling.autoscale_config import AutoscaleConfig
from stowplan.insight.gang_notes import gang_notes
from stowplan.insight.pod_placement import Placement
from stowplan.insight.what_if.application import NOT_OF_CLUSTER, apply_changes
from stowplan.insight.what_if.budgets import BudgetIndex, counted_budgets
from stowplan.insight.what_if.change_state import ChangedCluster
from stowplan.insight.what_if.pod_differences import Side, budget_uses, differences, stalled
from stowplan.insight.what_if.requested_changes import RequestedChange, RequestSource, requests_of
from stowplan.insight.what_if.result import (
    EFFECTS,
    SCHEMA,
    AutoscalerDifference,
    ChangeEffect,
    PodDifference,
    QueueDifference,
    QueueState,
    WhatIf,
    resource_differences,
)
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolumeClaim
from stowplan.objects.workload import PodDisruptionBudget
from stowplan.simulation.scheduler_configuration import (
    ConfigSource,
    FeatureGateSettings,
    counting_cards,
    read_deciders,
)
from stowplan.simulation.simulate import assign_profile, check_profile_of
from stowplan.simulation.simulate_jobs import is_for_sessions

DRAIN_ROUNDS_MAX = 20
"""How often a drain is decided again because a disruption budget keeps further pods in place."""


class WhatIfOptions(msgspec.Struct, frozen=True):
    """Options of an answer.

    namespace: of targets that name none. seed: of ties. profile: of all pods. preemption: whether
    pods that do not fit may preempt. timing: virtual time, None to decide once. now: the present,
    until which running pods have run; None: the latest time that the cluster shows.
    """

    namespace: str = "default"
    seed: int = 0
    profile: str | None = None
    preemption: bool = True
    timing: Timing | None = None
    now: datetime | None = None
    autoscale: AutoscaleConfig | None = None


class Question(msgspec.Struct):
    """A cluster, its scheduler, and what was computed of it before changes.

    config, plugins: files, to be combined with those of changes. cluster_given: as it was given;
    `cluster` has the budgets counted.
    """

    cluster_given: Cluster
    cluster: Cluster
    deciders: Deciders
    config: tuple[str, ...]
    plugins: tuple[PluginSource, ...]
    loaded: LoadedCluster
    options: WhatIfOptions
    before: DecisionOutcome | None = None
    by_key: dict[str, Pod] = {}

    @property
    def pods(self) -> dict[str, Pod]:
        """The pods of the cluster by key, computed once."""
        if not self.by_key:
            self.by_key = {pod.key: pod for pod in self.cluster.pods}
        return self.by_key


def what_if(
    cluster: Cluster | str | Path | Iterable[str | Path],
    changes: Iterable[RequestSource],
    *,
    config: ConfigSource | None = None,
    plugins: Iterable[PluginSource] = (),
    options: WhatIfOptions | None = None,
) -> WhatIf:
    """What changes would do, as the difference between the cluster as it stands and as it would be.

    cluster: paths for `read_cluster`, or a Cluster. changes: see `requests_of`. config, plugins: of
    the scheduler before the changes. Pending pods are decided on both sides, as `simulate` does.
    Raises InputError, ConfigError and ContractError.
    """
    question = question_of(cluster, config=config, plugins=plugins, options=options)
    return answer(question, requests_of(changes))


def question_of(
    cluster: Cluster | str | Path | Iterable[str | Path],
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    options: WhatIfOptions | None = None,
    feature_gates: FeatureGateSettings | None = None,
) -> Question:
    """A question about a cluster, for `answer`; raises as `what_if`. config: Deciders have their
    plugins already; changes of the kinds `config` and `plugin` are not possible then."""
    options = options or WhatIfOptions()
    cluster = cluster_of(cluster)
    sources = (plugins,) if isinstance(plugins, str | Path) else tuple(plugins)
    files: tuple[str | Path, ...] = ()
    if isinstance(config, Deciders):
        deciders = config
    else:
        files = (config,) if isinstance(config, str | Path) else tuple(config or ())
        deciders = read_deciders(files, sources, feature_gates=feature_gates)
    deciders = counting_cards(deciders, cluster)
    if options.profile is not None:
        check_profile_of(options.profile, deciders.configuration)
    given = cluster
    cluster = replace(cluster, objects=counted_budgets(cluster.objects, cluster.pods))
    loaded = LoadedCluster(deciders, options.seed, options.profile)
    names = tuple(str(file) for file in files)
    return Question(given, cluster, deciders, names, sources, loaded, options)


def answer(question: Question, changes: tuple[RequestedChange, ...]) -> WhatIf:
    """The answer to one list of changes; further ones cost what differs."""
    cluster = question.cluster
    submissions = {
        one.text: read_addition(one.text, cluster) for one in changes if one.kind == "submit"
    }
    changed = _applied(question, changes, submissions, {})
    after_deciders, loaded = _deciders_after(question, changes)
    n_pods = max(len(cluster.pending()), len(changed.cluster.pending()))
    if question.before is None:
        question.before = _decided(question, cluster, question.deciders, question.loaded, n_pods)
    before = question.before
    now = present(question)
    after = _decided(question, changed.cluster, after_deciders, loaded, n_pods)
    notes = []
    for round_ in range(DRAIN_ROUNDS_MAX + 1):
        more = stalled(_side(after, changed.pods), changed)
        if not more:
            break
        if round_ == DRAIN_ROUNDS_MAX:
            notes.append("a drain was cut: more pods may be blocked by disruption budgets")
            break
        changed = _applied(question, changes, submissions, {**changed.blocked, **more})
        after = _decided(question, changed.cluster, after_deciders, loaded, n_pods)
    # What holds before a change of the configuration would be read as said of the answer.
    notes += gang_notes(changed.cluster.pending(), after_deciders)
    chain = _chain(question, before, after, changed, loaded, now)
    return _result(question, changes, changed, before, after, chain, notes)


def present(question: Question) -> datetime | None:
    """Until when running pods have run: as given, else the latest time that the cluster shows."""
    if question.options.now is not None:
        return question.options.now
    return question.cluster.latest_time()


def _applied(
    question: Question,
    changes: tuple[RequestedChange, ...],
    submissions: Mapping[str, Cluster],
    staying: Mapping[str, str],
) -> ChangedCluster:
    namespace = question.options.namespace
    return apply_changes(
        question.cluster,
        changes,
        namespace=namespace,
        submissions=submissions,
        staying=staying,
        pods=question.pods,
    )


def _deciders_after(
    question: Question, changes: tuple[RequestedChange, ...]
) -> tuple[Deciders, LoadedCluster]:
    """The scheduler after the changes: the same one, loaded, where they do not concern it."""
    deciders = changed_deciders(changes, question.config, question.plugins, question.deciders.gates)
    if deciders is None:
        return question.deciders, question.loaded
    deciders = counting_cards(deciders, question.cluster)
    options = question.options
    if options.profile is not None:
        check_profile_of(options.profile, deciders.configuration)
    return deciders, LoadedCluster(deciders, options.seed, options.profile)


def changed_deciders(
    changes: tuple[RequestedChange, ...],
    config: tuple[str, ...],
    plugins: Iterable[PluginSource],
    gates: FeatureGateSettings | None,
) -> Deciders | None:
    """The scheduler after the changes; None where they do not concern it. config, plugins, gates:
    of the scheduler before. Raises InputError, ConfigError and ContractError."""
    if not any(one.kind in NOT_OF_CLUSTER for one in changes):
        return None
    files = tuple(one.text for one in changes if one.kind == "config") or config
    added = (one.text for one in changes if one.kind == "plugin")
    return read_deciders(files, (*plugins, *added), feature_gates=gates)


def _decided(
    question: Question, version: Cluster, deciders: Deciders, loaded: LoadedCluster, n_pods: int
) -> DecisionOutcome:
    options = question.options
    pools = None
    if options.autoscale is not None:
        pools = AutoscaledPools(options.autoscale, question.cluster)
    if options.timing is not None:
        return decide_over_time(
            version,
            deciders,
            options.timing,
            now=present(question),
            seed=options.seed,
            profile=options.profile,
            pools=pools,
        )

    def decide(grown: Cluster) -> DecisionOutcome:
        if is_for_sessions(deciders, grown):
            return decide_sessions(grown, deciders, options.seed)
        return decide_pods(loaded, grown, n_pods)

    if pools is None:
        return decide(version)
    if options.profile is not None:
        version = assign_profile(options.profile, version)
    return decide_with_more_nodes(version, deciders, pools, decide, options.seed)


def _chain(
    question: Question,
    before: DecisionOutcome,
    after: DecisionOutcome,
    changed: ChangedCluster,
    loaded: LoadedCluster,
    now: datetime | None,
) -> ChainResult | None:
    """The preemptions of pods that the changes leave without a node; None where the outcome has
    its own: of sessions, or in virtual time."""
    options = question.options
    if not options.preemption or options.timing is not None:
        return None
    if is_for_sessions(loaded.deciders, after.version):
        return None
    new = {*changed.submitted, *changed.changed, *changed.recreated}

    def is_concerned(key: str) -> bool:
        had = key in before.placements and bool(before.placements[key].node)
        return key in new or had or key not in before.placements

    pods = {pod.key: pod for pod in after.version.pending()}
    waiting = [
        pods[key]
        for key, one in after.placements.items()
        if not one.node and key in pods and is_concerned(key)
    ]
    if not waiting:
        return None
    pending = [pod for pod in pods.values() if not after.placements[pod.key].node]
    chain = PreemptionChain(loaded, BudgetIndex(after.version.objects), now, pending)
    found = chain.run(waiting)
    after.resources = resource_use_of(loaded.run.scheduler.cache.nodes)
    return found


def _side(outcome: DecisionOutcome, pods: Mapping[str, Pod]) -> Side:
    return Side(pods, outcome.placements, outcome.evicted, outcome.waits)


def _result(
    question: Question,
    changes: tuple[RequestedChange, ...],
    changed: ChangedCluster,
    before: DecisionOutcome,
    after: DecisionOutcome,
    chain: ChainResult | None,
    notes: list[str],
) -> WhatIf:
    first, last = _side(before, question.pods), _side(after, changed.pods)
    budgets = budget_uses(last, changed)
    steps = () if chain is None else chain.steps
    if chain is not None and steps:
        after = _after_chain(after, chain)
        last = _side(after, changed.pods)
    pods = differences(first, last, changed, steps)
    uses = _queues(before, after)
    timing = question.options.timing
    return WhatIf(
        SCHEMA,
        tuple(
            ChangeEffect(one.kind, one.text, effect or _of_scheduler(one))
            for one, effect in zip(changes, changed.effects, strict=True)
        ),
        _summary(before, after, pods, changed),
        tuple(pods),
        tuple(budgets),
        tuple(steps),
        resource_differences(before.resources, after.resources),
        uses,
        None if timing is None else timing.for_s,
        tuple(dict.fromkeys([*_notes(question, changed, pods, chain), *notes, *after.notes])),
        _autoscaler_difference(before, after),
    )


def _autoscaler_difference(
    before: DecisionOutcome, after: DecisionOutcome
) -> AutoscalerDifference | None:
    if before.autoscaled is None or after.autoscaled is None:
        return None
    return AutoscalerDifference(before.autoscaled, after.autoscaled)


def _after_chain(after: DecisionOutcome, chain: ChainResult) -> DecisionOutcome:
    """The outcome with what preemption has changed."""
    placed = {key: Placement(key, node) for key, node in chain.placed.items()}
    gone = {
        victim.pod: step.preemptor
        for step in chain.steps
        for victim in step.victims
        if victim.again is None
    }
    placements = {**after.placements, **placed, **chain.pending}
    kept = {key: one for key, one in placements.items() if key not in gone}
    return replace(after, placements=kept, evicted={**after.evicted, **gone})


def _of_scheduler(change: RequestedChange) -> str:
    return "scheduler configuration" if change.kind == "config" else "plugins added"


def _queues(before: DecisionOutcome, after: DecisionOutcome) -> dict[str, QueueDifference]:
    old, new = queue_states(before), queue_states(after)
    nothing = QueueState(0, 0, {})
    return {
        name: QueueDifference(old.get(name, nothing), new.get(name, nothing))
        for name in sorted({*old, *new})
    }


def _summary(
    before: DecisionOutcome,
    after: DecisionOutcome,
    pods: list[PodDifference],
    changed: ChangedCluster,
) -> dict[str, float]:
    """Measure -> number: the pods of each effect, the pending pods, nodes, use in percent."""
    found: dict[str, float] = dict.fromkeys(EFFECTS, 0)
    for one in pods:
        found[one.effect] += 1
    found["pending"] = after.n_pending
    found["pending_before"] = before.n_pending
    found["violations"] = sum(len(one.budgets) for one in pods)
    found["daemons"] = changed.daemons
    found["nodes"] = sum(not node.spec.unschedulable for node in after.version.nodes)
    found["nodes_before"] = sum(not node.spec.unschedulable for node in before.version.nodes)
    for name, outcome in (("", after), ("_before", before)):
        if outcome.autoscaled is not None:
            found[f"autoscaled{name}"] = outcome.autoscaled.added
            if outcome.autoscaled.cost is not None:
                found[f"cost{name}"] = outcome.autoscaled.cost
    if after.waits:
        found["wait_s"] = round(sum(after.waits.values()) / len(after.waits), 3)
    for name, (requested, allocatable) in after.resources.items():
        if allocatable:
            found[f"{name}.percent"] = round(100 * requested / allocatable, 2)
    return found


def _notes(
    question: Question,
    changed: ChangedCluster,
    pods: list[PodDifference],
    chain: ChainResult | None,
) -> list[str]:
    cluster = question.cluster
    notes = [*cluster.notes, *changed.notes]
    has_budgets = any(isinstance(one, PodDisruptionBudget) for one in cluster.objects)
    if not has_budgets and (changed.recreated or any(one.effect == "evicted" for one in pods)):
        notes.append("there are no PodDisruptionBudgets in the input: evictions meet none")
    claimed = _missing_claims(changed.cluster)
    if claimed:
        what = count_of(claimed, "PersistentVolumeClaim", "PersistentVolumeClaims")
        notes.append(f"{what} of pending pods are not in the input: these pods cannot be placed")
    if changed.daemons:
        what = count_of(changed.daemons, "pod")
        notes.append(f"{what} of DaemonSets and static pods go with their nodes")
    if chain is not None and chain.loops:
        notes.append(f"preemption loops: {', '.join(chain.loops)} evicted twice")
    if chain is not None and chain.untried:
        notes.append(f"the preemption chain was cut: {len(chain.untried):,} pods were not tried")
    options = question.options
    note = autoscaler_note(cluster.nodes, is_modelled=options.autoscale is not None)
    notes += [note] if note else []
    if options.autoscale is not None and options.timing is None:
        notes.append("the autoscaler only adds nodes here; start-up and scale-down need --for")
    return notes


def _missing_claims(cluster: Cluster) -> int:
    """Number of claims that pending pods name and the input lacks."""
    there = {one.key for one in cluster.objects if isinstance(one, PersistentVolumeClaim)}
    named = {
        f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}"
        for pod in cluster.pending()
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    }
    return len(named - there)
