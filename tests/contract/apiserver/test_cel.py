"""The recorded group cel is answered as recorded: rules of custom kinds, admission policies."""

import pytest

from tests.contract.apiserver import parity


@pytest.mark.parametrize("scenario", parity.names("cel"))
def test_it_is_answered_as_recorded(scenario: str) -> None:
    assert parity.problems("cel", scenario) == []
