"""Batch scheduling: sessions that decide all jobs together, with gangs, queues and fair shares."""

from typing import TYPE_CHECKING

from stowplan._deprecated import MovedModule, deprecated_modules, deprecated_names
from stowplan.batch.session import Session, SessionAction, SessionOptions, SessionPlugin
from stowplan.batch.state.inventory import Inventory
from stowplan.batch.state.standalone_inventory import StandaloneInventory

__all__ = [
    "Inventory",
    "Session",
    "SessionAction",
    "SessionOptions",
    "SessionPlugin",
    "StandaloneInventory",
]

_OLD_NAMES = {"Action": "SessionAction", "Policy": "SessionPlugin"}
_OLD_MODULES = {
    "stowplan.batch.amounts": MovedModule(
        "stowplan.batch.state.task_requests",
        {"Amount": "ResourceVector", "Ask": "TaskRequest"},
    ),
    "stowplan.batch.answers": MovedModule(
        "stowplan.batch.hook_contracts",
        {"CONTRACTS": "HOOK_CONTRACTS", "Invalid": "ValidateResult", "KINDS": "HOOK_KINDS"},
    ),
    "stowplan.batch.inventory": MovedModule("stowplan.batch.state.inventory"),
    "stowplan.batch.jobs": MovedModule(
        "stowplan.batch.state.jobs",
        {"Group": "PodGroupInfo", "Job": "JobInfo", "TAKING": "OCCUPYING", "Task": "TaskInfo"},
    ),
    "stowplan.batch.nodes": MovedModule(
        "stowplan.batch.state.nodes", {"Column": "ResourceColumn", "Held": "NodeTask"}
    ),
    "stowplan.batch.policies": MovedModule("stowplan.batch.session_plugins"),
    "stowplan.batch.policies.conformance": MovedModule(
        "stowplan.batch.session_plugins.conformance", {"Conformance": "ConformancePlugin"}
    ),
    "stowplan.batch.policies.drf": MovedModule(
        "stowplan.batch.session_plugins.drf", {"Drf": "DrfPlugin"}
    ),
    "stowplan.batch.policies.gang": MovedModule(
        "stowplan.batch.session_plugins.gang", {"Gang": "GangPlugin"}
    ),
    "stowplan.batch.policies.nodeorder": MovedModule(
        "stowplan.batch.session_plugins.nodeorder", {"NodeOrder": "NodeOrderPlugin"}
    ),
    "stowplan.batch.policies.predicates": MovedModule(
        "stowplan.batch.session_plugins.predicates", {"Predicates": "PredicatesPlugin"}
    ),
    "stowplan.batch.policies.priority": MovedModule(
        "stowplan.batch.session_plugins.priority", {"Priority": "PriorityPlugin"}
    ),
    "stowplan.batch.policies.proportion": MovedModule(
        "stowplan.batch.session_plugins.proportion", {"Proportion": "ProportionPlugin"}
    ),
    "stowplan.batch.queues": MovedModule("stowplan.batch.state.queues"),
    "stowplan.batch.working": MovedModule(
        "stowplan.batch.state.session_state",
        {
            "Handlers": "TaskEventHandlers",
            "Opened": "ClusterInfo",
            "Outside": "BinderEvictor",
            "Working": "SessionState",
        },
    ),
}
deprecated_modules(_OLD_MODULES)
if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, _OLD_NAMES)
