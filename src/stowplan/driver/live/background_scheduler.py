"""A scheduler in a thread of its own, inside another program: the embedded cluster, the demo, a
test."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable
from functools import partial

from stowplan.assembly.deciders import Deciders
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.live.configuration_files import (
    leader_election_config,
    read_configuration_files,
)
from stowplan.driver.live.configuration_reload import start_configuration_reload
from stowplan.driver.live.scheduler_server import (
    LeaseThreadService,
    SchedulerServer,
    SchedulerServerOptions,
)
from stowplan.objects.pod import DEFAULT_SCHEDULER

log = logging.getLogger("stowplan.scheduler")


def background_scheduler(
    kubeconfig: str,
    config_files: Iterable[str] = (),
    plugin_files: Iterable[str] = (),
    compat: str = "",
) -> BackgroundScheduler:
    """A scheduler for a whole cluster, not started yet; without configuration it is the cluster's
    `default-scheduler`. It holds the lease of its schedulerName. Raises ConfigurationFileError,
    CredentialError, ConfigError and ContractError."""
    deciders, written = read_configuration_files(
        config_files, plugin_files, compat, DEFAULT_SCHEDULER
    )
    election_config = leader_election_config(deciders, written)
    return BackgroundScheduler(
        deciders,
        SchedulerServerOptions(load_client_config(kubeconfig), election_config, written.qps),
    )


class BackgroundScheduler:
    """Schedules from `start` until `stop`. fault: the exception that has ended it, None for
    none."""

    def __init__(
        self,
        deciders: Deciders,
        options: SchedulerServerOptions,
        service: LeaseThreadService | None = None,
    ) -> None:
        """service: see `SchedulerServer`. Raises ConfigError and ContractError."""
        self.server = SchedulerServer(deciders, options, service)
        self.fault: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Start; returns at once."""
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """True until it has ended for any reason."""
        return self._thread.is_alive()

    def stop(self, timeout_s: float = 15.0) -> None:
        """Finish pending work and stop."""
        if not self._thread.is_alive():
            return
        while not self.server.stop() and not self._ended.wait(0.01):
            pass
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            reload = partial(start_configuration_reload, self.server)
            asyncio.run(self.server.run(reload))
        # The starter checks `fault`; an exception cannot leave the thread.
        except Exception as fault:
            self.fault = fault
            log.exception("Scheduler failed")
        finally:
            self._ended.set()
