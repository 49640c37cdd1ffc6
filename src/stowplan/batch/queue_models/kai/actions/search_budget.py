"""How much the searches for victims of a session may simulate.

KAI-Scheduler stops a search after minutes of work, so that what it finds depends on the machine.
Here the work is counted: in evictions that are simulated.
"""

from __future__ import annotations

from stowplan.batch.queue_models.kai.state.kai_job import KaiJob

LONG_SEARCH = 100
"""Simulated evictions from which on a search that found nothing counts as long."""
RESTS = 10
"""Sessions in which what such a search was for is left out afterwards."""


class SearchBudget:
    """evictions_max: of an action in a session, 0 for any number; the simulation that passes it is
    the last one. Without a maximum nothing is left out."""

    def __init__(self, evictions_max: int = 0) -> None:
        self._most = evictions_max
        self._session = 0
        self._action = ""
        self._n_spent = 0
        self._n_before = 0
        self._refused: dict[tuple[object, ...], int] = {}

    def begin_session(self) -> None:
        """A session begins."""
        self._session += 1
        old = [key for key, until in self._refused.items() if until < self._session]
        for key in old:
            del self._refused[key]

    def begin_action(self, name: str) -> None:
        """An action begins."""
        self._action = name
        self._n_spent = 0

    def begin_search(self) -> None:
        """A search begins."""
        self._n_before = self._n_spent

    def spend(self, n_evictions: int) -> None:
        """Pods are evicted in a simulation."""
        self._n_spent += n_evictions

    @property
    def is_spent(self) -> bool:
        """Whether the action may simulate no more."""
        return 0 < self._most <= self._n_spent

    def leaves_out(self, job: KaiJob) -> bool:
        """Whether a long search for such a job has found nothing a short time ago."""
        return bool(self._refused) and self._key(job) in self._refused

    def found_nothing(self, job: KaiJob) -> None:
        """The search for a job has ended without victims."""
        if self._most and (self.is_spent or self._n_spent - self._n_before >= LONG_SEARCH):
            self._refused[self._key(job)] = self._session + RESTS

    def _key(self, job: KaiJob) -> tuple[object, ...]:
        requests = tuple(tuple(one) for one in job.sorted_requests())
        return self._action, job.queue, job.priority, job.signature, requests
