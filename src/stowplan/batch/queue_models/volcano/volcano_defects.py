"""Defects of Volcano that do not occur here, unless they are asked for by name.

`--compat volcano-1.15` reproduces all of them. Each entry is listed by `stowplan parity`, and has a
case with both answers in `tests/batch/queue_models`: `test_volcano_defects.py`, or
`test_volcano_issues.py` where users have reported it.
"""

from __future__ import annotations

USED_UP_SCALAR = "used-up-scalar"
EMPTY_INTERSECTION = "empty-intersection"
PERMISSIVE_TIER = "permissive-tier"
BOUND_RUNS = "bound-runs"
NIGHT_WINDOW = "night-window"
MEMORY_PERCENTAGE = "memory-percentage"
SPREAD_SCORE = "spread-score"
TAKEN_ROOM = "taken-room"
FULL_ANCESTOR = "full-ancestor"
WHOLE_BUNDLE = "whole-bundle"
USELESS_RECLAIM = "useless-reclaim"

# Differs: where guarantees use up a scalar resource, a queue's limit of it is 0; in Volcano the
# limit vanishes, and what a queue deserves is not capped.
#
# Differs: victims on which the plugins of a tier do not agree are spared; in Volcano the next
# plugin of the tier chooses anew.
#
# Differs: victims of reclaim must suit the plugins of queues in every tier; in Volcano a plugin
# such as conformance, alone in an earlier tier, decides without them (volcano issue 5896).
#
# Differs: a bound pod whose eviction is undone is bound again; in Volcano it counts as running.
#
# Differs: a window of tdm that ends on the next day includes the hours after midnight; in Volcano
# it does not.
#
# Differs: volcano.sh/vgpu-memory-percentage counts; in Volcano it is ignored unless a device
# ConfigMap names it.
#
# Differs: with the policy spread an unused card scores 100; in Volcano it scores 0, as it is looked
# at after it was taken.
#
# Differs: room that was made by evictions for a pod is offered to it before others; in Volcano
# allocate may give it to others, and evictions go on session after session (volcano issue 3869).
#
# Differs: a job within what its queue deserves passes the gate of capacity though a queue above is
# full, if what other queues below that one borrow makes up for it; in Volcano it stays Pending, so
# that reclaim never looks at it (volcano issues 4817, 4679).
#
# Differs: of the last bundle of spare tasks gangpreempt and gangreclaim evict those that are
# needed; in Volcano all of them (volcano issues 5984, 5994).
#
# Differs: reclaim evicts on a node until the pod passes its predicates there, and nothing where it
# does not; in Volcano it stops once the amounts suffice (volcano issue 4925).
ALL_DEFECTS = frozenset(
    {
        USED_UP_SCALAR, EMPTY_INTERSECTION, PERMISSIVE_TIER, BOUND_RUNS, NIGHT_WINDOW,
        MEMORY_PERCENTAGE, SPREAD_SCORE, TAKEN_ROOM, FULL_ANCESTOR, WHOLE_BUNDLE,
        USELESS_RECLAIM,
    }
)  # fmt: skip
"""All of them."""
