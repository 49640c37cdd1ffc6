"""One pod's decision: filter, score, choose, and what to say when nothing fits."""

from stowplan.cycle.attempt import Attempt, filter_pod, score_pod
from stowplan.cycle.decide import Decision, Turn, decide

__all__ = ["Attempt", "Decision", "Turn", "decide", "filter_pod", "score_pod"]
