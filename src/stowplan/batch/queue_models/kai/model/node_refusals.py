"""What beside amounts keeps a pod of a session of KAI-Scheduler from a node: kinds and memory of
cards, numbers of pods, affinity to pods, claims.
"""

from __future__ import annotations

from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_amount import CARDS
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import MIG, KaiTask

NO_MEMORY_LABEL = "node(s) without memory of cards in the label nvidia.com/gpu.memory"
OLD_MIG = "node(s) that take no pods with MIG instances in annotations"
CLAIMED_CARDS = "node(s) whose cards are for claims and not shared"
NOT_MIG = "node(s) without MIG"
OLD_MIG_THERE = "node(s) with pods that have MIG instances in annotations"
ONLY_WHOLE = "node(s) for whole cards only, by nvidia.com/mig.strategy single"
ONLY_MIG = "node(s) for MIG instances only, by nvidia.com/mig.strategy mixed"
NOT_OTHERWISE = "node(s) didn't fit the pod for another reason"


def lacks_cards(task: KaiTask, node: KaiNode) -> bool:
    """Whether a pod that shares cards has none to share, now or once pods are gone."""
    return not node.has_cards_to_share(task, node.idle[CARDS] + node.releasing[CARDS])


def card_refusal(task: KaiTask, node: KaiNode) -> str:
    """Why no card of a node can have a share of the size that a pod asks for, "" if one can."""
    memory = task.cards.memory
    if node.allocatable[CARDS] <= 0:
        return ""
    if memory > 0 and not node.reports_memory:
        return NO_MEMORY_LABEL
    if memory > node.memory:
        has = f"a card has {node.memory} MiB for it"
        return f"node(s) didn't have enough GPU memory: {memory} MiB asked and {has}"
    return ""


def refusal(session: KaiSession, task: KaiTask, node: KaiNode) -> str:
    """Why a node does not fit a pod though it has the amounts."""
    if not node.takes_kind(task):
        return _kind_refusal(task, node)
    if not session.has_pod_slots(task, node):
        return "Insufficient pods"
    return (
        session.rules.pods_refusal(session, task, node)
        or session.claims.refusal(task, node)
        or NOT_OTHERWISE
    )


def _kind_refusal(task: KaiTask, node: KaiNode) -> str:
    if task.is_old_mig:
        return OLD_MIG
    if node.has_claimed_cards and task.is_shared:
        return CLAIMED_CARDS
    if not node.is_mig:
        return NOT_MIG
    if task.kind == MIG and node.old_mig:
        return OLD_MIG_THERE
    is_single = node.node.labels.get("nvidia.com/mig.strategy") == "single"
    return ONLY_WHOLE if is_single else ONLY_MIG
