"""SchedulingGates: gated pods wait, and the reason lists the gates."""

import pytest

from stowplan.framework import OK, Status, unresolvable
from stowplan.plugins.scheduling_gates import SchedulingGates
from tests.plugins.clusters import pod


@pytest.mark.parametrize(
    ("gates", "status"),
    [
        ([], OK),
        (["a"], unresolvable("waiting for scheduling gates: [a]")),
        (["b/quota", "a"], unresolvable("waiting for scheduling gates: [b/quota a]")),
    ],
)
def test_gates(gates: list[str], status: Status) -> None:
    gated = pod(schedulingGates=[{"name": gate} for gate in gates])
    assert SchedulingGates().pre_enqueue(gated) == status
