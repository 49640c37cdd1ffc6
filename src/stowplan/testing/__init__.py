"""For plugin authors: test clusters, and the checks that every plugin must pass.

Only `stowplan.testing.strategies` needs more than Stowplan's own dependencies: Hypothesis
(`pip install 'stowplan[testing]'`).
"""

from typing import TYPE_CHECKING

from stowplan._deprecated import MovedModule, deprecated_modules, deprecated_names
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

_OLD_NAMES = {
    "BatchCheck": "SessionPluginCheck",
    "Scene": "GeneratedCluster",
    "batch_checks": "session_plugin_checks",
    "check_batch_policy": "check_session_plugin",
    "scene": "generate_cluster",
}
_OLD_MODULES = {
    "stowplan.testing.after_choice": MovedModule("stowplan.testing.reserve_checks"),
    "stowplan.testing.changes": MovedModule(
        "stowplan.testing.object_changes",
        {"Kept": "ObjectSnapshot", "title": "object_title", "watched": "record_mutations"},
    ),
    "stowplan.testing.check_batch_policy": MovedModule(
        "stowplan.testing.check_session_plugin",
        {
            "BATCH_SEEDS": "SESSION_SEEDS",
            "BatchCheck": "SessionPluginCheck",
            "BatchTrial": "SessionPluginTrial",
            "MOST": "COMPARED_MAX",
            "ORDERS": "ORDER_HOOKS",
            "TRUTHS": "BOOLEAN_HOOKS",
            "VICTIMS": "VICTIM_HOOKS",
            "batch_checks": "session_plugin_checks",
            "check_batch_policy": "check_session_plugin",
        },
        function="check_session_plugin",
    ),
    "stowplan.testing.dice": MovedModule(
        "stowplan.testing.generators.choices",
        {"Dice": "RandomSource", "number": "random_int", "some": "sample"},
    ),
    "stowplan.testing.generate": MovedModule(
        "stowplan.testing.generators.scenes",
        {"Scene": "GeneratedCluster", "scene": "generate_cluster"},
    ),
    "stowplan.testing.generate_batch": MovedModule(
        "stowplan.testing.generators.session_clusters", {"batch_world": "generate_session_cluster"}
    ),
    "stowplan.testing.generate_world": MovedModule(
        "stowplan.testing.generators.api_objects", {"world_objects": "generate_objects"}
    ),
    "stowplan.testing.heard_events": MovedModule(
        "stowplan.testing.event_checks", {"Change": "ClusterChange"}
    ),
    "stowplan.testing.history": MovedModule(
        "stowplan.testing.generators.table_changes", {"history": "random_steps"}
    ),
    "stowplan.testing.make": MovedModule("stowplan.testing.builders"),
    "stowplan.testing.session_judge": MovedModule(
        "stowplan.testing.session_invariants",
        {
            "judge": "check_session",
            "judge_capability": "check_capability",
            "judge_gangs": "check_gangs",
        },
    ),
    "stowplan.testing.trial": MovedModule(
        "stowplan.testing.plugin_trial", {"Answers": "PluginAnswers", "Trial": "PluginTrial"}
    ),
}
deprecated_modules(_OLD_MODULES)
if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, _OLD_NAMES)
