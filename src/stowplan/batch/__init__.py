"""Sessions: all jobs decided in one round, with gangs, queues and fair shares."""

from stowplan.batch.compat import COMPATS, KUBE_BATCH_0_5, Compat
from stowplan.batch.inventory import Inventory
from stowplan.batch.session import Action, Policy, Session, SessionOptions

__all__ = [
    "COMPATS",
    "KUBE_BATCH_0_5",
    "Action",
    "Compat",
    "Inventory",
    "Policy",
    "Session",
    "SessionOptions",
]
