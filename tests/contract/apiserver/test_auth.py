"""The recorded group auth is answered as recorded."""

import pytest

from tests.contract.apiserver import parity


@pytest.mark.parametrize("scenario", parity.names("auth"))
def test_it_is_answered_as_recorded(scenario: str) -> None:
    assert parity.problems("auth", scenario) == []
