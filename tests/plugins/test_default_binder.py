"""DefaultBinder: takes every pod."""

from stowplan.framework import OK
from stowplan.plugins.default_binder import DefaultBinder


def test_it_takes_the_pod() -> None:
    assert DefaultBinder().bind() == OK
