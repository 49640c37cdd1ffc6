"""Defects of Volcano that do not occur here, unless they are asked for by name.

`--compat volcano-1.15` reproduces all of them. Each entry is listed by `stowplan parity`, and has a
case with both answers in `tests/batch/queues/test_volcano_defects.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

USED_UP_SCALAR = "used-up-scalar"
EMPTY_INTERSECTION = "empty-intersection"
PERMISSIVE_TIER = "permissive-tier"
BOUND_RUNS = "bound-runs"
NIGHT_WINDOW = "night-window"
MEMORY_PERCENTAGE = "memory-percentage"
SPREAD_SCORE = "spread-score"

VOLCANO_DEFECTS: Mapping[str, str] = {
    USED_UP_SCALAR: "Differs: where guarantees use up a scalar resource, a queue's limit of it is 0; "
    "in Volcano the limit vanishes, and what a queue deserves is not capped.",
    EMPTY_INTERSECTION: "Differs: victims on which the plugins of a tier do not agree are spared; in "
    "Volcano the next plugin of the tier chooses anew.",
    PERMISSIVE_TIER: "Differs: victims of reclaim must suit the plugins of queues in every tier; in "
    "Volcano a plugin such as conformance, alone in an earlier tier, decides without them "
    "(volcano#5896).",
    BOUND_RUNS: "Differs: a bound pod whose eviction is undone is bound again; in Volcano it counts "
    "as running.",
    NIGHT_WINDOW: "Differs: a window of tdm that ends on the next day includes the hours after "
    "midnight; in Volcano it does not.",
    MEMORY_PERCENTAGE: "Differs: volcano.sh/vgpu-memory-percentage counts; in Volcano it is ignored "
    "unless a device ConfigMap names it.",
    SPREAD_SCORE: "Differs: with the policy spread an unused card scores 100; in Volcano it scores "
    "0, as it is looked at after it was taken.",
}
"""Name -> what differs."""

ALL_DEFECTS = frozenset(VOLCANO_DEFECTS)
