"""Calls of webhooks in the course of a write: what is sent, what came back, and what is missing.

A write is worked out without waiting. Where it needs the answer of a webhook, `AnswersNeeded` ends
it: the caller calls the webhook and repeats the write with its answer. An
answer counts for the same question only, so that a write that has changed meanwhile asks again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

ANSWERS_MAX = 1_000


class WebhookQuestion(msgspec.Struct, frozen=True):
    """A request to a webhook. key: what it asks, whatever its uid. url: with its query. dial: host
    and port to connect to, instead of those of the url. ca_bundle: PEM, empty for the authorities
    of the system."""

    key: str
    uid: str
    url: str
    body: bytes
    timeout_s: float
    dial: tuple[str, int] | None = None
    ca_bundle: bytes = b""


class WebhookReply(msgspec.Struct, frozen=True):
    """The answer. uid: of the question. error: why there is none, as the original words it."""

    uid: str
    status: int = 0
    body: bytes = b""
    error: str = ""


WebhookCaller = Callable[[Sequence[WebhookQuestion]], list[WebhookReply]]
"""Calls webhooks, all at the same time, and waits for their answers. Never raises."""


class AnswersNeeded(Exception):
    """A write that cannot be worked out without the answers to these questions."""

    def __init__(self, questions: Sequence[WebhookQuestion]) -> None:
        super().__init__(f"{len(questions)} webhooks are to be asked")
        self.questions = questions


class WebhookAnswers:
    """Answers that one write has got so far. repeats: the write draws the same names and uids
    whenever it is worked out."""

    def __init__(self) -> None:
        self.repeats = False
        self._known: OrderedDict[str, WebhookReply] = OrderedDict()

    def find(self, key: str) -> WebhookReply | None:
        """The answer to a question, None if it was not asked."""
        return self._known.get(key)

    def add(self, questions: Sequence[WebhookQuestion], replies: Sequence[WebhookReply]) -> None:
        """Keep the answers."""
        for question, reply in zip(questions, replies, strict=True):
            self._known[question.key] = reply
        while len(self._known) > ANSWERS_MAX:
            self._known.popitem(last=False)

    def need(self, questions: Sequence[WebhookQuestion]) -> None:
        """Raises AnswersNeeded."""
        raise AnswersNeeded(questions)


SKIPPED = WebhookAnswers()
"""Of writes that no webhook is asked about: those that a write makes in its course."""


class LaterAnswers(WebhookAnswers):
    """Answers for writes that are not requests: these fail while an answer is missing, and find
    it when they are tried again. An answer is used once."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[str, WebhookQuestion] = {}
        self._waiting: list[WebhookQuestion] = []

    def find(self, key: str) -> WebhookReply | None:
        """The answer to a question, None if there is none yet."""
        return self._known.pop(key, None)

    def add(self, questions: Sequence[WebhookQuestion], replies: Sequence[WebhookReply]) -> None:
        """Keep the answers."""
        for question in questions:
            self._asked.pop(question.key, None)
        super().add(questions, replies)

    def need(self, questions: Sequence[WebhookQuestion]) -> None:
        """Note what is to be asked."""
        for question in questions:
            if question.key not in self._asked:
                self._asked[question.key] = question
                self._waiting.append(question)

    def take(self) -> list[WebhookQuestion]:
        """What is to be asked now; the caller hands the answers to `add`."""
        taken, self._waiting = self._waiting, []
        return taken
