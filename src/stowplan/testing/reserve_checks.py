"""Checks of AddPod and RemovePod, Reserve and Unreserve, and Permit. Each yields what is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stowplan.columns import NodeInfo, NodeTable, PodInfo
from stowplan.framework import (
    OK,
    Code,
    CycleState,
    Framework,
    ObjectStore,
    PermitWait,
    Pod,
    Snapshot,
    Status,
)
from stowplan.testing.contents import contents, differences
from stowplan.testing.generators.choices import pick
from stowplan.testing.plugin_trial import PluginAnswers, PluginTrial, disagreement, plugin_answers


def add_and_remove_pod_agree_with_filter(trial: PluginTrial) -> Iterator[str]:
    """After `add_pod` and `remove_pod`, Filter answers as if the pod had been added or removed.

    They are called on a clone of the state and must not affect the attempt itself.
    """
    framework, snapshot = trial.framework(), trial.scene.snapshot()
    nodes = snapshot.nodes
    for pod in trial.scene.pending:
        state = CycleState()
        outcome = framework.run_pre_filter(pod, snapshot, state)
        if not outcome.status.is_success or trial.plugin.name in state.skip_filter:
            continue
        infos = list(nodes.infos())
        before = [framework.filter_node(pod, info, state) for info in infos]
        info = pick(trial.rng, infos)
        came = PodInfo.of(pick(trial.rng, trial.scene.pending))
        if came.uid != pod.uid:
            yield from _with_a_pod(trial, framework, pod, info, came, state)
        if info.pods:
            yield from _without_a_pod(trial, framework, pod, info, state)
        after = [framework.filter_node(pod, info, state) for info in infos]
        for info, was, got in zip(infos, before, after, strict=True):
            if got != was:
                details = f"got {_format_status(got)} after what was asked on clones of the state"
                yield f"pod {pod.key!r} on node {info.name!r}: {details}, not as before"


def _with_a_pod(
    trial: PluginTrial,
    framework: Framework,
    pod: Pod,
    info: NodeInfo,
    came: PodInfo,
    state: CycleState,
) -> Iterator[str]:
    crowded, clone = info.copy(), state.clone()
    crowded.add_pod(came)
    status = framework.run_add_pod(pod, came, crowded, clone)
    table = trial.scene.table()
    table.add_pod(came, info.name)
    what = f"with pod {came.pod.key!r} added"
    yield from _filter_agrees(trial, framework, pod, crowded, clone, status, table, what)
    crowded.remove_pod(came.uid)
    status = framework.run_remove_pod(pod, came, crowded, clone)
    what += " and removed again"
    yield from _filter_agrees(
        trial, framework, pod, crowded, clone, status, trial.scene.table(), what
    )


def _without_a_pod(
    trial: PluginTrial, framework: Framework, pod: Pod, info: NodeInfo, state: CycleState
) -> Iterator[str]:
    left = pick(trial.rng, info.pods)
    emptier, clone = info.copy(), state.clone()
    emptier.remove_pod(left.uid)
    status = framework.run_remove_pod(pod, left, emptier, clone)
    table = trial.scene.table()
    table.remove_pod(left.uid)
    what = f"with pod {left.pod.key!r} removed"
    yield from _filter_agrees(trial, framework, pod, emptier, clone, status, table, what)


def _filter_agrees(
    trial: PluginTrial,
    framework: Framework,
    pod: Pod,
    node: NodeInfo,
    state: CycleState,
    status: Status,
    table: NodeTable,
    what: str,
) -> Iterator[str]:
    """Compare Filter on `node` with Filter of a new attempt on `table`."""
    where = f"pod {pod.key!r} on node {node.name!r} {what}"
    if not status.is_success:
        yield f"{where}: got {_format_status(status)}; expected Success"
        return
    anew, snapshot = CycleState(), Snapshot(table, ObjectStore(trial.scene.objects))
    outcome = framework.run_pre_filter(pod, snapshot, anew)
    # A pod that PreFilter refuses entirely is refused on this node too, whatever Filter answers.
    wanted = outcome.status
    if wanted.is_success:
        wanted = framework.filter_node(pod, table.info(table.row(node.name)), anew)
    got = framework.filter_node(pod, node, state)
    if got.is_success != wanted.is_success:
        expected = _format_status(wanted)
        yield f"{where}: got {_format_status(got)}; expected {expected} as if it were so"


def unreserve_undoes_reserve(trial: PluginTrial) -> Iterator[str]:
    """`unreserve` undoes `reserve`, and is harmless without it and when called twice."""
    framework, snapshot = trial.framework(), trial.scene.snapshot()
    before = contents(snapshot.nodes)
    wanted = {pod.key: plugin_answers(framework, pod, snapshot) for pod in trial.scene.pending}
    for pod in trial.scene.pending:
        node, state = _chosen(trial, framework, pod, snapshot)
        if not node:
            continue
        framework.run_unreserve(pod, node, state)
        yield from _unchanged(trial, framework, snapshot, wanted, pod, "unreserve alone")
        status = framework.run_reserve(pod, node, state)
        if not (status.is_success or status.is_rejected):
            yield f"pod {pod.key!r} on node {node!r}: reserve gave {_format_status(status)}"
        framework.run_unreserve(pod, node, state)
        framework.run_unreserve(pod, node, state)
        yield from _unchanged(trial, framework, snapshot, wanted, pod, "reserve and unreserve")
        for change in differences(contents(snapshot.nodes), before):
            yield f"pod {pod.key!r}: the node table was changed: {change}"


def _chosen(
    trial: PluginTrial, framework: Framework, pod: Pod, snapshot: Snapshot
) -> tuple[str, CycleState]:
    """A node that the pod fits, "" for none, and the state of that attempt."""
    state, nodes = CycleState(), snapshot.nodes
    if not framework.run_pre_filter(pod, snapshot, state).status.is_success:
        return "", state
    passed = framework.run_filters(pod, snapshot, state).passed()
    if not len(passed) or not framework.run_pre_score(pod, snapshot, passed, state).is_success:
        return "", state
    return nodes.names[int(pick(trial.rng, passed.tolist()))], state


def _unchanged(
    trial: PluginTrial,
    framework: Framework,
    snapshot: Snapshot,
    wanted: dict[str, PluginAnswers],
    reserved: Pod,
    what: str,
) -> Iterator[str]:
    for pod in trial.scene.pending:
        difference = disagreement(plugin_answers(framework, pod, snapshot), wanted[pod.key])
        if difference:
            details = f"after {what} of pod {reserved.key!r}, not as before"
            yield f"pod {pod.key!r}, {details}: {difference}"


def permit_results_are_valid(trial: PluginTrial) -> Iterator[str]:
    """`permit` allows, refuses, fails, or waits for a number of seconds above 0."""
    framework, snapshot = trial.framework(), trial.scene.snapshot()
    member = trial.member(framework)
    for pod in trial.scene.pending:
        node, state = _chosen(trial, framework, pod, snapshot)
        if not node or not framework.run_reserve(pod, node, state).is_success:
            continue
        answer = member.call("permit", pod, node, state)
        framework.run_unreserve(pod, node, state)
        where = f"pod {pod.key!r} on node {node!r}: permit gave"
        if isinstance(answer, PermitWait):
            if not _is_valid_timeout(answer.timeout_s):
                yield f"{where} PermitWait({answer.timeout_s!r}); expected seconds above 0"
        elif answer.code in (Code.WAIT, Code.SKIP):
            wanted = "Success, a refusal, an Error, or PermitWait(seconds)"
            yield f"{where} {_format_status(answer)}; expected {wanted}"


def _is_valid_timeout(seconds: object) -> bool:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return False
    return math.isfinite(seconds) and seconds > 0


def _format_status(status: Status) -> str:
    return OK.code.title if status.is_success else f"{status.code.title} {status.message!r}"
