"""Layout of the arrays of the preemption kernels. All are int64."""

from __future__ import annotations

BLOCK = 64
"""Rows of which the cheapest is kept."""

NOWHERE = -1

RANK, FIRST, N_PODS, N_SLOTS, FREE = range(5)
"""Lines of `table`: the rank of a row, the place of its first pod that may go and their number,
free pod slots; then of each resource what is free, then of each what the node has."""

PRIORITY, START, IS_PROTECTED, REQUESTS = range(4)
"""Lines of `pods`: the priority from the lowest possible on, the position of the start among all,
whether an eviction takes a disruption budget below zero; then what is requested of each
resource."""

VIOLATIONS, HIGHEST, TOTAL, COUNT, AGE, HELPS, CODE, N_STATE = range(8)
"""What is kept of a row for a class: its costs, whether evictions help, and what is short there.
AGE: minus the earliest start of the most important victims."""

CLOSED = -1
"""The code of a row that a filter of the node rejects: no candidate."""
