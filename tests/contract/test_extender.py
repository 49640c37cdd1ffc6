"""The recorded conversations of kube-scheduler 1.36 with extenders: our calls have the recorded
bodies, our reactions the recorded outcomes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stowplan.assembly.build import configuration_of
from stowplan.cycle import Attempt
from stowplan.cycle.extender_consultation import ExtenderConsultation
from stowplan.framework import ConfigError
from stowplan.messages import extender_api
from stowplan.messages.extender_api import ExtenderArgs
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from tests.contract.api import Tree
from tests.contract.conversation import (
    NOT_OFFERED,
    Conversation,
    Different,
    configured,
    deliberate,
    recorded_pods,
    recordings,
)

RECORDINGS = {recording["scenario"]: recording for recording in recordings()}
REFUSED = (
    "{} no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not "
)
REFUSED += "helpful for scheduling."

DIFFERS = {
    # Only nodes that pass the filters as things are now are bound to, whatever an extender returns.
    "filter-not-offered-nodes": (
        None,
        "Unschedulable",
        REFUSED.format("0/3 nodes are available:"),
    ),
    "filter-not-offered-nodes-existing": (
        None,
        "Unschedulable",
        REFUSED.format("0/3 nodes are available: 1 Insufficient cpu."),
    ),
    # A pod that is bound after all is not said to have failed.
    "bind-done-then-error": ("n3", None, None),
    "bind-done-then-timeout": ("n3", None, None),
}
"""Where we differ: what becomes of the pod with us. Each has its `Differs:` in the source."""

FINAL = "Calculated node's final score"

PLAYED = [name for name in RECORDINGS if not name.startswith("config-")]
REFUSALS = {
    "config-no-weight": "extenders[0].weight: Invalid value: 0: expected a whole number",
    "config-two-binders": "extenders[1].bindVerb: Invalid value: 'bind': expected one extender",
    "config-managed-twice": (
        "extenders[1].managedResources[0].name: Invalid value: 'example.com/foo' again"
    ),
    "config-managed-native": (
        "extenders[0].managedResources[0].name: Invalid value: 'cpu': expected an extended resource"
    ),
    "config-insecure-with-ca": (
        "extenders[0].tlsConfig: Invalid value: insecure with caFile or caData: expected one"
    ),
    "config-timeout-without-unit": (
        "extenders[0].httpTimeout: Invalid value: '5': expected a duration"
    ),
}


ALIKE = sorted(name for name in PLAYED if not deliberate(RECORDINGS[name]))


@pytest.mark.parametrize("name", ALIKE)
def test_a_conversation_takes_its_recorded_course(name: str) -> None:
    conversation = Conversation(RECORDINGS[name])
    conversation.play()
    assert conversation.differences() == []


@pytest.mark.parametrize("name", sorted(set(PLAYED) - set(ALIKE)))
def test_what_differs_differs_as_written_down(name: str) -> None:
    recording = RECORDINGS[name]
    conversation = Conversation(recording, is_strict=False)
    conversation.play()
    assert conversation.differences() != []
    assert not conversation.calls, "every recorded call is made"
    nodes = {node["body"]["metadata"]["name"] for node in recording["setup"]} | {None}
    for pod, (node, reason, _, _) in conversation.pods().items():
        if deliberate(recording) == NOT_OFFERED:
            assert node in nodes, f"{pod} is bound to a node that is not there"
        else:
            assert (node, reason) == (recorded_pods(recording)[pod][0], None)
    if name in DIFFERS:
        assert conversation.pods()["p1"][:3] == DIFFERS[name]


@pytest.mark.parametrize("name", sorted(set(RECORDINGS) - set(PLAYED)))
def test_a_configuration_that_is_refused_is_refused_by_us(name: str) -> None:
    recording = RECORDINGS[name]
    assert recording["exit"] == 1
    with pytest.raises(ConfigError) as refused:
        configuration_of(configured(recording), "recording")
    assert REFUSALS.get(name, "extenders") in str(refused.value)


def test_every_recording_is_looked_at() -> None:
    assert len(RECORDINGS) >= 163
    assert set(REFUSALS) <= set(RECORDINGS) - set(PLAYED)
    assert set(DIFFERS) <= set(PLAYED) - set(ALIKE)
    assert len(set(PLAYED) - set(ALIKE)) <= len(PLAYED) // 20


# Scores, of which the scheduler's log tells.

SCORED = [
    name
    for name, recording in RECORDINGS.items()
    if any(FINAL in line for line in recording.get("log") or ())
]


def logged(recording: Tree) -> list[dict[str, int]]:
    """The final scores of each pod, which was tried once, as the recorded scheduler logged them."""
    found: dict[str, dict[str, int]] = {}
    for line in recording["log"]:
        if FINAL in line:
            pod, node, score = re.findall(r'pod="(\S+)" node="(\S+)" score=(-?\d+)', line)[0]
            found.setdefault(pod, {})[node] = int(score)
    return list(found.values())


def totals_of(recording: Tree) -> list[dict[str, int]]:
    """Ours, for attempts that extenders were asked about."""
    found: list[dict[str, int]] = []
    inner = ExtenderConsultation.totals

    def spied(self: ExtenderConsultation, attempt: Attempt, rows: Any) -> Any:
        totals = inner(self, attempt, rows)
        names = [attempt.snapshot.nodes.names[row] for row in rows.tolist()]
        found.append(dict(zip(names, totals.tolist(), strict=True)))
        return totals

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExtenderConsultation, "totals", spied)
        Conversation(recording).play()
    return found


@pytest.mark.parametrize("name", sorted(SCORED))
def test_scores_add_up_as_logged(name: str) -> None:
    recording = RECORDINGS[name]
    ours, theirs = totals_of(recording), logged(recording)
    assert ours == theirs


# Wrong variants.


def outcome(name: str) -> str:
    conversation = Conversation(RECORDINGS[name])
    try:
        conversation.play()
    except Different as different:
        return str(different)
    return "\n".join(conversation.differences())


def test_control_a_body_in_the_other_form_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def args(
        self: ExtenderConsultation, extender: Any, attempt: Attempt, names: Any
    ) -> ExtenderArgs:
        """Wrong: always the names."""
        return ExtenderArgs(self._pod, None, tuple(names))

    monkeypatch.setattr(ExtenderConsultation, "_args", args)
    assert outcome("filter-names") == ""
    assert outcome("filter-nodes").startswith("got http://<extender-a>/filter")


def test_control_scores_that_are_not_scaled_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stowplan.assembly.extenders.SCALE", 1)
    assert totals_of(RECORDINGS["prioritize-several"]) != logged(RECORDINGS["prioritize-several"])


def test_control_a_failure_that_is_not_passed_over_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extender_api.HTTPExtender, "is_interested", lambda self, pod: True)
    assert "got http://<extender-down>" not in outcome("managed-down")
    assert "not written: ('bind', 'plain', 'n3')" in outcome("managed-down")


def test_control_a_binding_of_our_own_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BindingCycles, "_bind", BindingCycles._bind_by_plugin)
    assert "calls that were not made" in outcome("bind")


def test_control_a_draw_that_is_taken_for_a_choice_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Equals were drawn from, and both recordings happen to have drawn alike."""
    assert outcome("connection-cut-when-reused") == ""
    monkeypatch.setattr(
        Conversation,
        "_chosen",
        lambda self, choose, attempt, best, *how: choose(attempt, best, *how),
    )
    assert outcome("connection-cut-when-reused") != ""


def test_few_conversations_hang_on_a_draw() -> None:
    tied = 0
    for name in ALIKE:
        conversation = Conversation(RECORDINGS[name])
        conversation.play()
        tied += conversation.is_tied
    assert 0 < tied <= len(ALIKE) // 8
