"""The machine: events in, effects out; the only owner of live state."""

from stowplan.scheduler.options import SchedulerOptions
from stowplan.scheduler.scheduler import Scheduler

__all__ = ["Scheduler", "SchedulerOptions"]
