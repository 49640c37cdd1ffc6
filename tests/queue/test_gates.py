"""Gates: which concern a pod is found out once per spec, and noted on it alone."""

from __future__ import annotations

import gc

from stowplan.framework.status import OK, error
from stowplan.objects.pod import Pod
from stowplan.queue import PodRecord
from stowplan.queue.pre_enqueue import PreEnqueueGates
from stowplan.testing import pod


def entry(one: Pod) -> PodRecord:
    return PodRecord(one, 0, one.key)


def gates(asked: list[str], name: str = "Lock") -> PreEnqueueGates:
    """One gate that is open, and concerns pods that are labelled with its name."""

    def applies_to(one: Pod) -> bool:
        asked.append(one.name)
        return name in one.labels

    return PreEnqueueGates({"default-scheduler": [(name, lambda one: OK)]}, {name: applies_to})


def test_whether_a_gate_concerns_a_template_is_asked_once() -> None:
    asked: list[str] = []
    lock = gates(asked)
    web = pod("web", labels={"Lock": "yes"})
    assert lock.admits(entry(web))
    assert lock.admits(entry(web))
    assert asked == ["web"]


def test_gates_of_two_schedulers_do_not_take_each_other_s_notes() -> None:
    asked: list[str] = []
    first, second = gates(asked), gates(asked, "Bolt")
    web, other = pod("web", labels={"Bolt": "yes"}), pod("other")
    for one in (first, second, first):
        assert one.admits(entry(web))
        # The gates of the latest spec are kept without a note.
        assert one.admits(entry(other))
    assert asked.count("web") == 3


def test_gates_of_the_spec_before_are_not_those_of_the_next() -> None:
    refused = PreEnqueueGates(
        {"default-scheduler": [("Lock", lambda one: error("locked"))]},
        {"Lock": lambda one: "Lock" in one.labels},
    )
    free, locked = pod("free"), pod("web", labels={"Lock": "yes"})
    admitted = [refused.admits(entry(one)) for one in (free, locked, locked, free, locked)]
    assert admitted == [True, False, False, True, False]


def test_what_is_noted_on_a_spec_leads_nowhere() -> None:
    """Specs are not seen by the collector: a way back from one would never be collected."""
    lock = gates([])
    web = pod("web")
    lock.admits(entry(web))
    noted = web.spec.__dict__["gates"]
    assert not any(
        isinstance(found, PreEnqueueGates | Pod) for found in gc.get_referents(*noted, noted)
    )
