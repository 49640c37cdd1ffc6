"""Backoff of the deletion of failed pods, by node.

A kubelet that rejects a pod would otherwise get the next one at once, without end.

Source: client-go v1.36, util/flowcontrol/backoff.go; kube-controller-manager v1.36, app/apps.go.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

FIRST_SECONDS = 1.0
MAX_SECONDS = 900.0


@dataclass(slots=True)
class _BackoffEntry:
    delay_s: float
    at: float


class FailedPodBackoff:
    """Delays by key; a key that was not used for twice the longest delay starts again."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, _BackoffEntry] = {}

    def delay(self, key: Hashable, now: float) -> float:
        """Seconds of the delay that `key` is in; 0.0 for none."""
        found = self._entries.get(key)
        if found is None or self._is_expired(found, now) or now - found.at >= found.delay_s:
            return 0.0
        return found.delay_s

    def advance(self, key: Hashable, now: float) -> None:
        """Start the first or next delay of `key`."""
        found = self._entries.get(key)
        if found is None or self._is_expired(found, now):
            self._remove_expired(now)
            self._entries[key] = _BackoffEntry(FIRST_SECONDS, now)
        else:
            found.delay_s, found.at = min(found.delay_s * 2, MAX_SECONDS), now

    def _remove_expired(self, now: float) -> None:
        expired = [key for key, each in self._entries.items() if self._is_expired(each, now)]
        for key in expired:
            del self._entries[key]

    @staticmethod
    def _is_expired(entry: _BackoffEntry, now: float) -> bool:
        return now - entry.at > 2 * MAX_SECONDS
