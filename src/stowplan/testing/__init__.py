"""Test support for plugin authors: test clusters, and the checks that every plugin must pass.

Needs nothing beyond Stowplan's own dependencies; only `stowplan.testing.strategies` needs
Hypothesis (`pip install 'stowplan[testing]'`).
"""

from stowplan.testing.builders import MakeError, affinity, container, node, pod, spread, term
from stowplan.testing.check_plugin import Check, CheckFailed, check_plugin, checks
from stowplan.testing.check_session_plugin import (
    SessionPluginCheck,
    check_session_plugin,
    session_plugin_checks,
)
from stowplan.testing.contents import contents, differences
from stowplan.testing.draw import DrawError, Drawing, draw
from stowplan.testing.generators.scenes import GeneratedCluster, generate_cluster

__all__ = [
    "Check",
    "CheckFailed",
    "DrawError",
    "Drawing",
    "GeneratedCluster",
    "MakeError",
    "SessionPluginCheck",
    "affinity",
    "check_plugin",
    "check_session_plugin",
    "checks",
    "container",
    "contents",
    "differences",
    "draw",
    "generate_cluster",
    "node",
    "pod",
    "session_plugin_checks",
    "spread",
    "term",
]
