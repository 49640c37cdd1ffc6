"""Results as small HTML for notebooks: tables, and bars as SVG. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

ROWS_MAX = 20
BAR_WIDTH, BAR_HEIGHT = 220, 12
NAME_WIDTH = 260
"""Of the names beside intervals."""


def html_summary(title: str, *parts: str) -> str:
    """A block with a heading. parts: of `html_table`, `html_text` and `html_bars`."""
    return f"<div><strong>{escape(title)}</strong>{''.join(parts)}</div>"


def html_text(text: str) -> str:
    """A paragraph, "" for no text."""
    return f"<p>{escape(text)}</p>" if text else ""


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of at most `ROWS_MAX` rows, with the number of those left out; "" for no rows."""
    cells = [[escape(str(cell)) for cell in row] for row in rows]
    if not cells:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells[:ROWS_MAX]
    )
    more = len(cells) - ROWS_MAX
    note = f"<p>and {more:,} more rows</p>" if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def html_bars(shares: Iterable[tuple[str, float]]) -> str:
    """A bar per name. shares: 1 is the whole bar; what is above is cut. "" for none."""
    rows = []
    for place, (name, share) in enumerate(shares):
        top = place * (BAR_HEIGHT + 8)
        width = BAR_WIDTH * max(0.0, min(1.0, share))
        frame = f'x="150" y="{top + 2}" height="{BAR_HEIGHT}"'
        rows.append(
            f'<text x="0" y="{top + 12}">{escape(name)}</text>'
            f'<rect {frame} width="{BAR_WIDTH}" fill="#8886" />'
            f'<rect {frame} width="{width:.1f}" fill="#2f7fb5" />'
            f'<text x="{BAR_WIDTH + 158}" y="{top + 12}">{share:.1%}</text>'
        )
    if not rows:
        return ""
    height = len(rows) * (BAR_HEIGHT + 8)
    return (
        f'<svg width="430" height="{height}" role="img" aria-label="Utilization" '
        f'font-size="12" font-family="sans-serif" fill="currentColor">{"".join(rows)}</svg>'
    )


class NamedInterval(NamedTuple):
    """An estimate with its interval. is_sure: drawn as a full dot."""

    name: str
    value: float
    low: float
    high: float
    is_sure: bool = False


def html_intervals(intervals: Iterable[NamedInterval], label: str) -> str:
    """A line per interval around a common zero, with its ends as text; "" for none. The first
    `ROWS_MAX` are drawn. label: what the numbers are, for readers of the page's text."""
    estimates = list(intervals)[:ROWS_MAX]
    if not estimates:
        return ""
    reach = max(
        (abs(end) for one in estimates for end in (one.low, one.high, one.value)), default=0.0
    )
    middle, half = NAME_WIDTH + BAR_WIDTH / 2, BAR_WIDTH / 2 / (reach or 1.0)
    shapes = []
    for place, one in enumerate(estimates):
        y = place * (BAR_HEIGHT + 8) + 8
        low, value, high = (middle + half * end for end in (one.low, one.value, one.high))
        fill = "#2f7fb5" if one.is_sure else "none"
        shapes.append(
            f'<text x="0" y="{y + 4}">{escape(one.name)}</text>'
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" stroke="#2f7fb5" />'
            f'<circle cx="{value:.1f}" cy="{y}" r="3.5" fill="{fill}" stroke="#2f7fb5" />'
            f'<text x="{NAME_WIDTH + BAR_WIDTH + 10}" y="{y + 4}">'
            f"{one.value:+.1%} ({one.low:+.1%} to {one.high:+.1%})</text>"
        )
    height = len(estimates) * (BAR_HEIGHT + 8)
    zero = f'<line x1="{middle}" x2="{middle}" y1="0" y2="{height}" stroke="#8886" />'
    return (
        f'<svg width="680" height="{height}" role="img" aria-label="{escape(label)}" '
        f'font-size="12" font-family="sans-serif" fill="currentColor">{zero}{"".join(shapes)}</svg>'
    )
