"""The recorded answers of kube-scheduler 1.36.2 by the kernels, for pods that they place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stowplan.columns.nodetable import table_of
from stowplan.conformance import attempt_cases, sequences
from stowplan.conformance.sequences import Answer, SequenceCase, SequenceRunner, SequenceStep
from stowplan.cycle.engine import Engine
from stowplan.framework import Nominations, Snapshot
from stowplan.objects.pod import Pod
from tests.conformance.compare import SHARES, recorded
from tests.property.engine_kernels import plain

kernels = pytest.importorskip("stowplan.columns.engine.kernels")

DATA = Path(__file__).parent / "data"


def families(kind: str) -> list[str]:
    return sorted(path.name.removesuffix(".jsonl.gz") for path in (DATA / kind).glob("*.gz"))


# Single attempts.

PLACED_SHARES = {"nominated": 0, "volumes": 0, "ports": 0.04, "preemption": 0.85}
"""Minimum number of pods per family that the engine places, if not nearly all."""

SAMPLE_MARGIN = 0.05
"""So much smaller may the share be in a sample, and by a pod: some have few."""


def placed_by_engine(case: attempt_cases.AttemptCase, engine: Engine) -> tuple[bool, str]:
    """Whether the engine handles the pod, and its node, "" for none."""
    framework = attempt_cases.framework_of(case)
    table = table_of(case.nodes, (pod for pod in case.pods if not pod.is_finished))
    snapshot = Snapshot(table, case.object_store(), Nominations(case.nominated_pods))
    one = engine.class_of(case.pod, framework)
    if one is None or not snapshot.nominations.is_empty or not table.n_nodes:
        return False, ""
    run = engine.run([case.pod], [one])
    rows = run.place(0, snapshot)
    return bool(run.heads[0] >= 0), table.names[rows[0]] if rows else ""


def check_attempts(family: str, engine: Engine, one_in: int = 1) -> tuple[list[str], Counter[str]]:
    """Differences from the recorded answers, and counts of results."""
    wrong, counted = [], Counter[str]()
    for line, want in recorded(DATA / "attempts" / f"{family}.jsonl.gz", one_in):
        case = attempt_cases.read_case(line)
        if want["outcome"] == "gated":
            continue
        counted["pods"] += 1
        is_taken, node = placed_by_engine(case, engine)
        if not is_taken:
            continue
        counted["placed" if node else "refused"] += 1
        selected = want.get("selected", [""])
        if node not in selected or (node and node != first(want)):
            wrong.append(f"{case.id}: {node!r}, wanted {selected}")
    return wrong, counted


def first(want: Answer) -> str:
    """The first node in snapshot order among those with the selected score."""
    return str(min(want["selected"], key=want["nodeOrder"].index))


@SHARES
@pytest.mark.parametrize("family", families("attempts"))
def test_the_engine_chooses_what_the_original_chose(family: str, one_in: int) -> None:
    wrong, counted = check_attempts(family, Engine(kernels), one_in)
    assert not wrong, wrong[:5]
    n_taken = counted["placed"] + counted["refused"]
    share = PLACED_SHARES.get(family, 0.9) - (SAMPLE_MARGIN if one_in > 1 else 0)
    assert n_taken + (one_in > 1) >= share * counted["pods"], counted


# Sequences.

ANSWER_FIELDS = ("outcome", "placed")


class EngineSequence(SequenceRunner):
    """Consecutive pods are placed in one kernel run. counted: counts of results."""

    def __init__(self, case: SequenceCase, engine: Engine) -> None:
        super().__init__(case)
        self.engine = engine
        self.counted: Counter[str] = Counter()
        self._placed: dict[int, str] = {}
        self._refused: set[int] = set()

    def _step(self, index: int, step: SequenceStep) -> Answer:
        if step.op == "schedule" and index not in self._placed and self._is_calm():
            self._place_ahead(index)
        if index not in self._placed:
            answer = super()._step(index, step)
            if index in self._refused:
                self.counted["refused"] += 1
                assert "placed" not in answer, f"{self.case.id}: step {index} is refused"
            return answer
        return {"outcome": "scheduled", "placed": self._placed[index]}

    def _is_calm(self) -> bool:
        self.table.refresh()
        return self.snapshot.nominations.is_empty and self.table.n_nodes > 0

    def _place_ahead(self, index: int) -> None:
        """Place this pod and the following ones that the engine handles."""
        pods: list[Pod] = []
        for step in self.case.steps[index:]:
            if step.op != "schedule":
                break
            pods.append(sequences._named(self.case.templates[step.template], step.pod))
        classes = [self.engine.class_of(pod, self.framework) for pod in pods]
        known = [one for one in classes if one is not None]
        n_known = classes.index(None) if len(known) < len(classes) else len(classes)
        run = self.engine.run(pods[:n_known], known[:n_known])
        rows = run.place(0, self.snapshot) if n_known else []
        self.counted["placed"] += len(rows)
        for i, row in enumerate(rows):
            name = self.table.names[row]
            self._placed[index + i] = name
            # As from the watch, between two attempts.
            self.table.refresh()
            self.table.remove_pod(pods[i].uid)
            self.table.add_pod(sequences._bound(pods[i], name, index + i))
        if len(rows) < n_known and run.heads[len(rows)] >= 0:
            self._refused.add(index + len(rows))


def check_sequences(family: str, engine: Engine, one_in: int) -> tuple[list[str], Counter[str]]:
    """Differences from the recorded answers, and counts of results."""
    wrong, counted = [], Counter[str]()
    for line, want in recorded(DATA / "sequences" / f"{family}.jsonl.gz", one_in):
        case = sequences.read_case(line)
        sequence = EngineSequence(case, engine)
        got = sequence.run()
        counted += sequence.counted
        for index, (mine, theirs) in enumerate(zip(got["steps"], want["steps"], strict=True)):
            counted["pods"] += "outcome" in theirs
            if [mine.get(key) for key in ANSWER_FIELDS] != [
                theirs.get(key) for key in ANSWER_FIELDS
            ]:
                wrong.append(f"{case.id}: step {index}: {mine}, wanted {theirs}")
        if amounts(got) != amounts(want):
            wrong.append(f"{case.id}: another end")
    return wrong, counted


def amounts(answer: Answer) -> dict[str, Any]:
    """Final state of the nodes."""
    return {
        name: {k: v for k, v in held.items() if k != "scalar" and v}
        for name, held in answer["final"].items()
    }


@SHARES
@pytest.mark.parametrize("family", families("sequences"))
def test_the_engine_goes_the_way_of_the_original(family: str, one_in: int) -> None:
    wrong, counted = check_sequences(family, Engine(kernels), one_in)
    assert not wrong, wrong[:5]
    n_taken = counted["placed"] + counted["refused"]
    share = (0.6 if family == "preemption" else 0.8) - (SAMPLE_MARGIN if one_in > 1 else 0)
    assert n_taken + (one_in > 1) >= share * counted["pods"], counted


def test_a_kernel_that_is_wrong_is_noticed() -> None:
    """Wrong: the pod limit is one too high."""
    slots = "if pod_count[row] + 1 > allocatable[classes[c, at.PODS], row]:"
    wrong, _ = check_attempts("resources", Engine(plain((slots, slots.replace(" + 1", "")))))
    assert wrong
