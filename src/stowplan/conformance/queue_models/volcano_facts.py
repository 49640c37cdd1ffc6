"""What is observed of a session of Volcano."""

from __future__ import annotations

from typing import Any

import numpy as np

from stowplan.batch.queue_models.volcano.model.volcano_phases import phase_after
from stowplan.batch.queue_models.volcano.plugins.shares.queue_attributes import (
    QueueAttributes,
    QueuePlugin,
)
from stowplan.batch.queue_models.volcano.plugins.shares.volcano_capacity import VolcanoCapacity
from stowplan.batch.queue_models.volcano.plugins.shares.volcano_drf import VolcanoDrf
from stowplan.batch.queue_models.volcano.pod_rules import PASSES
from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.conformance.queue_models.queue_model_cases import amount_fact
from stowplan.framework.deciders.tasks import TaskStatus

Answer = dict[str, Any]

_AMOUNTS = (
    "deserved", "allocated", "request", "inqueue", "elastic", "guarantee", "real_capability",
)  # fmt: skip


def outcome(session: VolcanoSession) -> Answer:
    """What the session decided, and how it left jobs.

    Phases are those before plugins close: none is Unknown.
    """
    jobs = session.jobs.values()
    capacity = session.plugins.get(VolcanoCapacity.name)
    problem = capacity.problem if isinstance(capacity, VolcanoCapacity) else ""
    return {
        "problems": [problem] if problem else [],
        "binds": dict(session.binds),
        "nominated": dict(session.nominations),
        "evicts": [task.key for task in session.evicted],
        "pipelined": {task.key: task.node for job in jobs for task in job.of(TaskStatus.PIPELINED)},
        "phases": {job.uid: phase_after(job, has_gang=False) for job in jobs},
        "jobs": {
            job.uid: {
                "queue": job.queue,
                "tasks": {status.title: n for status, n in job.statuses().items()},
            }
            for job in jobs
        },
    }


def session_facts(session: VolcanoSession, suffix: str) -> Answer:
    """Amounts of queues, of the first plugin that has them, and shares of jobs. suffix: of the
    keys."""
    found: Answer = {}
    for plugin in session.plugins.values():
        if isinstance(plugin, QueuePlugin) and f"queues{suffix}" not in found:
            found[f"queues{suffix}"] = {
                name: _queue_facts(one) for name, one in plugin.attributes.items()
            }
        elif isinstance(plugin, VolcanoDrf):
            found[f"jobShares{suffix}"] = dict(plugin.shares)
    return found


def _queue_facts(attributes: QueueAttributes) -> Answer:
    facts: Answer = {}
    for name in _AMOUNTS:
        key = "realCapability" if name == "real_capability" else name
        facts[key] = _amounts(getattr(attributes, name))
    facts["share"] = attributes.share
    if attributes.ancestors:
        facts["ancestors"] = list(attributes.ancestors)
    return facts


def _amounts(amount: VolcanoAmount) -> Answer:
    return {name: amount_fact(n) for name, n in amount.items()}


def node_scores(session: VolcanoSession) -> Answer:
    """Pending pod -> node -> sum of all scores; `error` where a plugin fails."""
    found: Answer = {}
    for job in session.jobs.values():
        for task in job.of(TaskStatus.PENDING):
            order = np.zeros(len(session.node_list), dtype=np.float64)
            for call in session.hooks.all("node_order"):
                order += call(task, session.node_list)
            for call in session.hooks.all("batch_node_order"):
                scores = call(task, session.node_list)
                order += np.nan if scores is None else scores
            found[task.key] = {
                node.name: "error" if np.isnan(score) else float(score)
                for node, score in zip(session.node_list, order, strict=True)
            }
    return found


def node_fits(session: VolcanoSession) -> Answer:
    """Pending pod -> node -> whether all predicates pass."""
    found: Answer = {}
    for job in session.jobs.values():
        for task in job.of(TaskStatus.PENDING):
            is_prepared = session.prepare(task)
            codes = session.codes(task, session.node_list)
            found[task.key] = {
                node.name: bool(is_prepared and code == PASSES)
                for node, code in zip(session.node_list, codes, strict=True)
            }
    return found
