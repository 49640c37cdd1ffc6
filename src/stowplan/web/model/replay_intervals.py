"""A finished run as intervals: which pod was on which node from when to when.

The browser adds up the state of any time; 12 bytes a pod say what frames would say in megabytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from stowplan.columns.nodeinfo import allocatable_amounts
from stowplan.insight.pod_placement import Placement, condition_message
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import fit_requests
from stowplan.simulation.results.pod_history import TimedPlacement
from stowplan.web.model.node_columns import resource_trees
from stowplan.web.model.page_frames import Array, FrameBody
from stowplan.web.model.pending_rows import RuleReason, gpus_of, rule_and_reason
from stowplan.web.model.queue_tree import gang_key, queues_of_gangs

NEVER = 4_294_967_295
"""A time that is not within the run: 2**32 - 1."""
TIME, PODS = "time_s", "pods"


class PodInterval(msgspec.Struct, frozen=True):
    """A pod of a run. node: "" for none. created, bound, ended: seconds from the start, or in a
    placement run the number of pods tried before; NEVER where it did not happen."""

    pod: Pod
    node: str
    created: float
    bound: float
    ended: float
    placement: Placement | None = None

    def is_on_node(self, time: float) -> bool:
        """True while the pod is on its node."""
        return bool(self.node) and self.bound <= time < self.ended


class RunIntervals(msgspec.Struct, frozen=True):
    """All pods of a run. axis: TIME or PODS. end: the last time at which something happened."""

    nodes: Sequence[Node]
    pods: Sequence[PodInterval]
    objects: Sequence[Object]
    axis: str
    end: float


def run_intervals(
    nodes: Sequence[Node],
    bound_before: Iterable[Pod],
    pods: Sequence[Pod],
    placements: Sequence[Placement],
    objects: Sequence[Object] = (),
) -> RunIntervals:
    """The intervals of a run. pods: in the order of the placements. bound_before: pods that were
    bound before the start."""
    found = [PodInterval(pod, pod.node_name, 0.0, 0.0, NEVER) for pod in bound_before]
    axis = PODS
    for place, (pod, one) in enumerate(zip(pods, placements, strict=True)):
        if isinstance(one, TimedPlacement):
            axis = TIME
            bound = NEVER if one.bound_s is None or not one.node else one.bound_s
            ended = NEVER if one.ended_s is None else one.ended_s
            found.append(PodInterval(pod, one.node, one.arrived_s, bound, ended, one))
        else:
            bound = place + 1.0 if one.node else NEVER
            found.append(PodInterval(pod, one.node, float(place), bound, NEVER, one))
    times = [t for one in found for t in (one.created, one.bound, one.ended) if t != NEVER]
    return RunIntervals(nodes, found, objects, axis, max(times, default=0.0))


def replay_body(run: RunIntervals, more: Mapping[str, Array] | None = None) -> FrameBody:
    """The frame of `GET replay`. more: further arrays."""
    rows = {node.name: row for row, node in enumerate(run.nodes)}
    queues = queues_of_gangs(run.objects)
    templates: dict[str, int] = {}
    trees: list[Tree] = []
    numbers: list[int] = []
    for one in run.pods:
        tree: Tree = {
            "requests": fit_requests(one.pod),
            "gpus": gpus_of(one.pod),
            "queue": queues.get(gang_key(one.pod), ""),
        }
        key = msgspec.json.encode(tree, order="sorted").decode()
        if key not in templates:
            templates[key] = len(trees)
            trees.append(tree)
        numbers.append(templates[key])
    last_reasons: dict[RuleReason, int] = {}
    offered = [allocatable_amounts(node) for node in run.nodes]
    names = sorted({name for amounts in offered for name in amounts})
    arrays: dict[str, Array] = {
        "node": np.array([rows.get(one.node, -1) for one in run.pods], dtype=np.int64),
        "created": np.array([one.created for one in run.pods]),
        "bound": np.array([one.bound for one in run.pods]),
        "ended": np.array([one.ended for one in run.pods]),
        "template": np.array(numbers, dtype=np.int64),
        "lastReason": np.array(
            [_last_reason(one, last_reasons) for one in run.pods], dtype=np.int64
        ),
    }
    for name in names:
        amounts_of = [amounts.get(name, 0) for amounts in offered]
        arrays[f"allocatable:{name}"] = np.array(amounts_of, dtype=np.int64)
    head: Tree = {
        "axis": run.axis,
        "start": 0.0,
        "end": run.end * 1000 if run.axis == TIME else run.end,
        "names": list(rows),
        "resources": resource_trees(names),
        "pods": [one.pod.key for one in run.pods],
        "templates": trees,
        "lastReasons": list(last_reasons),
    }
    return FrameBody(head, arrays | dict(more or {}))


def _last_reason(one: PodInterval, known: dict[RuleReason, int]) -> int:
    """The number, from 1, of the reason of the last try of a pod that was not bound; 0 without
    one. known: reason -> number; gets new ones."""
    if one.bound != NEVER or one.ended != NEVER:
        return 0
    message = condition_message(one.pod)
    if one.placement is not None:
        message = one.placement.message or message
    return known.setdefault(rule_and_reason(message, (), {}), len(known) + 1) if message else 0
