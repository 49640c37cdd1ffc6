"""The tidy tests read the same files: one worker has them all, and lets go of them in the end."""

from collections.abc import Iterator

import pytest

from tests.tidy import tree


@pytest.fixture(scope="package", autouse=True)
def _read_files() -> Iterator[None]:
    yield
    tree.forget()
