"""Warnings of one answer: texts for `Warning` headers, as many as the original sends.

Source: apiserver v0.36, endpoints/filters/warning.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

TOTAL_MAX = 4 << 10
"""Characters of all texts together, beyond which each is cut."""
ITEM_MAX = 256
"""Characters of a text that is cut."""


class WarningList(list[str]):
    """The texts in order, each once; when there are enough no more are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[str] = set()
        self._cut_length = 0

    def append(self, text: str) -> None:
        """Add a text, unless it is there or there are enough."""
        if text and text not in self._known and self._cut_length < TOTAL_MAX:
            self._known.add(text)
            self._cut_length += min(len(text), ITEM_MAX)
            super().append(text)

    def extend(self, texts: Iterable[str]) -> None:
        """Add texts; an iterator is read no further than there is room."""
        for text in texts:
            if self._cut_length >= TOTAL_MAX:
                return
            self.append(text)

    def header_texts(self) -> Iterator[str]:
        """The texts as they are sent."""
        whole = sum(map(len, self)) <= TOTAL_MAX
        for text in self:
            yield text if whole else text[:ITEM_MAX]
