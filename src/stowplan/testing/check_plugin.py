"""check_plugin(): checks of the plugin contract.

    from stowplan.testing import check_plugin, checks

    def test_my_plugin():
        check_plugin(MyPlugin)

    @pytest.mark.parametrize("check", checks(MyPlugin))   # or one test per check
    def test_my_plugin(check):
        check()

Each check generates clusters from fixed seeds and calls the plugin, alone, as the framework does.
State of a plugin outside of nodes, pods and the objects of `GeneratedCluster` is not tested.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np

from stowplan.columns import NodeTable
from stowplan.framework import (
    SCORE_MAX,
    ContractError,
    CycleState,
    FeatureGates,
    Framework,
    ObjectStore,
    QueuedPod,
    Snapshot,
    plugin_of,
)
from stowplan.framework.extension_points import points_of
from stowplan.framework.plugin_calls import definition_location
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.testing.event_checks import events_to_register_are_complete
from stowplan.testing.generators.choices import random_int
from stowplan.testing.generators.scenes import GeneratedCluster
from stowplan.testing.object_changes import ObjectSnapshot, record_mutations
from stowplan.testing.placement_checks import placement_scores_are_valid, placements_are_valid
from stowplan.testing.plugin_trial import PluginAnswers, PluginTrial, disagreement, plugin_answers
from stowplan.testing.reserve_checks import (
    add_and_remove_pod_agree_with_filter,
    permit_results_are_valid,
    unreserve_undoes_reserve,
)

SEEDS = range(12)
_ASKED_ABOUT = re.compile(r" (?:of|for) pod '[^']*'| on node '[^']*'|profile '[^']*': ")
_FIELD = re.compile(r": (pre_enqueue|pre_filter|restricted|filter|pre_score|raw|final)(?: on|:) ")
_PLACE = re.compile(r" \([^ ()]+:\d+\)")
METHODS = {
    "pre_enqueue": ("pre_enqueue",),
    "pre_filter": ("pre_filter",),
    "restricted": ("pre_filter",),
    "filter": ("filter_column", "filter"),
    "pre_score": ("pre_score",),
    "raw": ("score_column", "score"),
    "final": ("score_column", "score", "normalize_score"),
}
"""What answers differ in -> the methods that may be wrong."""


class CheckFailed(AssertionError):
    """A failed check. plugin, check, seed: which plugin and check, and the seed that reproduces it.

    finding: equal for two checks that fail for the same reason.
    """

    def __init__(self, plugin: str, check: str, seed: int, details: str, finding: str = "") -> None:
        """details: the call, its result and what was expected."""
        super().__init__(f"plugin {plugin!r}: {check} (seed {seed}): {details}")
        self.plugin = plugin
        self.check = check
        self.seed = seed
        self.finding = finding or str(self)


class Check:
    """One check of one plugin; call it to run it. `__name__` names both, for test ids."""

    def __init__(
        self, name: str, plugin: type[Any], args: Any, seeds: Iterable[int], gates: FeatureGates
    ) -> None:
        self.name = name
        self.plugin = plugin
        self.__name__ = f"{plugin.name}-{name}"
        self._args = args
        self._seeds = tuple(seeds)
        self._gates = gates

    def __repr__(self) -> str:
        return self.__name__

    def __call__(self) -> None:
        """Raise CheckFailed when the plugin fails the check for one of the seeds."""
        for seed in self._seeds:
            try:
                trial = PluginTrial(self.plugin, self._args, self._gates, seed)
                details = next(CHECKS[self.name](trial), "")
            except ContractError as broken:
                text = str(broken).removeprefix(f"plugin {self.plugin.name!r}: ")
                finding = _ASKED_ABOUT.sub("", text)
                raise CheckFailed(self.plugin.name, self.name, seed, text, finding) from broken
            if details:
                place = "" if _PLACE.search(details) else self._place(details)
                raise CheckFailed(self.plugin.name, self.name, seed, details + place)

    def _place(self, details: str) -> str:
        """ " (packed.py:14)": location of the method that `details` is about."""
        field = _FIELD.search(details)
        if field is None:
            return definition_location(self.plugin, *CONCERNS.get(self.name, ()))
        by_column = self.name in ("column_agrees_with_scalar", "returned_columns_are_owned")
        methods = METHODS[field[1]]
        return definition_location(self.plugin, *(methods if by_column else methods[::-1]))


def check_plugin(
    plugin: Callable[..., Any],
    args: Any = None,
    *,
    seeds: Iterable[int] = SEEDS,
    gates: FeatureGates | None = None,
) -> None:
    """Run every check; raises CheckFailed at the first that fails.

    plugin: a class, or a function under `@score`, `@filter` or `@priority`. args: the arguments of
    the plugin, None for its defaults.
    """
    for check in checks(plugin, args, seeds=seeds, gates=gates):
        check()


def checks(
    plugin: Callable[..., Any],
    args: Any = None,
    *,
    seeds: Iterable[int] = SEEDS,
    gates: FeatureGates | None = None,
) -> list[Check]:
    """The checks that apply to a plugin, to run one by one: an argument of pytest's parametrize."""
    kept = tuple(seeds)
    made = plugin_of(plugin)
    if not isinstance(getattr(made, "name", None), str) or not points_of(made):
        details = "expected a class with a `name` and a method of an extension point, or a rule"
        raise CheckFailed(getattr(made, "__qualname__", repr(made)), "is_a_plugin", 0, details)
    return [
        Check(name, made, args, kept, gates or FeatureGates())
        for name in CHECKS
        if any(hasattr(made, method) for method in CONCERNS.get(name, ("name",)))
    ]


# The checks. Each yields what is wrong, if anything is; the first is reported.


def column_agrees_with_scalar(trial: PluginTrial) -> Iterator[str]:
    """`filter_column` and `score_column` agree with `filter` and `score`.

    For all rows, for some in any order and for none: verdicts, reasons and raw scores.
    """
    by_column, by_node = trial.framework(), trial.framework(columns=False)
    snapshot = trial.scene.snapshot()
    none = np.zeros(0, dtype=np.int64)
    for pod in trial.scene.pending:
        for rows in (None, trial.some_rows(snapshot.nodes), none):
            got = plugin_answers(by_column, pod, snapshot, rows)
            wanted = plugin_answers(by_node, pod, snapshot, rows)
            asked = "all rows" if rows is None else f"rows {rows.tolist()}"
            yield from _compare_answers(
                got, wanted, pod, f"by column ({asked}), compared with node by node"
            )


def inputs_are_not_modified(trial: PluginTrial) -> Iterator[str]:
    """Pod, nodes, columns, other objects and the scores to normalize are not changed."""
    framework, snapshot = trial.framework(), trial.scene.snapshot()
    kept = ObjectSnapshot(_all_of(trial.scene), snapshot.nodes)
    for pod in trial.scene.pending:
        plugin_answers(framework, pod, snapshot)
        change = kept.change()
        if change:
            yield f"pod {pod.key!r}: {_modifying_method(trial.again()) or change}"
        yield from _normalize_changes_input(trial, framework, pod, snapshot)


def _all_of(scene: GeneratedCluster) -> Iterator[Object]:
    yield from scene.nodes
    yield from scene.pods
    yield from scene.pending
    yield from scene.objects


def _modifying_method(trial: PluginTrial) -> str:
    """The method that changes an input, and the change; "" where it cannot be reproduced."""
    framework, snapshot = trial.framework(), trial.scene.snapshot()
    found: list[str] = []
    record_mutations(
        trial.member(framework), ObjectSnapshot(_all_of(trial.scene), snapshot.nodes), found
    )
    for pod in trial.scene.pending:
        plugin_answers(framework, pod, snapshot)
        if found:
            return found[0]
    return ""


def _normalize_changes_input(
    trial: PluginTrial, framework: Framework, pod: Pod, snapshot: Snapshot
) -> Iterator[str]:
    nodes, member, state = snapshot.nodes, trial.member(framework), CycleState()
    raw = plugin_answers(framework, pod, snapshot).raw
    if member.calls["normalize_score"] is None or not raw:
        return
    rows = np.sort(np.array([nodes.row(name) for name in raw], dtype=np.int64))
    framework.run_pre_filter(pod, snapshot, state)
    framework.run_pre_score(pod, snapshot, rows, state)
    scores = np.array([raw[nodes.names[row]] for row in rows.tolist()], dtype=np.int64)
    given = scores.copy()
    member.call("normalize_score", given, pod, nodes, rows, state)
    if not np.array_equal(given, scores):
        place = definition_location(trial.plugin, "normalize_score")
        yield (
            f"pod {pod.key!r}: normalize_score{place} changed `scores`, which was "
            f"{scores.tolist()}, is {given.tolist()}"
        )


def returned_columns_are_owned(trial: PluginTrial) -> Iterator[str]:
    """`filter_column` and `score_column` return arrays of their own, not views of a column."""
    framework, snapshot = trial.framework(), trial.scene.snapshot()
    nodes = snapshot.nodes
    columns = _columns(nodes)
    member = trial.member(framework)
    for pod in trial.scene.pending:
        state = CycleState()
        if not framework.run_pre_filter(pod, snapshot, state).status.is_success:
            continue
        skipped = {"filter_column": state.skip_filter, "score_column": state.skip_score}
        if not framework.run_pre_score(pod, snapshot, np.arange(nodes.n_nodes), state).is_success:
            skipped["score_column"].add(member.name)
        for method, names in skipped.items():
            if member.calls[method] is None or member.name in names:
                continue
            answer = member.call(method, pod, nodes, nodes.all_rows, state)
            if any(np.may_share_memory(answer, column) for column in columns):
                written_at = f"{method}{definition_location(trial.plugin, method)}"
                yield f"pod {pod.key!r}: {written_at} returns a view; expected a new array"


def _columns(nodes: NodeTable) -> list[Any]:
    columns = [nodes.pod_count, nodes.unschedulable, nodes.order, nodes.rank]
    columns += [nodes.nonzero_requested("cpu"), nodes.nonzero_requested("memory")]
    for name in nodes.resources.values:
        columns += [nodes.allocatable(name), nodes.requested(name)]
    return columns


def scores_are_in_range(trial: PluginTrial) -> Iterator[str]:
    """After `normalize_score` every score is an int64 from 0 to SCORE_MAX."""
    framework, snapshot = trial.framework(), trial.scene.snapshot()
    weight = trial.member(framework).weight
    for pod in trial.scene.pending:
        for name, score in plugin_answers(framework, pod, snapshot).final.items():
            if not 0 <= score <= SCORE_MAX * weight:
                yield (
                    f"pod {pod.key!r} on node {name!r}: got {score}, "
                    f"expected 0 to {SCORE_MAX} times the weight {weight}"
                )


def row_order_does_not_matter(trial: PluginTrial) -> Iterator[str]:
    """The same nodes on other rows get the same answers."""
    framework, scene = trial.framework(), trial.scene
    snapshot = scene.snapshot()
    other = Snapshot(_permuted(trial), ObjectStore(scene.objects))
    for pod in scene.pending:
        wanted = plugin_answers(framework, pod, snapshot)
        got = plugin_answers(framework, pod, other)
        yield from _compare_answers(got, wanted, pod, "with the nodes on other rows")


def _permuted(trial: PluginTrial) -> NodeTable:
    """The cluster of the trial, built in another way: other order, nodes deleted and added
    again."""
    table, scene = NodeTable(), trial.scene
    for place in trial.rng.permutation(len(scene.nodes)).tolist():
        table.add_node(scene.nodes[place])
    for place in trial.rng.permutation(len(scene.pods)).tolist():
        table.add_pod(scene.pods[place])
    for node in scene.nodes:
        if random_int(trial.rng, 0, 2) == 0:
            table.remove_node(node.name)
            table.add_node(node)
    table.refresh()
    return table


def calls_are_repeatable(trial: PluginTrial) -> Iterator[str]:
    """The same pod on the same cluster gets the same answers again."""
    framework, snapshot = trial.framework(), trial.scene.snapshot()
    for pod in trial.scene.pending:
        wanted = plugin_answers(framework, pod, snapshot)
        got = plugin_answers(framework, pod, snapshot)
        yield from _compare_answers(got, wanted, pod, "on the second call")


def empty_cluster_is_accepted(trial: PluginTrial) -> Iterator[str]:
    """With no node at all, arrays are empty and nothing raises."""
    framework, snapshot = trial.framework(), Snapshot(NodeTable(), ObjectStore(trial.scene.objects))
    for pod in trial.scene.pending:
        got = plugin_answers(framework, pod, snapshot)
        if got.filter or got.raw or got.final:
            yield f"pod {pod.key!r}: got answers {got}; expected none"


def pods_are_independent(trial: PluginTrial) -> Iterator[str]:
    """Answers for a pod do not depend on the pods and clusters that were evaluated before."""
    used, scene = trial.framework(), trial.scene
    elsewhere = PluginTrial(
        trial.plugin, trial.args, trial.gates, random_int(trial.rng, 0, 10**6)
    ).scene
    snapshots = (scene.snapshot(), elsewhere.snapshot())
    for before, pod in zip(elsewhere.pending, scene.pending, strict=True):
        for earlier, later in product(snapshots, repeat=2):
            plugin_answers(used, before, earlier)
            got = plugin_answers(used, pod, later)
            wanted = plugin_answers(trial.framework(), pod, later)
            yield from _compare_answers(got, wanted, pod, f"after pod {before.key!r}")


def equal_signatures_mean_equal_answers(trial: PluginTrial) -> Iterator[str]:
    """Pods with equal signatures get the same answers, so the engine may evaluate one of them."""
    framework, snapshot = trial.framework(), trial.scene.snapshot()
    first: dict[object, tuple[Pod, PluginAnswers]] = {}
    for original in trial.scene.pending:
        for pod in (original, *(trial.with_field_of_other_pod(original) for _ in range(10))):
            signature = trial.member(framework).call("signature", pod)
            try:
                known = first.get(signature)
            except TypeError:
                yield f"pod {pod.key!r}: signature {signature!r}; expected a hashable"
                return
            got = plugin_answers(framework, pod, snapshot)
            if known is None:
                first[signature] = pod, got
                continue
            details = f"compared with pod {known[0].key!r} of the same signature"
            yield from _compare_answers(got, known[1], pod, details)


def queue_order_is_strict(trial: PluginTrial) -> Iterator[str]:
    """`less` is never true both ways nor in a cycle, and `sort_key` sorts the same way."""
    framework = trial.framework()
    key = framework.sort_key()
    pods = [QueuedPod(pod, float(random_int(trial.rng, 0, 3))) for pod in trial.scene.pending]
    for a in pods:
        for b in pods:
            less = framework.less(a, b)
            names = f"{a.pod.key!r} and {b.pod.key!r}"
            if less and framework.less(b, a):
                yield f"pods {names}: each is less than the other"
            if less and any(framework.less(b, c) and not framework.less(a, c) for c in pods):
                yield f"pods {names}: `less` is not transitive"
            if key is not None and bool(key(a) < key(b)) != less:
                yield f"pods {names}: less is {less}, and sort_key sorts the other way"


def _compare_answers(
    got: PluginAnswers, wanted: PluginAnswers, pod: Pod, details: str
) -> Iterator[str]:
    difference = disagreement(got, wanted)
    if difference:
        yield f"pod {pod.key!r}, {details}: {difference}"


CHECKS: dict[str, Callable[[PluginTrial], Iterator[str]]] = {
    check.__name__: check
    for check in (
        column_agrees_with_scalar,
        scores_are_in_range,
        inputs_are_not_modified,
        returned_columns_are_owned,
        row_order_does_not_matter,
        calls_are_repeatable,
        empty_cluster_is_accepted,
        pods_are_independent,
        equal_signatures_mean_equal_answers,
        queue_order_is_strict,
        add_and_remove_pod_agree_with_filter,
        unreserve_undoes_reserve,
        permit_results_are_valid,
        events_to_register_are_complete,
        placements_are_valid,
        placement_scores_are_valid,
    )
}
"""Every check by name, in the order in which they run."""

CONCERNS: dict[str, tuple[str, ...]] = {
    "column_agrees_with_scalar": ("filter_column", "score_column"),
    "returned_columns_are_owned": ("filter_column", "score_column"),
    "scores_are_in_range": ("score",),
    "equal_signatures_mean_equal_answers": ("signature",),
    "queue_order_is_strict": ("less",),
    "add_and_remove_pod_agree_with_filter": ("add_pod",),
    "unreserve_undoes_reserve": ("reserve",),
    "permit_results_are_valid": ("permit",),
    "events_to_register_are_complete": ("events_to_register",),
    "placements_are_valid": ("generate_placements",),
    "placement_scores_are_valid": ("score_placement",),
}
"""Check -> the methods of which a plugin must have one; the others apply to every plugin."""
