"""What a session of KAI-Scheduler asks about the volumes of pods; the assembly answers it."""

from __future__ import annotations

from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import KaiTask


class SessionVolumes:
    """Answers of a session in which volumes keep no pod from a node."""

    def refusal(self, task: KaiTask, node: KaiNode) -> str:
        """Why the volumes of a pod keep it from a node; "" where they do not."""
        return ""

    def take(self, task: KaiTask) -> None:
        """A pod got its node in this session: others do not get the volumes that it has there."""

    def give_back(self, task: KaiTask) -> None:
        """A pod lost its node again; nothing happens if it did not get it in this session."""

    def close(self) -> None:
        """The session has ended: nothing is taken any more."""
