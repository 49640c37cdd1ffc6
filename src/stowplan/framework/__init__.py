"""The contract between the engine and its rules, and the runtime that walks them."""

from stowplan.columns import NodeInfo, NodeTable, PodInfo, Rows
from stowplan.framework.gates import FeatureGates
from stowplan.framework.plugin import (
    SCORE_MAX,
    ObjectChange,
    PermitWait,
    PostFilterResult,
    PreBindWait,
    QueuedPod,
    RestrictTo,
)
from stowplan.framework.priorities import PRIORITY_MAX, Priority, normalize_reduce
from stowplan.framework.prioritize import (
    PrioritiesFailed,
    Prioritized,
    priorities_of,
    prioritize_nodes,
)
from stowplan.framework.problems import ConfigError, ContractError, Problem
from stowplan.framework.profile import PluginUse, Profile
from stowplan.framework.registry import NoArgs, Registry
from stowplan.framework.rules import filter, is_rule, plugin_of, priority, score
from stowplan.framework.runtime import Framework, Handle
from stowplan.framework.snapshot import Nominations, Snapshot
from stowplan.framework.state import CycleState
from stowplan.framework.status import OK, SKIP, Code, Status, error, unresolvable, unschedulable
from stowplan.framework.world import World
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
    "PermitWait",
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
    "World",
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
