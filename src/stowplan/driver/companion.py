"""Companion: a scheduler in a thread of its own, for a program that does something else: the
embedded cluster, a demonstration, a test."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable

from stowplan.assembly.deciders import Deciders
from stowplan.driver.connecting import connection_to
from stowplan.driver.live import Beside, Live, LiveOptions
from stowplan.driver.scheduling import read_files, terms_of
from stowplan.objects.pod import DEFAULT_SCHEDULER

log = logging.getLogger("stowplan.scheduler")


def companion_of(
    kubeconfig: str,
    config_files: Iterable[str] = (),
    plugin_files: Iterable[str] = (),
    compat: str = "",
) -> Companion:
    """A scheduler for a whole cluster, not started yet: without configuration it is the cluster's
    `default-scheduler`. It holds the lease that schedulers of such a name hold. Raises FileError,
    CredentialError, ConfigError and ContractError."""
    deciders, written = read_files(config_files, plugin_files, compat, DEFAULT_SCHEDULER)
    terms = terms_of(deciders, written)
    return Companion(deciders, LiveOptions(connection_to(kubeconfig), terms, written.qps))


class Companion:
    """Schedules from `start` until `stop`. fault: what has ended it, None while all is well."""

    def __init__(
        self, deciders: Deciders, options: LiveOptions, beside: Beside | None = None
    ) -> None:
        """beside: see `Live`. Raises ConfigError and ContractError."""
        self.live = Live(deciders, options, beside)
        self.fault: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """True until it has ended, by whatever."""
        return self._thread.is_alive()

    def stop(self, timeout_s: float = 15.0) -> None:
        """Let what is under way come to its end, and end."""
        if not self._thread.is_alive():
            return
        while not self.live.stop() and not self._ended.wait(0.01):
            pass
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            asyncio.run(self.live.run())
        # Whoever has started it looks at `fault`; a thread has nobody else to tell.
        except Exception as fault:
            self.fault = fault
            log.exception("the scheduler has failed")
        finally:
            self._ended.set()
