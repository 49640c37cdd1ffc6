"""Cases of vGPU cards: pods that are offered to one node, one after the other."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from stowplan.batch.queue_models.volcano.plugins.nodes.vgpu_cards import (
    CardChoice,
    NodeCards,
    requests_cards,
)
from stowplan.conformance.queue_models.queue_model_cases import QueueModelCase
from stowplan.objects.meta import Value
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

Answer = dict[str, Any]


class VgpuCaseCluster(Value, frozen=True, gc=True):
    """`cluster` of a case."""

    node: Node
    running: tuple[Pod, ...] = ()
    pods: tuple[Pod, ...] = ()


def answer_cards(case: QueueModelCase, mends: Collection[str]) -> Answer:
    """The answer to a case."""
    cluster = msgspec.convert(case.cluster, VgpuCaseCluster)
    policy = case.config.get("schedulePolicy", "") if isinstance(case.config, dict) else ""
    cards = NodeCards.of(cluster.node)
    if cards is None:
        return {"noDevices": True}
    for pod in cluster.running:
        cards.add_running(pod)
    return {"pods": [_offered(cards, pod, policy, mends) for pod in cluster.pods]}


def _offered(cards: NodeCards, pod: Pod, policy: str, mends: Collection[str]) -> Answer:
    """What became of a pod; one that fits is placed."""
    found: Answer = {"pod": pod.name, "request": requests_cards(pod)}
    choice = cards.choose(pod, policy, mends) if found["request"] else CardChoice((), 0.0)
    found["fits"] = choice is not None
    if choice is not None:
        cards.place(pod, choice)
        found |= {"score": choice.score, "ids": choice.ids}
    found["devices"] = [
        {
            "uuid": card.uuid,
            "usedNum": card.used_slots,
            "usedMem": card.used_memory,
            "usedCore": card.used_cores,
        }
        for card in cards.cards
    ]
    return found
