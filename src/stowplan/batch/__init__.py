"""Batch scheduling: sessions that decide all jobs together, with gangs, queues and fair shares."""

from stowplan.batch.compat import COMPATS, KUBE_BATCH_0_5, Compat
from stowplan.batch.session import Session, SessionAction, SessionOptions, SessionPlugin
from stowplan.batch.state.inventory import Inventory

__all__ = [
    "COMPATS",
    "KUBE_BATCH_0_5",
    "Compat",
    "Inventory",
    "Session",
    "SessionAction",
    "SessionOptions",
    "SessionPlugin",
]
