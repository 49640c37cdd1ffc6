"""One plugin on a generated cluster, and all its answers there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from stowplan.columns import NodeTable, Rows
from stowplan.columns.array_types import Ints
from stowplan.framework import (
    CycleState,
    FeatureGates,
    Framework,
    PluginUse,
    Profile,
    QueuedPod,
    Registry,
    Snapshot,
    Status,
)
from stowplan.framework.extension_points import points_of
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.pod import Pod, PodSpec
from stowplan.testing.generators.choices import pick, random_int
from stowplan.testing.generators.scenes import GeneratedCluster, generate_cluster, pending_pod

N_NODES_MAX = 10


class _ArrivalQueueSort:
    """Queue sort of a profile whose plugin does not sort."""

    name = "testing/ByArrival"

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        return first.added_at < second.added_at


class PluginAnswers(msgspec.Struct, frozen=True):
    """All answers of a plugin for one pod on one cluster, by node name where they are per node.

    raw, final: scores before and after normalization and weight, of the nodes that passed.
    """

    pre_enqueue: Status | None = None
    pre_filter: Status = Status()
    restricted: frozenset[str] | None = None
    filter: dict[str, Status] = {}
    pre_score: Status = Status()
    raw: dict[str, int] = {}
    final: dict[str, int] = {}


class PluginTrial:
    """A plugin class, its arguments and a seed.

    The seed generates `scene`, and all choices of a check after it.
    """

    def __init__(self, plugin: type[Any], args: Any, gates: FeatureGates, seed: int) -> None:
        self.plugin = plugin
        self.args = args
        self.gates = gates
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        n_nodes = random_int(self.rng, 1, N_NODES_MAX)
        self.scene: GeneratedCluster = generate_cluster(
            self.rng, n_nodes=n_nodes, n_pods=2 * n_nodes
        )

    def again(self) -> PluginTrial:
        """A trial of the same plugin with the same seed and its own objects."""
        return PluginTrial(self.plugin, self.args, self.gates, self.seed)

    def framework(self, *, columns: bool = True) -> Framework:
        """A new framework with a new object of the plugin. columns: False evaluates node by
        node."""
        registry = Registry()
        registry.register(self.plugin)
        own = (PluginUse(self.plugin.name),)
        uses: dict[str, tuple[PluginUse, ...]] = dict.fromkeys(points_of(self.plugin), own)
        if "queueSort" not in uses:
            registry.register(_ArrivalQueueSort)
            uses["queueSort"] = (PluginUse(_ArrivalQueueSort.name),)
        args = {} if self.args is None else {self.plugin.name: self.args}
        profile = Profile("testing", points=uses, args=args)
        return Framework(profile, registry, self.gates, columns=columns)

    def member(self, framework: Framework) -> RegisteredPlugin:
        """The plugin with its methods bound."""
        return framework.members[self.plugin.name]

    def some_rows(self, table: NodeTable) -> Ints:
        """int64: some of the rows, in any order."""
        rows = self.rng.permutation(table.n_nodes)
        return rows[: random_int(self.rng, 0, table.n_nodes)].astype(np.int64)

    def with_field_of_other_pod(self, pod: Pod) -> Pod:
        """`pod` with one field of another pod: equal to plugins that do not read it."""
        other = pending_pod(self.rng, f"{pod.name}-x", ["n0", "n1"])
        fields = ("labels", "namespace", *PodSpec.__struct_fields__)
        field = pick(self.rng, fields)
        metadata = replace(pod.metadata, name=other.name, uid=other.uid)
        if field in ("labels", "namespace"):
            metadata = replace(metadata, **{field: getattr(other.metadata, field)})
            return replace(pod, metadata=metadata)
        spec = replace(pod.spec, **{field: getattr(other.spec, field)})
        return replace(pod, metadata=metadata, spec=spec)


def plugin_answers(
    framework: Framework, pod: Pod, snapshot: Snapshot, rows: Rows | None = None
) -> PluginAnswers:
    """Answers of the plugins of `framework` for `pod` on `rows`, all of them by default.

    As in an attempt: a pod that PreFilter refuses is not filtered, a node that Filter refuses is
    not scored.
    """
    nodes, state = snapshot.nodes, CycleState()
    # PreEnqueue has no snapshot: it reads the world as it is now.
    framework.shared.object_store = snapshot.object_store
    asked = nodes.all_rows if rows is None else rows
    known = pre_enqueue(framework, pod)
    outcome = framework.run_pre_filter(pod, snapshot, state)
    if not outcome.status.is_success or outcome.restrict is not None:
        known = replace(known, pre_filter=outcome.status, restricted=outcome.restrict)
    if not outcome.status.is_success:
        return known
    verdicts = filter_statuses(framework, pod, nodes, asked, state)
    known = replace(known, filter=verdicts)
    passed = [nodes.row(name) for name, status in verdicts.items() if status.is_success]
    return score(framework, pod, snapshot, np.array(passed, dtype=np.int64), state, known)


def pre_enqueue(framework: Framework, pod: Pod) -> PluginAnswers:
    """Answers with the result of PreEnqueue only."""
    return PluginAnswers(
        pre_enqueue=framework.run_pre_enqueue(pod) if framework.at("preEnqueue") else None
    )


def filter_statuses(
    framework: Framework, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
) -> dict[str, Status]:
    """Node name -> status of Filter, in the order of `rows`."""
    statuses = {name: Status() for name in names_of(nodes, rows)}
    for plugin, verdicts in framework.filters_separately(pod, nodes, rows, state).items():
        for name, code in zip(statuses, verdicts.codes.tolist(), strict=True):
            if code:
                statuses[name] = verdicts.explain(code).by(plugin)
    return statuses


def score(
    framework: Framework,
    pod: Pod,
    snapshot: Snapshot,
    rows: Ints,
    state: CycleState,
    known: PluginAnswers,
) -> PluginAnswers:
    """`known` with the scores of `rows`."""
    nodes = snapshot.nodes
    status = framework.run_pre_score(pod, snapshot, np.sort(rows), state)
    known = replace(known, pre_score=status)
    if not status.is_success:
        return known
    everything = np.array_equal(rows, np.arange(nodes.n_nodes))
    asked: Rows = nodes.all_rows if everything else rows
    raw = {
        name: raw_score
        for scores in framework.scores_separately(pod, nodes, asked, state).values()
        for name, raw_score in zip(names_of(nodes, asked), scores.tolist(), strict=True)
    }
    scores = framework.run_scores(pod, nodes, np.sort(rows), state)
    final = {
        name: points
        for column in scores.final.values()
        for name, points in zip(names_of(nodes, scores.rows), column.tolist(), strict=True)
    }
    return replace(known, raw=raw, final=final)


def names_of(nodes: NodeTable, rows: Rows) -> list[str]:
    """The names of the nodes on `rows`, in their order."""
    return [nodes.names[row] for row in np.arange(nodes.n_nodes)[rows].tolist()]


def disagreement(got: PluginAnswers, wanted: PluginAnswers) -> str:
    """The first difference, "" when there is none."""
    return next(_disagreements(got, wanted), "")


def _disagreements(got: PluginAnswers, wanted: PluginAnswers) -> Iterator[str]:
    for field in PluginAnswers.__struct_fields__:
        have, want = getattr(got, field), getattr(wanted, field)
        if have == want:
            continue
        if isinstance(have, dict):
            yield from _by_node(field, have, want)
        else:
            yield f"{field}: got {_format_answer(have)}; expected {_format_answer(want)}"


def _by_node(field: str, have: dict[str, Any], want: dict[str, Any]) -> Iterable[str]:
    for name in dict.fromkeys((*want, *have)):
        if have.get(name) != want.get(name):
            got, wanted = _format_answer(have.get(name)), _format_answer(want.get(name))
            yield f"{field} on node {name!r}: got {got}; expected {wanted}"


def _format_answer(answer: object) -> str:
    if isinstance(answer, Status):
        return answer.code.title + (f" {answer.message!r}" if answer.reasons else "")
    return repr(sorted(answer)) if isinstance(answer, frozenset) else repr(answer)
