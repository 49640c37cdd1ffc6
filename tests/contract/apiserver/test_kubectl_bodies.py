"""Bodies of kubectl that are made again."""

import pytest

from tests.contract.apiserver.kubectl_bodies import kubectl_body


def test_the_length_shows_whether_a_body_is_right() -> None:
    """The lengths are recorded ones."""
    assert kubectl_body(["create", "sa", "sa1"], "x", {}, 53)
    assert kubectl_body(
        ["create", "configmap", "cm", "--from-literal=a=b", "-n", "k136"], "", {}, 59
    )
    with pytest.raises(ValueError, match="53 bytes, recorded 54"):
        kubectl_body(["create", "sa", "sa1"], "x", {}, 54)
    with pytest.raises(ValueError, match="not known"):
        kubectl_body(["delete", "sa", "sa1"], "x", {}, 53)
