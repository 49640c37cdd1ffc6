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
SEARCH_COST = 10
"""Evictions that a search costs in any case."""
PROGRESS = 4
"""A search may simulate this many times as much as its last success needed before the next one."""
ALL_SEARCHES = 10
"""All searches of an action together may simulate this many times as much as those that fail."""


class SearchBudget:
    """evictions_max: of searches of one action in a session that find nothing, 0 for any number;
    the simulation that passes it is the last one. Without a maximum nothing is left out.
    next_node: where the next search for jobs to move begins, see `movable_jobs`."""

    def __init__(self, evictions_max: int = 0) -> None:
        self._most = evictions_max
        self._session = 0
        self._action = ""
        self._n_spent = self._n_wasted = self._n_of_search = 0
        self._n_since_progress = 0
        self._limit = evictions_max
        self.next_node = 0
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
        self._n_spent = self._n_wasted = 0

    def begin_search(self) -> None:
        """A search begins."""
        self._n_of_search = self._n_since_progress = 0
        self._limit = self._most
        self._n_spent += SEARCH_COST

    def spend(self, n_evictions: int) -> None:
        """Pods are evicted in a simulation."""
        self._n_of_search += n_evictions
        self._n_since_progress += n_evictions
        self._n_spent += n_evictions

    def makes_progress(self, n_evictions: int) -> None:
        """A simulation has worked."""
        self._n_since_progress = 0
        self._limit = max(self._limit, PROGRESS * n_evictions)

    @property
    def is_spent(self) -> bool:
        """Whether the search may simulate no more."""
        return self._most > 0 and self._limit <= self._n_since_progress

    @property
    def is_action_spent(self) -> bool:
        """Whether the action may begin no other search."""
        if not self._most:
            return False
        return self._n_wasted >= self._most or self._n_spent >= ALL_SEARCHES * self._most

    def leaves_out(self, job: KaiJob) -> bool:
        """Whether a long search for such a job has found nothing a short time ago."""
        return bool(self._refused) and self._key(job) in self._refused

    def found_nothing(self, job: KaiJob) -> None:
        """The search for a job has ended without victims."""
        self._n_wasted += self._n_of_search
        if self._most and self._n_of_search >= LONG_SEARCH:
            self._refused[self._key(job)] = self._session + RESTS

    def _key(self, job: KaiJob) -> tuple[object, ...]:
        requests = tuple(tuple(one) for one in job.sorted_requests())
        return self._action, job.queue, job.priority, job.signature, requests
