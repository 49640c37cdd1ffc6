"""A request whose write needs answers of webhooks: it is worked out again with each answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stowplan.apis.admissionregistration.webhook_calls import SKIPPED, AnswersNeeded
from stowplan.apis.machinery.errors import internal_error
from stowplan.apiserver.http.deferred_work import RequestSteps
from stowplan.apiserver.server_state import ServerState

ROUNDS_MAX = 100


class WebhookRounds:
    """The answers of one request. They count for the same question only, so every round has the
    same generator. answers: None where no webhook is called, SKIPPED while no configuration of
    webhooks was ever stored, which makes a request cheaper."""

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self.answers = server.new_answers()
        self._seed: np.int64 | int = 0

    def generator(self) -> np.random.Generator:
        """What generates names and uids."""
        if self.answers is None or self.answers is SKIPPED:
            return self._server.rng
        self.answers.repeats = True
        self._seed = self._seed or self._server.rng.integers(1, 1 << 62)
        return np.random.default_rng(self._seed)

    def of(self, work_out: Callable[[], RequestSteps], again: Callable[[], None]) -> RequestSteps:
        """The answer. again: called before each further round. Raises ApiError."""
        if self.answers is None or self.answers is SKIPPED:
            return (yield from work_out())
        for _ in range(ROUNDS_MAX):
            try:
                return (yield from work_out())
            except AnswersNeeded as needed:
                later = self._server.webhook_work(needed.questions)
                yield later
                self.answers.add(needed.questions, later.result())
            again()
        raise internal_error("webhooks change what other webhooks are asked, again and again")
