"""The machine: events in, effects out; the only owner of live state."""

from stowplan.scheduler.machine import Machine

__all__ = ["Machine"]
