"""Explanation of the demo's placements: the output of `stowplan explain` for the recorded snapshot,
and the scheduler's own messages."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from stowplan.assembly.deciders import Deciders
from stowplan.cycle.explanation import Explanation, NodeScore
from stowplan.examples.demo_cluster import AppPlacement, demo_deciders
from stowplan.examples.demo_manifests import BATCH
from stowplan.forecast.explain import explain
from stowplan.forecast.explain_job import explain_job
from stowplan.inputs.cluster_reader import Cluster

PLUGINS_MAX = 2


def explain_placement(placement: AppPlacement) -> str:
    """Explanation for the pod of an app that was scheduled last, or is pending."""
    if not placement.pod:
        return "no pod is left"
    found = placement.snapshot
    cluster = Cluster(found.nodes, found.pods, found.objects)
    by = _job if placement.decided_by == BATCH else _pod
    text = by(placement.pod, cluster, demo_deciders())
    return "; ".join([text, *placement.written])


def _pod(key: str, cluster: Cluster, rules: Deciders) -> str:
    explanation = explain(key, cluster, config=rules)
    fitting = sum(node.fits for node in explanation.nodes)
    reasons = Counter(
        reason
        for node in explanation.nodes
        if node.first is not None
        for reason in node.first.reasons
    )
    text = f"{fitting} of {len(explanation.nodes)} nodes fit"
    if reasons:
        text += f" ({', '.join(f'{n} {reason}' for reason, n in reasons.most_common())})"
    return (
        f"{text}, {_score_explanation(explanation)}" if fitting > 1 and explanation.scores else text
    )


def _score_explanation(explanation: Explanation) -> str:
    """By how much the best node leads."""
    best = explanation.scores[0]
    for other, after in pairwise((*explanation.scores, best)):
        if other.total == best.total != after.total:
            equals = explanation.scores.index(other)
            text = f"{best.name} has {best.total} points"
            text += f" as {equals} more" if equals else ""
            return f"{text}, {after.name} {after.total} ({_difference(best, after)})"
    return f"all the best have {best.total} points"


def _difference(best: NodeScore, other: NodeScore) -> str:
    gains = {
        plugin: score.final - other.plugins[plugin].final
        for plugin, score in best.plugins.items()
        if plugin in other.plugins
    }
    most = sorted(gains, key=lambda plugin: -abs(gains[plugin]))[:PLUGINS_MAX]
    return ", ".join(f"{plugin} {gains[plugin]:+}" for plugin in most if gains[plugin])


def _job(key: str, cluster: Cluster, rules: Deciders) -> str:
    job = explain_job(key, cluster, config=rules).job
    if job is None:
        return "not part of a session"
    text = f"queue {job.queue}: {job.ready} of {job.pods} have a node, {job.min_member} needed"
    return f"{text}; {job.reason}: {job.message}" if job.reason else text
