"""The contract between the engine and its rules, and the runtime that walks them."""

from stowplan.columns import NodeInfo, NodeTable, PodInfo, Rows
from stowplan.framework.gates import FeatureGates
from stowplan.framework.plugin import (
    SCORE_MAX,
    PermitWait,
    PostFilterResult,
    QueuedPod,
    RestrictTo,
)
from stowplan.framework.problems import ConfigError, ContractError, Problem
from stowplan.framework.profile import PluginUse, Profile
from stowplan.framework.registry import NoArgs, Registry
from stowplan.framework.runtime import Framework, Handle
from stowplan.framework.snapshot import Nominations, Snapshot
from stowplan.framework.state import CycleState
from stowplan.framework.status import OK, SKIP, Code, Status, error, unresolvable, unschedulable
from stowplan.framework.world import World

__all__ = [
    "OK",
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
    "PermitWait",
    "PluginUse",
    "PodInfo",
    "PostFilterResult",
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
    "unresolvable",
    "unschedulable",
]
