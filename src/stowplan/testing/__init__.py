"""For authors of plugins: clusters to test on, and the checks that every plugin must pass.

Needs nothing beyond what Stowplan itself does; only `stowplan.testing.strategies` needs Hypothesis
(`pip install 'stowplan[testing]'`).
"""

from stowplan.testing.check_batch_policy import BatchCheck, batch_checks, check_batch_policy
from stowplan.testing.check_plugin import Check, CheckFailed, check_plugin, checks
from stowplan.testing.contents import contents, differences
from stowplan.testing.draw import DrawError, Drawing, draw
from stowplan.testing.generate import Scene, scene
from stowplan.testing.make import MakeError, affinity, container, node, pod, spread, term

__all__ = [
    "BatchCheck",
    "Check",
    "CheckFailed",
    "DrawError",
    "Drawing",
    "MakeError",
    "Scene",
    "affinity",
    "batch_checks",
    "check_batch_policy",
    "check_plugin",
    "checks",
    "container",
    "contents",
    "differences",
    "draw",
    "node",
    "pod",
    "scene",
    "spread",
    "term",
]
