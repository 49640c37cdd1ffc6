"""Verdicts and diagnoses: who refused which node, and what users read.

Source: kube-scheduler v1.36, framework/types FitError and NodeToStatus.
"""

import numpy as np
import pytest

from stowplan.framework import OK, Code, Status, error, unresolvable, unschedulable
from stowplan.framework.diagnosis import Diagnosis, single_node_diagnosis
from stowplan.framework.node_to_status import NodeToStatus, PluginVerdicts

FULL = unschedulable("full")
TAINT = unresolvable("tainted")
ROWS = np.array([4, 1, 7, 2], dtype=np.int64)


def verdicts() -> NodeToStatus:
    """Of rows 4, 1, 7, 2: A refuses 4 and 1, B refuses 1 and 7 for two reasons, 2 passes."""
    found = NodeToStatus(ROWS, ["A", "B"])
    everything = np.arange(4)
    found.record(0, PluginVerdicts(np.array([1, 1, 0, 0]), lambda code: FULL), everything)
    by_code = {5: TAINT, 6: unschedulable("no gpu", "no cpu")}
    found.record(1, PluginVerdicts(np.array([6, 5, 0]), by_code.__getitem__), np.array([2, 1, 3]))
    return found


def test_the_first_refusal_of_a_row_stays() -> None:
    found = verdicts()
    refused = [FULL.by("A"), FULL.by("A"), unschedulable("no gpu", "no cpu").by("B"), OK]
    assert [found.at(place) for place in range(4)] == refused
    assert [found.status_of(row) for row in ROWS.tolist()] == refused
    assert found.passed().tolist() == [2]


def test_a_row_that_was_not_evaluated_has_no_verdict() -> None:
    with pytest.raises(LookupError, match="row 3 was not evaluated"):
        verdicts().status_of(3)


def test_refusals_come_with_their_rows() -> None:
    listed = {status: sorted(rows.tolist()) for status, rows in verdicts().refusals()}
    assert listed == {FULL.by("A"): [1, 4], unschedulable("no gpu", "no cpu").by("B"): [7]}


def test_a_verdict_can_be_overruled() -> None:
    found = verdicts()
    found.overrule_all(np.array([0, 3]), np.arange(2), (OK, TAINT.by("C")))
    assert (found.at(0), found.at(3)) == (OK, TAINT.by("C"))
    assert found.passed().tolist() == [4]
    listed = {status: rows.tolist() for status, rows in found.refusals()}
    assert listed[TAINT.by("C")] == [2]
    assert listed[FULL.by("A")] == [1]


def test_errors_are_noted() -> None:
    found = NodeToStatus(ROWS, ["A"])
    codes = PluginVerdicts(np.array([1, 0, 1, 1]), lambda code: error("broken"))
    found.record(0, codes, np.arange(4))
    assert found.errors == [error('running "A" filter plugin: broken').by("A")]


def test_verdicts_can_be_given_one_by_one() -> None:
    found = NodeToStatus.given(ROWS[:2], [FULL.by("A"), TAINT.by("B")])
    assert [found.at(0), found.at(1)] == [FULL.by("A"), TAINT.by("B")]


def diagnosed(n_nodes: int = 9, absent: Status | None = None) -> Diagnosis:
    diagnosis = Diagnosis(n_nodes, absent)
    diagnosis.verdicts = verdicts()
    diagnosis.verdicts.overrule_all(np.array([3]), np.zeros(1, np.int64), (TAINT.by("C"),))
    return diagnosis


def test_reasons_are_counted_per_node() -> None:
    assert diagnosed().reasons() == {"full": 2, "no gpu": 1, "no cpu": 1, "tainted": 1}
    elsewhere = unresolvable("elsewhere")
    assert diagnosed(absent=elsewhere).reasons()["elsewhere"] == 5
    assert "elsewhere" not in diagnosed(n_nodes=4, absent=elsewhere).reasons()


def test_what_users_read() -> None:
    text = "0/9 nodes are available: 1 no cpu, 1 no gpu, 1 tainted, 2 full."
    assert diagnosed().text() == text
    assert diagnosed().text("preemption: no.") == f"{text} preemption: no."


def test_counts_are_sorted_as_texts() -> None:
    diagnosis = Diagnosis(12)
    statuses = [FULL.by("A")] * 10 + [TAINT.by("A")] * 2
    diagnosis.verdicts = NodeToStatus.given(np.arange(12), statuses)
    assert diagnosis.text() == "0/12 nodes are available: 10 full, 2 tainted."


def test_a_refusal_of_the_whole_pod_is_reported_instead() -> None:
    diagnosis = Diagnosis(3, unresolvable("gone"))
    diagnosis.pre_filter_message = "gone"
    assert diagnosis.text() == "0/3 nodes are available: gone."
    assert Diagnosis(3).text() == "0/3 nodes are available:"


def test_rows_by_kind_of_refusal() -> None:
    diagnosis = diagnosed()
    assert diagnosis.rows_with(Code.UNSCHEDULABLE).tolist() == [1, 4, 7]
    assert diagnosis.rows_with(Code.UNSCHEDULABLE_AND_UNRESOLVABLE).tolist() == [0, 2, 3, 5, 6, 8]
    assert diagnosis.rows_with(Code.PENDING).tolist() == []
    refused = Diagnosis(2, FULL)
    assert refused.rows_with(Code.UNSCHEDULABLE).tolist() == [0, 1]
    assert refused.rows_with(Code.PENDING).tolist() == []


def test_the_status_of_any_row() -> None:
    diagnosis = diagnosed(absent=unresolvable("elsewhere"))
    assert diagnosis.status_of(4) == FULL.by("A")
    assert diagnosis.status_of(0) == unresolvable("elsewhere")


def test_who_refused() -> None:
    diagnosis = diagnosed()
    diagnosis.blame("Before")
    diagnosis.blame("Gate", Code.PENDING)
    diagnosis.blame("")
    assert diagnosis.plugins == {"A", "B", "C", "Before"}
    assert diagnosis.pending == {"Gate"}


def test_a_refusal_after_the_choice_is_about_one_node() -> None:
    diagnosis = single_node_diagnosis(unschedulable("taken").by("A"))
    assert diagnosis.text() == "0/1 nodes are available: 1 taken."
    assert diagnosis.plugins == {"A"}
