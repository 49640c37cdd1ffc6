"""One pod's decision: filter, score, choose, and what to say when nothing fits."""

from stowplan.cycle.attempt import Attempt, filter_pod, score_pod
from stowplan.cycle.decide import Turn, decide
from stowplan.cycle.decider import CycleDecider
from stowplan.framework.decider import Decision

__all__ = ["Attempt", "CycleDecider", "Decision", "Turn", "decide", "filter_pod", "score_pod"]
