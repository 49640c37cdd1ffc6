"""The contract between the engine and its rules, and the runtime that walks them."""

from stowplan.columns import NodeInfo, NodeTable, PodInfo, Rows
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.feature_gates import FeatureGates
from stowplan.framework.functions.decorators import filter, is_rule, plugin_of, priority, score
from stowplan.framework.functions.priorities import PRIORITY_MAX, Priority, normalize_reduce
from stowplan.framework.object_store import ObjectStore
from stowplan.framework.plugin import (
    SCORE_MAX,
    ObjectChange,
    PermitWait,
    Plugin,
    PostFilterResult,
    PreBindWait,
    QueuedPod,
    RestrictTo,
)
from stowplan.framework.problems import ConfigError, ContractError, Problem
from stowplan.framework.profile import PluginUse, Profile
from stowplan.framework.runtime.framework import Framework, Handle
from stowplan.framework.runtime.prioritize_nodes import (
    PrioritiesFailed,
    Prioritized,
    priorities_of,
    prioritize_nodes,
)
from stowplan.framework.runtime.registry import NoArgs, Registry
from stowplan.framework.snapshot import Nominations, Snapshot
from stowplan.framework.status import OK, SKIP, Code, Status, error, unresolvable, unschedulable
from stowplan.objects.pod import Pod

__all__ = [
    "OK",
    "PRIORITY_MAX",
    "SCORE_MAX",
    "SKIP",
    "Code",
    "ConfigError",
    "ContractError",
    "CycleState",
    "FeatureGates",
    "Framework",
    "Handle",
    "NoArgs",
    "NodeInfo",
    "NodeTable",
    "Nominations",
    "ObjectChange",
    "ObjectStore",
    "PermitWait",
    "Plugin",
    "PluginUse",
    "Pod",
    "PodInfo",
    "PostFilterResult",
    "PreBindWait",
    "PrioritiesFailed",
    "Prioritized",
    "Priority",
    "Problem",
    "Profile",
    "QueuedPod",
    "Registry",
    "RestrictTo",
    "Rows",
    "Snapshot",
    "Status",
    "error",
    "filter",
    "is_rule",
    "normalize_reduce",
    "plugin_of",
    "priorities_of",
    "prioritize_nodes",
    "priority",
    "score",
    "unresolvable",
    "unschedulable",
]
