"""preempt_preview(): who would have to go for pods, and what follows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from stowplan.forecast.explain import found_pod
from stowplan.forecast.what_if.preemption_chain import PreemptionChain
from stowplan.forecast.what_if.questions import Question, WhatIfOptions, present, question_of
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.inputs.cluster_reader import Cluster, read_addition
from stowplan.inputs.input_error import InputError
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.insight.gang_notes import GATES_OFF
from stowplan.insight.pod_placement import Placement
from stowplan.insight.what_if.budgets import BudgetIndex
from stowplan.insight.what_if.result import PREVIEW_SCHEMA, PreemptionPreview
from stowplan.objects.pod import Pod
from stowplan.objects.workload import PodDisruptionBudget
from stowplan.simulation.scheduler_configuration import ConfigSource
from stowplan.simulation.simulate_jobs import is_for_sessions


def preempt_preview(
    cluster: Cluster | str | Path | Iterable[str | Path],
    pod: str = "",
    *,
    submit: str | Path | Iterable[str | Path] = (),
    config: ConfigSource | None = None,
    plugins: Iterable[PluginSource] = (),
    options: WhatIfOptions | None = None,
) -> PreemptionPreview:
    """Who would have to go for a pending pod, or for the pods of manifests, and what follows.

    pod: NAMESPACE/NAME. submit: manifests of pods that are not in the cluster. Other pending pods
    are not placed first; those of the PodGroup of Kubernetes of one of them are tried with it.
    Raises InputError, ConfigError and ContractError.
    """
    question = question_of(cluster, config=config, plugins=plugins, options=options)
    return preview(question, pod, submit)


def preview(
    question: Question,
    pod: str,
    submit: str | Path | Iterable[str | Path] = (),
    *,
    group: str = "",
) -> PreemptionPreview:
    """The preview for a question's cluster. group: a PodGroup of Kubernetes, in place of pods."""
    if group:
        version, asked = question.cluster, _pending_members(question, group)
    else:
        version, asked = _asked(question, pod, submit)
    if is_for_sessions(question.deciders, replace(version, pods=asked)):
        wanted = "pods that profiles schedule; `stowplan explain` shows whom a session evicts"
        raise InputError("preempt-preview", "", "pods that sessions schedule", wanted)
    loaded = question.loaded
    loaded.follow(version)
    budgets = BudgetIndex(version.objects)
    chain = PreemptionChain(loaded, budgets, present(question), version.pending()).run(asked)
    placements = tuple(_placement(one, chain.placed, chain.pending) for one in asked)
    victims = [victim for step in chain.steps for victim in step.victims]
    keys = {one.key for one in asked}
    lost_s = sum(victim.ran_s or 0.0 for victim in victims)
    summary: dict[str, float] = {
        "placed": sum(bool(one.node) for one in placements),
        "pending": len(chain.pending),
        "evicted": len(victims),
        "lost": sum(victim.again is None for victim in victims),
        "violations": sum(len(victim.budgets) for victim in victims),
        "loops": len(chain.loops),
        "depth": max((step.depth for step in chain.steps), default=0),
        "ran_s": lost_s,
    }
    notes = list(question.cluster.notes)
    if victims and not any(isinstance(one, PodDisruptionBudget) for one in version.objects):
        notes.append("there are no PodDisruptionBudgets in the input: evictions meet none")
    if any(victim.ran_s is None for victim in victims):
        notes.append("pods without status.startTime: how long they have run is not known")
    untried = tuple(f"pod {key}: the chain was cut" for key in chain.untried)
    pending = tuple(one for key, one in chain.pending.items() if key not in keys)
    return PreemptionPreview(
        PREVIEW_SCHEMA,
        placements,
        chain.steps,
        pending,
        chain.loops,
        summary,
        tuple(notes),
        untried,
    )


def _pending_members(question: Question, group: str) -> list[Pod]:
    if not question.deciders.gates.generic_workload:
        raise InputError.at(f"podgroup {group}", "", f"not scheduled as a group: {GATES_OFF}")
    asked = [pod for pod in question.cluster.pending() if group_key_of(pod) == group]
    if not asked:
        raise InputError(f"podgroup {group}", "", "no pending pods", "a group with pending pods")
    return asked


def _asked(
    question: Question, pod: str, submit: str | Path | Iterable[str | Path]
) -> tuple[Cluster, list[Pod]]:
    """The cluster with what is submitted, and the pods that the question is about."""
    cluster = question.cluster
    files = [submit] if isinstance(submit, str | Path) else list(submit)
    if bool(pod) == bool(files):
        raise InputError("preempt-preview", "", "", "a pending pod, or manifests of new pods")
    if files:
        added = read_addition(files, cluster)
        version = replace(cluster, objects=[*cluster.objects, *added.objects])
        return version, added.pending()
    found = found_pod(pod, cluster)
    if found.node_name or found.is_finished:
        state = f"on node {found.node_name}" if found.node_name else "finished"
        raise InputError(f"pod {pod}", "", state, "a pending pod")
    return cluster, [found]


def _placement(pod: Pod, placed: dict[str, str], pending: dict[str, Placement]) -> Placement:
    return pending.get(pod.key) or Placement(pod.key, placed.get(pod.key, ""))
