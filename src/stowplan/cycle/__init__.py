"""One pod's decision: filter, score, choose a node, and the message when no node fits."""

from stowplan.cycle.attempt import Attempt, filter_pod, score_pod
from stowplan.cycle.decider import CycleDecider
from stowplan.cycle.decision import SamplingState, decide
from stowplan.framework.deciders.decider import Decision

__all__ = [
    "Attempt",
    "CycleDecider",
    "Decision",
    "SamplingState",
    "decide",
    "filter_pod",
    "score_pod",
]
