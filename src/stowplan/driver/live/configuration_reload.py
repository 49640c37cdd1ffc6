"""Configuration reload: files of the configuration are read again when they change.

The scheduler applies what changed between two decisions, or reports why it cannot; the last valid
configuration then stays in force. What is read at the start only is named in a log line.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders
from stowplan.client.backoff import JitteredBackoff
from stowplan.config import Configuration
from stowplan.driver.background_tasks import BackgroundTasks
from stowplan.driver.live.competing_schedulers import (
    CompetingSchedulerError,
    refuse_competing_scheduler,
)
from stowplan.driver.live.configuration_files import (
    live_problems,
    log_warnings,
    scheduler_names,
)
from stowplan.driver.live.scheduler_server import SchedulerServer
from stowplan.driver.logs import log_keys
from stowplan.framework import ConfigError, ContractError
from stowplan.messages.events import ConfigurationChanged

log = logging.getLogger("stowplan.scheduler")

CONFIGURATION_POLL_S = 2.0
READ_AT_START = ("leader_election", "client_connection", "extenders", "delay_cache_until_active")
"""Fields of a configuration that take effect at the start of the process."""


def start_configuration_reload(
    server: SchedulerServer, tasks: BackgroundTasks, *, take_over: bool = False
) -> None:
    """Apply changes of the configuration's files from now on. take_over: also schedule pods that
    another scheduler schedules."""
    reload = partial(reload_configuration, server, take_over=take_over)
    backoff = JitteredBackoff(np.random.default_rng(), first_s=CONFIGURATION_POLL_S)
    tasks.start_restarted(reload, "configuration reload", backoff)


async def reload_configuration(server: SchedulerServer, *, take_over: bool = False) -> None:
    """Send each changed file to the scheduler, which reports errors. Returns if there are no
    files."""
    known = {
        path: path.stat().st_mtime_ns
        for path in (Path(file.source) for file in server.deciders.files)
        if path.is_file()
    }
    while known:
        await asyncio.sleep(CONFIGURATION_POLL_S)
        for path in known:
            try:
                changed = path.stat().st_mtime_ns
                if changed == known[path]:
                    continue
                known[path] = changed
                text = path.read_text()
            except (OSError, UnicodeDecodeError) as problem:
                keys = {"file": str(path), "err": str(problem)}
                log_keys(log, logging.WARNING, "Unable to read configuration", **keys)
                continue
            await _apply_text(server, text, str(path), take_over=take_over)


async def _apply_text(
    server: SchedulerServer, text: str, source: str, *, take_over: bool = False
) -> None:
    """Send a changed file to the scheduler."""
    (before,) = (file for file in server.deciders.files if file.source == source)
    has_profiles, has_sessions = bool(before.profiles), before.batch is not None
    try:
        deciders = server.deciders.with_file(text, source)
    except (ConfigError, ContractError):
        # The scheduler reports the error.
        deciders = None
    if deciders is not None:
        has_profiles |= any(file.profiles for file in deciders.files if file.source == source)
        names = set(scheduler_names(deciders)) - set(server.scheduler_names())
        try:
            if names and not (take_over or server.options.dry_run):
                await refuse_competing_scheduler(sorted(names), server.options.client_config)
        except CompetingSchedulerError as competing:
            server.configuration_refused(source, str(competing))
            return
        problems = live_problems(deciders.configuration, source)
        if problems is not None and not server.options.dry_run:
            server.configuration_refused(source, str(problems))
            return
        _log_not_applied(server.deciders.configuration, deciders.configuration, source)
        if deciders.batch is not None:
            log_warnings(deciders.batch)
        deciders = _with_values_of_the_start(deciders, server.deciders.configuration)
    server.change_configuration(
        ConfigurationChanged(text, source, has_profiles, has_sessions), deciders
    )


def _log_not_applied(before: Configuration, after: Configuration, source: str) -> None:
    """Log the names of changed fields that are read at the start only."""
    fields = [name for name in READ_AT_START if getattr(before, name) != getattr(after, name)]
    names = [_camel_case(name) for name in fields]
    if (before.batch is None) != (after.batch is None):
        names.append("actions and tiers")
    if names:
        keys = {"file": source, "fields": ", ".join(names)}
        log_keys(log, logging.WARNING, "Configuration change needs a restart", **keys)


def _with_values_of_the_start(deciders: Deciders, before: Configuration) -> Deciders:
    """The changed configuration as far as it can apply."""
    kept = {name: getattr(before, name) for name in READ_AT_START}
    batch = deciders.batch if before.batch is not None else None
    changed = msgspec.structs.replace(deciders.configuration, **kept, batch=batch or before.batch)
    return msgspec.structs.replace(deciders, configuration=changed)


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)
