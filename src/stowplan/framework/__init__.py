"""The contract between the engine and its plugins, and the runtime that calls them."""

from typing import TYPE_CHECKING

from stowplan._deprecated import MovedModule, deprecated_modules, deprecated_names
from stowplan.columns import NodeInfo, NodeTable, PodInfo, Rows
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.feature_gates import FeatureGates
from stowplan.framework.functions.decorators import filter, is_rule, plugin_of, priority, score
from stowplan.framework.functions.priorities import PRIORITY_MAX, Priority, normalize_reduce
from stowplan.framework.object_store import ObjectChange, ObjectStore
from stowplan.framework.plugin import (
    SCORE_MAX,
    PermitWait,
    Plugin,
    PostFilterResult,
    PreBindWait,
    QueuedPod,
    RestrictTo,
)
from stowplan.framework.pod_groups.placements import (
    GroupPlacement,
    PodGroupCycle,
    ProposedPlacement,
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
    "GroupPlacement",
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
    "PodGroupCycle",
    "PodInfo",
    "PostFilterResult",
    "PreBindWait",
    "PrioritiesFailed",
    "Prioritized",
    "Priority",
    "Problem",
    "Profile",
    "ProposedPlacement",
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

_OLD_NAMES = {"World": "ObjectStore"}
_OLD_MODULES = {
    "stowplan.framework.binding": MovedModule(
        "stowplan.framework.plugin_calls",
        {
            "ANSWERS": "ANSWER_TYPES",
            "asks_for": "takes_parameter",
            "blamed_hint": "wrap_hint",
            "bound": "bind_method",
            "class_at": "class_location",
            "constructed": "construct_plugin",
            "defined_at": "definition_location",
            "narrowed": "narrow_parameters",
            "place_of": "failure_location",
        },
    ),
    "stowplan.framework.decider": MovedModule(
        "stowplan.framework.deciders.decider",
        {"Rooms": "FitCheck", "Run": "KernelRun", "RunPlacer": "KernelPlacer"},
    ),
    "stowplan.framework.gates": MovedModule(
        "stowplan.framework.feature_gates", {"Gates": "FeatureGateSet"}
    ),
    "stowplan.framework.joined": MovedModule(
        "stowplan.framework.runtime.joined_refusals", {"joined": "join_statuses"}
    ),
    "stowplan.framework.member": MovedModule(
        "stowplan.framework.runtime.registered_plugin",
        {"KEPT_NODES_MIN": "CACHED_NODES_MIN", "Member": "RegisteredPlugin"},
    ),
    "stowplan.framework.nominated": MovedModule(
        "stowplan.framework.runtime.nominated_pods",
        {
            "CrowdedNodes": "NodesWithNominatedPods",
            "Crowds": "NominatedPodsByRow",
            "Judge": "RowFilter",
            "can_judge": "can_filter_by_amounts",
            "refusals_of_crowds": "refusals_with_nominated_pods",
        },
    ),
    "stowplan.framework.parts": MovedModule(
        "stowplan.framework.deciders.kernel_terms",
        {
            "Even": "BalancedAllocation",
            "GivesParts": "stowplan.framework.plugin:KernelTermsPlugin",
            "Kind": "TopologyTermKind",
            "Part": "KernelTerm",
            "Peers": "PeerAffinityTerms",
            "Room": "ResourceFit",
            "Strategy": "ScoringStrategyType",
            "Term": "TopologyTerm",
            "Terms": "TopologyTerms",
            "Use": "ResourceScore",
            "Used": "ScoredResource",
        },
    ),
    "stowplan.framework.points": MovedModule("stowplan.framework.extension_points"),
    "stowplan.framework.priorities": MovedModule(
        "stowplan.framework.functions.priorities",
        {
            "Map": "PriorityMapFunction",
            "Metadata": "PriorityMetadataProducer",
            "Reduce": "PriorityReduceFunction",
            "WholeList": "PriorityFunction",
            "normalized": "normalize_scores",
        },
    ),
    "stowplan.framework.prioritize": MovedModule(
        "stowplan.framework.runtime.prioritize_nodes", {"ExtenderFailed": "ExtenderError"}
    ),
    "stowplan.framework.registry": MovedModule(
        "stowplan.framework.runtime.registry", {"Entry": "RegistryEntry"}
    ),
    "stowplan.framework.review": MovedModule(
        "stowplan.framework.deciders.extender_review",
        {"Candidate": "PreemptionCandidate", "Review": "ExtenderReview"},
    ),
    "stowplan.framework.rules": MovedModule(
        "stowplan.framework.functions.decorators",
        {"Judge": "FilterFunction", "Scorer": "ScoreFunction"},
    ),
    "stowplan.framework.sessions": MovedModule(
        "stowplan.framework.deciders.session_decider",
        {
            "GroupReport": "PodGroupReport",
            "Place": "NodeAssignment",
            "Retry": "BindFailureResult",
            "Victim": "SessionVictim",
        },
    ),
    "stowplan.framework.shared": MovedModule(
        "stowplan.framework.handle_state", {"Shared": "HandleState"}
    ),
    "stowplan.framework.state": MovedModule("stowplan.framework.cycle_state"),
    "stowplan.framework.timed": MovedModule(
        "stowplan.framework.runtime.timed_framework",
        {
            "COUNTED": "EVALUATED_METHODS",
            "Stopwatch": "FrameworkMetricsRecorder",
            "TimedMember": "TimedRegisteredPlugin",
            "title_of": "status_title",
        },
    ),
    "stowplan.framework.touched": MovedModule(
        "stowplan.framework.runtime.touched_rows", {"Touched": "TouchedRows"}
    ),
    "stowplan.framework.verdicts": MovedModule(
        "stowplan.framework.node_to_status",
        {"Verdicts": "NodeToStatus", "refusal_of": "as_refusal"},
    ),
    "stowplan.framework.world": MovedModule(
        "stowplan.framework.object_store",
        {"World": "ObjectStore", "is_same_to_rules": "is_same_to_plugins"},
    ),
}
deprecated_modules(_OLD_MODULES)
if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, _OLD_NAMES)
