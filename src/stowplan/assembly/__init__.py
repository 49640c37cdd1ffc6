"""Assembly: the registry of concrete plugins, and building schedulers from it."""

from stowplan.assembly.build import configuration_of, frameworks_for, registered
from stowplan.assembly.in_tree import DEFAULT_PLUGINS, IN_TREE, registry

__all__ = [
    "DEFAULT_PLUGINS",
    "IN_TREE",
    "configuration_of",
    "frameworks_for",
    "registered",
    "registry",
]
