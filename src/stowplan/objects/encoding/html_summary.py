"""Results as small HTML for notebooks: tables, and bars as SVG. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

ROWS_MAX = 20
BAR_WIDTH, BAR_HEIGHT = 220, 12


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
