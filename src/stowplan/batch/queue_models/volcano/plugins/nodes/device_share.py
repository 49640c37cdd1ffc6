"""deviceshare: shares of GPU cards (vGPU).

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/deviceshare.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stowplan.batch.queue_models.volcano.plugins.nodes.vgpu_cards import (
    IDS,
    CardChoice,
    NodeCards,
    requests_cards,
)
from stowplan.batch.queue_models.volcano.pod_rules import PASSES, UNSCHEDULABLE
from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import boolean, integer, text
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Floats, Ints

TO_ALLOCATE, OF_NODE = "volcano.sh/devices-to-allocate", "volcano.sh/vgpu-node"


class VolcanoDeviceShare(VolcanoPlugin):
    """Cards of nodes, with what the session places on them.

    Differs: where the original undoes a placement or an eviction within a session, it counts cards
    twice or not at all; here they are as before.
    """

    name = "deviceshare"

    def open(self, session: VolcanoSession) -> None:
        """Read the cards of nodes and what running pods have of them."""
        self._policy = text(self.arguments, "deviceshare.SchedulePolicy")
        self._mends = session.options.mends
        self._weight = integer(self.arguments, "deviceshare.ScheduleWeight", 0)
        self._cards: dict[str, NodeCards] = {}
        self._choices: dict[str, CardChoice] = {}
        if not boolean(self.arguments, "deviceshare.VGPUEnable", default=False):
            return
        for node in session.node_list:
            cards = NodeCards.of(node.node)
            if cards is None:
                continue
            self._cards[node.name] = cards
            for task in node.tasks.values():
                cards.add_running(task.pod)
                self._choices[task.uid] = cards.running_choice(task.pod)

    def predicate(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Ints:
        """Nodes on whose cards the task fits; those without cards pass."""
        codes = np.zeros(len(nodes), dtype=np.int64)
        if requests_cards(task.pod):
            for i, node in enumerate(nodes):
                cards = self._cards.get(node.name)
                fits = (
                    cards is None or cards.choose(task.pod, self._policy, self._mends) is not None
                )
                codes[i] = PASSES if fits else UNSCHEDULABLE
        return codes

    def node_order(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Floats:
        """float64 (n_nodes,): scores of the cards, rounded, times the weight."""
        scores = np.zeros(len(nodes), dtype=np.float64)
        if self._weight > 0 and requests_cards(task.pod):
            for i, node in enumerate(nodes):
                cards = self._cards.get(node.name)
                choice = (
                    None if cards is None else cards.choose(task.pod, self._policy, self._mends)
                )
                if choice is not None:
                    scores[i] = math.floor(choice.score + 0.5) * self._weight
        return scores

    def allocated(self, task: VolcanoTask) -> bool:
        """Give a placed task its cards, and the annotations that name them."""
        cards = self._cards.get(task.node)
        if cards is None or not requests_cards(task.pod):
            return True
        choice = self._choices.get(task.uid) or cards.choose(task.pod, self._policy, self._mends)
        if choice is None:
            return False
        cards.place(task.pod, choice)
        self._choices[task.uid] = choice
        if task.pod.node_name != task.node:
            added = {IDS: choice.ids, TO_ALLOCATE: choice.ids, OF_NODE: task.node}
            task.annotations = {**task.annotations, **added}
        return True

    def released(self, task: VolcanoTask) -> None:
        """Take the cards from a task."""
        cards, choice = self._cards.get(task.node), self._choices.get(task.uid)
        if cards is None or choice is None:
            return
        cards.remove(task.pod, choice)
        if task.pod.node_name != task.node:
            del self._choices[task.uid]
            added = (IDS, TO_ALLOCATE, OF_NODE)
            task.annotations = {k: v for k, v in task.annotations.items() if k not in added}
