"""Deciders for tests of the driver."""

from stowplan.assembly.deciders import Deciders
from stowplan.driver.live.configuration_files import read_configuration_files


def default_deciders(name: str) -> Deciders:
    """The default profile under another schedulerName."""
    deciders, _ = read_configuration_files([], name=name)
    return deciders
