"""Shares of GPU cards: the request of a pod and the state of a node's cards, one by one.

A card has 1000 milli. A request is for `num` cards with so many milli on each.

Source: hkust-adsl/kubernetes-scheduler-simulator (Weng et al., USENIX ATC 2023), package gpushare;
its annotations are those of open-gpu-share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

CARD_MILLI = 1000

MILLI_KEY = "alibabacloud.com/gpu-milli"
COUNT_KEY = "alibabacloud.com/gpu-count"
CARDS_MAX = 1024
"""Cards of a node: state is kept for each, so that a mistyped count must not claim billions."""
INDEX_DIGITS = 6
MODEL_KEY = "alibabacloud.com/gpu-card-model"
INDEX_KEY = "alibabacloud.com/gpu-index"
ASSUME_TIME_KEY = "alibabacloud.com/assume-time"
ASSUME_TIMES = {ASSUME_TIME_KEY: "ns"}
"""The time of the binding, which goes onto a pod with its cards, and its unit."""

SHARE_KIND = "share"
"""The kind of pods that request a part of one card."""

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


class GpuShareRequest(msgspec.Struct, frozen=True):
    """The request of a pod, as policies see it.

    cpu_milli: requests of the containers, with 100 for each without one. milli: on each of `num`
    cards. models: accepted models, joined by `|`; empty for any. prescribed: indices of the cards
    that the pod must have, None for any.
    """

    cpu_milli: int = 0
    num: int = 0
    milli: int = 0
    models: str = ""
    prescribed: tuple[int, ...] | None = None

    @property
    def total_milli(self) -> int:
        """Milli on all cards."""
        return self.milli * self.num

    @property
    def is_share(self) -> bool:
        """True for a part of one card."""
        return self.num == 1 and 0 < self.milli < CARD_MILLI

    @property
    def is_several_shares(self) -> bool:
        """True for parts of several cards."""
        return self.num > 1 and 0 < self.milli < CARD_MILLI

    @property
    def n_cards_min(self) -> int:
        """Cards that a node must have for the prescribed ones to be there; at least 1."""
        return max(self.prescribed or (0,)) + 1

    @property
    def kind(self) -> str | None:
        """`share` or `k-gpu`; None for a pod without cards."""
        if self.milli <= 0 or self.num <= 0:
            return None
        return SHARE_KIND if self.is_share else f"{self.num}-gpu"


class CardState(msgspec.Struct, frozen=True):
    """What is left of a node and of its cards.

    left: milli of each card. model: of all cards, empty for none. kinds: the number of pods of each
    kind. cpu_capacity, cpu_left: milli.
    """

    cpu_capacity: int
    cpu_left: int
    left: tuple[int, ...]
    model: str = ""
    kinds: Mapping[str, int] = {}

    @property
    def total_left(self) -> int:
        """Milli left on all cards."""
        return sum(self.left)

    def with_pod(self, request: GpuShareRequest, cards: Sequence[int]) -> CardState:
        """The state with a pod on these cards; kinds stay as they are."""
        left = list(self.left)
        for card in cards:
            left[card] -= request.milli
        return CardState(
            self.cpu_capacity,
            self.cpu_left - request.cpu_milli,
            tuple(left),
            self.model,
            self.kinds,
        )


def is_accessible(models: str, model: str) -> bool:
    """True when cards of `model` serve a request for `models`."""
    if not models:
        return True
    if not model:
        return False
    accepted = [one for one in models.split("|") if one]
    return not accepted or model in accepted


def card_indices(text: str) -> tuple[int, ...] | None:
    """The cards of a gpu-index annotation such as `0-2`; None for an empty or invalid one, and
    where a card is beyond CARDS_MAX."""
    parts = text.split("-")
    if not all(part.isascii() and part.isdigit() and len(part) <= INDEX_DIGITS for part in parts):
        return None
    cards = tuple(int(part) for part in parts)
    return cards if max(cards) < CARDS_MAX else None


def format_card_indices(cards: Sequence[int]) -> str:
    """The gpu-index annotation of these cards."""
    return "-".join(map(str, cards))


def is_whole(text: str) -> bool:
    """True for a whole number that is not absurdly long."""
    return _WHOLE_NUMBER.fullmatch(text) is not None


def whole_number(text: str | None) -> int:
    """The number of an annotation; 0 for an absent or invalid one."""
    if text is None or _WHOLE_NUMBER.fullmatch(text) is None:
        return 0
    return int(text)
