"""The recordings of the second series, kinds, are answered as recorded."""

import pytest

from tests.contract.apiserver import kinds_replay, parity
from tests.contract.apiserver.not_modelled import NOT_MODELLED
from tests.contract.apiserver.replay import START

SCENARIOS = [
    (name, one["scenario"])
    for name in ("kinds", "default-admission", "workload-api")
    for one in kinds_replay.scenarios(name)
]


@pytest.mark.parametrize(("name", "scenario"), SCENARIOS)
def test_it_is_answered_as_recorded(name: str, scenario: str) -> None:
    findings = kinds_replay.repeated(scenario, name)
    mine = [one for one in NOT_MODELLED if (one.group, one.scenario) == (name, scenario)]
    assert [
        (n, found)
        for n, found in findings
        if not any(parity.explains(one, name, scenario, n, found) for one in mine)
    ] == []
    stale = [
        one
        for one in mine
        if not any(parity.explains(one, name, scenario, n, found) for n, found in findings)
    ]
    assert stale == []


def test_a_server_with_other_settings_is_found_out() -> None:
    """Without the admission of nodes the recorded taint is missing."""
    (scenario,) = (one for one in kinds_replay.scenarios() if one["scenario"] == "node-taint")
    replay = kinds_replay.KindsReplay(scenario, kinds_replay.KindsCluster("plain", START), START)
    replay.run()
    assert any(found.where == "spec.taints" for _, found in replay.findings)
