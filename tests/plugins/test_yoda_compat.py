"""Yoda's numbers of 64 bits, worked by hand: they wrap in the original and with `compat`.

Source: NJUPT-ISL Yoda-Scheduler 2.x, pkg/yoda/score/algorithm.go.
"""

from __future__ import annotations

import pytest

from stowplan.cycle import decide
from stowplan.testing import pod
from tests.plugins.gpus import scv
from tests.plugins.test_yoda import cluster, framework, scored

OVER = 2**64 // 100 + 1
"""A hundred times this is 84 more than 2^64."""


@pytest.mark.parametrize(
    ("compat", "score"),
    [
        # Of the most, which is the card itself, 84 // OVER percent.
        (True, 0),
        # Bounded: 2*100 free, 100 in all; 2*100 of the node free, 3*100 not asked for.
        (False, 800),
    ],
)
def test_products_wrap_in_the_original(compat: bool, score: int) -> None:
    seen = cluster("node\nn1", scv("n1", f"0={OVER}/{OVER}"))
    asked = pod("web", labels={"scv/memory": "1"})
    assert scored(framework(compat=compat), asked, seen) == ([score], [100])


@pytest.mark.parametrize(("compat", "unasked"), [(True, 3 * 96), (False, 0)])
def test_sums_of_labels_wrap_in_the_original(compat: bool, unasked: int) -> None:
    text = "node\nn1\n\npod  on labels\na n1 scv/memory=-1\nb n1 scv/memory=5"
    asked = pod("web", labels={"scv/memory": "1"})
    found = scored(framework(compat=compat), asked, cluster(text, scv("n1", "0=100/100")))
    assert found[0] == [300 + 200 + unasked]


def test_a_score_over_63_bits_counts_as_0_in_the_original() -> None:
    # Clocks are divided by the highest bandwidth, which is 1; a total of 100 percent twice.
    seen = cluster("node\nn1\nn2", scv("n1", f"0=0/9:clock={2**57}"), scv("n2", "0=0/9:clock=2"))
    found = scored(framework(compat=True), pod("web", labels={"scv/number": "1"}), seen)
    assert found == ([0, 200 + 100 + 300], [0, 100])


def test_a_span_that_wraps_is_no_score_in_the_original() -> None:
    seen = cluster("node\nn1\nn2", scv("n1", f"0=0/9:clock={2**50}"), scv("n2", "0=0/9"))
    decision = decide(pod("web", labels={"scv/number": "1"}), seen, framework(compat=True))
    assert decision.refusal is not None
    assert not decision.refusal.is_rejected
    # 100 * 100 * 2^50 is 2^64 less as a signed number; divided towards zero.
    wanted = -((2**64 - 100 * 100 * 2**50) // (100 * 2**50))
    assert f"'yoda' scores {wanted} on node 'n1'" in decision.message
    assert decide(pod("web", labels={"scv/number": "1"}), seen, framework()).node_name == "n1"
