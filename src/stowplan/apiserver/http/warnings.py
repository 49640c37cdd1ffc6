"""Warnings of one response: texts of `Warning` headers, limited as in the original.

Source: apiserver v0.36, endpoints/filters/warning.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

TOTAL_MAX = 4 << 10
"""Total length of all texts, beyond which each is truncated."""
ITEM_MAX = 256
"""Length of a truncated text."""


class WarningList(list[str]):
    """The texts in order, each once, up to the limit."""

    def __init__(self) -> None:
        super().__init__()
        self._known: set[str] = set()
        self._cut_length = 0

    def append(self, text: str) -> None:
        """Add a text, unless it is a duplicate or the limit is reached."""
        if text and text not in self._known and self._cut_length < TOTAL_MAX:
            self._known.add(text)
            self._cut_length += min(len(text), ITEM_MAX)
            super().append(text)

    def extend(self, texts: Iterable[str]) -> None:
        """Add texts; an iterator is read up to the limit."""
        for text in texts:
            if self._cut_length >= TOTAL_MAX:
                return
            self.append(text)

    def header_texts(self) -> Iterator[str]:
        """The texts of the headers."""
        whole = sum(map(len, self)) <= TOTAL_MAX
        for text in self:
            yield text if whole else text[:ITEM_MAX]


def quoted_text(text: str) -> str:
    """A text in double quotes, without what cannot be printed."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(letter for letter in escaped if letter.isprintable()) + '"'
