"""Server-side apply and managedFields are answered as recorded."""

import pytest

from tests.contract.apiserver import parity


@pytest.mark.parametrize("scenario", parity.names("apply"))
def test_it_is_answered_as_recorded(scenario: str) -> None:
    assert parity.problems("apply", scenario) == []
