"""Kubernetes 1.13 cases: a cluster, a pod and a Policy.

The answer has the result of every predicate and priority for every node, the nodes that fit, and
their total scores.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stowplan import config
from stowplan.assembly import registry
from stowplan.columns.nodetable import table_of
from stowplan.config.policy import API_VERSION, KIND, read_document
from stowplan.config.policy_names import DEFAULT_PROVIDER, PROVIDERS, PolicyGates
from stowplan.config.policy_profile import Policy
from stowplan.conformance.case_lines import case_reader
from stowplan.cycle.attempt import Attempt, filter_pod
from stowplan.framework import (
    ConfigError,
    CycleState,
    FeatureGates,
    Framework,
    ObjectStore,
    PluginUse,
    Profile,
    Snapshot,
    Status,
)
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.inputs.input_error import mismatch
from stowplan.objects.meta import Value
from stowplan.objects.node import Node
from stowplan.objects.pod import DEFAULT_SCHEDULER, Pod
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from stowplan.objects.workload import ReplicaSet, ReplicationController, Service, StatefulSet
from stowplan.plugins.v1_13.priorities.priority_errors import aggregate_errors, priority_error_of

Answer = dict[str, Any]
Ints = NDArray[np.int64]

_FIRST = datetime.datetime(2019, 1, 1, tzinfo=datetime.UTC)


class LegacyCase(Value, frozen=True, gc=True):
    """One case. policy: body of a Policy file, None for that of the algorithm provider."""

    id: str
    pod: Pod
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    services: tuple[Service, ...] = ()
    replication_controllers: tuple[ReplicationController, ...] = ()
    replica_sets: tuple[ReplicaSet, ...] = ()
    stateful_sets: tuple[StatefulSet, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    policy: dict[str, Any] | None = None
    algorithm_provider: str = DEFAULT_PROVIDER
    feature_gates: dict[str, bool] = {}

    def object_store(self) -> ObjectStore:
        """Objects other than nodes and pods."""
        return ObjectStore((
            *self.services, *self.replication_controllers, *self.replica_sets, *self.stateful_sets,
            *self.persistent_volumes, *self.persistent_volume_claims, *self.storage_classes,
        ))  # fmt: skip

    def placed(self) -> list[Pod]:
        """Bound pods, with increasing creation times where they have none."""
        return [_created(pod, _FIRST + datetime.timedelta(n)) for n, pod in enumerate(self.pods)]


def _created(pod: Pod, when: datetime.datetime) -> Pod:
    if pod.metadata.creation_timestamp is not None:
        return pod
    return replace(pod, metadata=replace(pod.metadata, creation_timestamp=when))


read_case = case_reader(LegacyCase)


def gates_of(case: LegacyCase) -> PolicyGates:
    """Feature gates of a case; raises ConfigError for an unknown one."""
    return PolicyGates.of(case.feature_gates, case.id)


def configuration_of(case: LegacyCase) -> config.Configuration:
    """Configuration of a case; raises ConfigError where 1.13 would not start."""
    gates, provider = gates_of(case), case.algorithm_provider
    if provider not in PROVIDERS:
        text = mismatch(repr(provider), " or ".join(PROVIDERS))
        raise ValueError(f"{case.id}: algorithmProvider: {text}")
    tree = {"kind": KIND, "apiVersion": API_VERSION} if case.policy is None else case.policy
    return read_document(tree, case.id, registry(), gates=gates, provider=provider)


def answer(case: LegacyCase, *, columns: bool = True) -> Answer:
    """The answer to one case; raises QuantityError for a bad one, ConfigError for a bad gate.

    columns: False uses the scalar walk; the answer is the same.
    """
    gates_of(case)
    try:
        configuration = configuration_of(case)
    except ConfigError as refused:
        return {"configError": str(refused)}
    policy: Policy = configuration.policy
    profile = configuration.profiles[DEFAULT_SCHEDULER]
    snapshot = Snapshot(table_of(case.nodes, case.placed()), case.object_store())
    framework = Framework(profile, registry(), FeatureGates(), columns=columns)
    attempt = filter_pod(case.pod, snapshot, framework)
    result: Answer = {
        "predicateOrder": [p.name for p in policy.predicates if p.runs],
        "ignoredPredicates": [p.name for p in policy.predicates if not p.runs],
        "hardPodAffinityWeight": policy.hard_pod_affinity_weight,
        "priorityOrder": [
            {"name": p.name, "weight": p.weight, "form": _form(framework.members[m])}
            for p, m in _scoring(policy, profile)
        ],
        "predicates": _predicates(case.pod, snapshot, policy, profile, columns=columns),
        "fit": _fit(attempt),
    }
    if attempt.errors:
        return {**result, "scheduleError": True}
    rows = attempt.passed
    result["feasible"] = [snapshot.nodes.names[row] for row in rows.tolist()]
    if rows.shape[0]:
        result["scoring"] = _scores(attempt, policy, profile, rows)
    every = np.arange(snapshot.nodes.n_nodes)
    if rows.shape[0] < every.shape[0] and not policy.gates.balance_attached_node_volumes:
        result["scoringAllNodes"] = _scores(attempt, policy, profile, every)
    return result


def _scoring(policy: Policy, profile: Profile) -> list[tuple[Any, str]]:
    """Priorities of the policy with their names in the profile."""
    uses = [use.name for use in profile.points["score"]]
    return list(zip(policy.priorities, uses, strict=False))


def _form(member: RegisteredPlugin) -> str:
    if member.declaration.whole_list:
        return "function"
    return "map" if member.calls["normalize_score"] is None else "mapReduce"


def _predicates(
    pod: Pod, snapshot: Snapshot, policy: Policy, profile: Profile, *, columns: bool
) -> Answer:
    """Results of each predicate for each node, called separately, including ignored ones."""
    names = [predicate.name for predicate in policy.predicates]
    full = _with_ignored(profile, policy)
    framework = Framework(full, registry(), FeatureGates(), columns=columns)
    state = CycleState()
    framework.run_pre_filter(pod, snapshot, state)
    nodes = snapshot.nodes
    apart = framework.filters_separately(pod, nodes, nodes.all_rows, state)
    result: Answer = {name: [True] * nodes.n_nodes for name in names}
    for name, answers in apart.items():
        codes = answers.codes.tolist()
        result[name] = [_status_text(answers.explain(code)) if code else True for code in codes]
    return result


def _with_ignored(profile: Profile, policy: Policy) -> Profile:
    """The profile with the ignored predicates enabled."""
    ignored = [predicate for predicate in policy.predicates if not predicate.runs]
    if not ignored:
        return profile
    full = registry()
    points = dict(profile.points)
    args, aliases = dict(profile.args), dict(profile.aliases)
    for predicate in ignored:
        entry = full[predicate.rule]
        for point in ("preFilter", "filter"):
            if point in entry.points:
                points[point] = (*points[point], PluginUse(predicate.name))
        args[predicate.name] = predicate.args_in(full)
        aliases[predicate.name] = predicate.rule
    return replace(profile, points=points, args=args, aliases=aliases)


def _fit(attempt: Attempt) -> list[Any]:
    verdicts = attempt.verdicts
    if verdicts is None:
        return []
    return [_status_text(verdicts.at(place)) for place in range(verdicts.rows.shape[0])]


def _status_text(status: Status) -> Any:
    if status.is_success:
        return True
    return list(status.reasons) if status.is_rejected else {"error": status.message}


def _scores(attempt: Attempt, policy: Policy, profile: Profile, rows: Ints) -> Answer:
    """Scores of the priorities over rows, and their weighted sums.

    If priorities fail, the aggregated error replaces the totals.
    """
    framework, state = attempt.framework, attempt.state.clone()
    pod, nodes = attempt.pod, attempt.snapshot.nodes
    for member in framework.at("preScore"):
        member.call("pre_score", pod, attempt.snapshot, rows, state)
    asked = nodes.all_rows if rows.shape[0] == nodes.n_nodes else rows
    entries: Answer = {}
    errors: list[str] = []
    # Without priorities every node scores 1.
    unscored = not (policy.priorities or policy.extenders)
    totals = np.full(rows.shape[0], int(unscored), dtype=np.int64)
    for priority, name in _scoring(policy, profile):
        member = framework.members[name]
        failure = priority_error_of(member.plugin, pod, attempt.snapshot)
        if failure:
            errors.append(failure)
            continue
        mapped = member.scores(pod, nodes, asked, state)
        final = member.normalized(mapped, pod, nodes, asked, state)
        totals += final * priority.weight
        entry: Answer = {} if _form(member) == "function" else {"map": mapped.tolist()}
        entries[priority.name] = {**entry, "score": final.tolist()}
    if errors:
        return {"priorities": entries, "error": aggregate_errors(sorted(errors))}
    names = [nodes.names[row] for row in rows.tolist()]
    return {"priorities": entries, "totals": totals.tolist(), "top": _top(names, totals)}


def _top(names: Sequence[str], totals: Ints) -> list[str]:
    best = totals.max(initial=np.iinfo(np.int64).min)
    return [name for name, total in zip(names, totals.tolist(), strict=True) if total == best]
