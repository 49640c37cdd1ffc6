"""Gates that break their contract keep their pods out, and the machine goes on."""

from __future__ import annotations

from stowplan.assembly.build import configuration_of, machine_for
from stowplan.framework import OK, Status
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.pod import Pod
from stowplan.queue import Place
from stowplan.testing import node, pod


class Jammed:
    """A gate that breaks."""

    name = "Jammed"

    def pre_enqueue(self, pod: Pod) -> Status:
        if pod.name == "odd":
            raise KeyError("team")
        return OK


def test_a_gate_that_breaks_keeps_its_pod_out_and_says_so() -> None:
    machine = machine_for(*configuration_of(None, "default", [Jammed]))
    machine.handle([happened.NodeAdded(node("n1"))], 0)
    effects = machine.handle([happened.PodAdded(pod("odd")), happened.PodAdded(pod("even"))], 1)
    told = [e.note for e in effects if isinstance(e, to_do.RecordEvent)]
    assert len(told) == 1, told
    assert "Jammed" in told[0], told
    assert "KeyError" in told[0], told
    assert [e.name for e in effects if isinstance(e, to_do.Bind)] == ["even"]
    assert machine.queue.place_of("default/odd") is Place.GATED
