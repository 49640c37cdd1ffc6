"""The machine: events in, effects out; the only owner of live state."""

from stowplan.scheduler.machine import Machine
from stowplan.scheduler.options import MachineOptions

__all__ = ["Machine", "MachineOptions"]
