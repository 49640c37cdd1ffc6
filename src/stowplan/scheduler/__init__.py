"""The scheduler's state machine: events in, effects out; sole owner of the live state."""

from stowplan.scheduler.options import SchedulerOptions
from stowplan.scheduler.scheduler import Scheduler

__all__ = ["Scheduler", "SchedulerOptions"]
