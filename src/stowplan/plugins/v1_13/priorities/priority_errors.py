"""Errors of priorities: all that cannot score a pod fail the attempt with one error.

Source: Kubernetes v1.13, scheduler/core PrioritizeNodes; apimachinery util/errors Aggregate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from stowplan.framework import OK, Framework, Snapshot, Status, error
from stowplan.objects.pod import Pod


class FailingPriority(ABC):
    """A priority that cannot score every pod."""

    @abstractmethod
    def failure(self, pod: Pod, snapshot: Snapshot) -> str:
        """Why the pod cannot be scored, "" where it can."""


def aggregate_errors(texts: Iterable[str]) -> str:
    """One text for several errors, each distinct one once."""
    distinct = tuple(dict.fromkeys(texts))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def priority_error_of(rule: Any, pod: Pod, snapshot: Snapshot) -> str:
    """Why a score plugin cannot score the pod, "" where it can."""
    return rule.failure(pod, snapshot) if isinstance(rule, FailingPriority) else ""


def priority_errors_status(framework: Framework, pod: Pod, snapshot: Snapshot) -> Status:
    """An error that names the error of every priority of the profile; OK where none fails."""
    rules = (member.plugin for member in framework.at("score"))
    texts = [text for rule in rules if (text := priority_error_of(rule, pod, snapshot))]
    return error(aggregate_errors(texts)) if texts else OK
