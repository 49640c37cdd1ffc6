"""Small SVG diagrams: boxes, arrows and labels, readable on light and dark pages."""

from __future__ import annotations

from html import escape

LINE = 17
STYLE = """\
svg { --back: #f6f8fa; --box: #ffffff; --line: #57606a; --text: #1f2328; --soft: #57606a;
  --mark: #0b6b75; --markbox: #dff3f4; --warn: #9a4a00; --warnbox: #fff1e0; }
@media (prefers-color-scheme: dark) {
  svg { --back: #1b2028; --box: #262d38; --line: #9aa4b2; --text: #e6edf3; --soft: #aeb8c4;
    --mark: #6fd3dd; --markbox: #173a40; --warn: #ffb36b; --warnbox: #43301c; }
}
.back { fill: var(--back); }
.box { fill: var(--box); stroke: var(--line); }
.mark { fill: var(--markbox); stroke: var(--mark); }
.warn { fill: var(--warnbox); stroke: var(--warn); }
.group { fill: none; stroke: var(--line); stroke-dasharray: 5 4; }
.title { fill: var(--text); font-weight: 600; }
.note { fill: var(--soft); }
.arrow { fill: none; stroke: var(--line); stroke-width: 1.4; }
.head { fill: var(--line); }
text { font-family: system-ui, sans-serif; font-size: 13px; }
.note { font-size: 12px; }
.mono { font-family: ui-monospace, monospace; font-size: 12.5px; white-space: pre;
  fill: var(--text); }
.prompt { fill: var(--mark); font-weight: 600; }"""


class Diagram:
    """A drawing of fixed size. title: its text for readers who do not see it."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._width, self._height, self._title = width, height, title
        self._shapes: list[str] = []
        self._boxes: dict[str, tuple[int, int, int, int]] = {}

    def box(
        self, name: str, x: int, y: int, text: str, width: int = 150, kind: str = "box"
    ) -> None:
        """A box whose first line is its title and whose other lines are notes."""
        lines = text.split("\n")
        height = 20 + LINE * len(lines)
        self._boxes[name] = (x, y, width, height)
        self._shapes.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
        )
        for i, line in enumerate(lines):
            self.text(x + width // 2, y + 22 + LINE * i, line, "note" if i else "title")

    def group(self, x: int, y: int, width: int, height: int, label: str) -> None:
        """A dashed frame with a label at its top left."""
        self._shapes.append(
            f'<rect class="group" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"/>'
        )
        self.text(x + 10, y + 18, label, "note", "start")

    def text(self, x: int, y: int, line: str, kind: str = "note", anchor: str = "middle") -> None:
        """A line of text."""
        self._shapes.append(
            f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(line)}</text>'
        )

    def arrow(
        self, source: str, target: str, label: str = "", at: tuple[int, int] = (0, 0)
    ) -> None:
        """An arrow between the sides of two boxes that face each other. at: shift of the label."""
        start, end = self._ends(source, target)
        self.line([start, end])
        if label:
            x, y = (start[0] + end[0]) // 2 + at[0], (start[1] + end[1]) // 2 + at[1]
            self._label(x, y - 5, label)

    def path(
        self, points: list[tuple[int, int]], label: str = "", at: tuple[int, int] = (0, 0)
    ) -> None:
        """An arrow along points. at: where the label is."""
        self.line(points)
        if label:
            self._label(*at, label)

    def line(self, points: list[tuple[int, int]]) -> None:
        """A line along points with a head at its end."""
        course = " ".join(f"{x},{y}" for x, y in points)
        self._shapes.append(f'<polyline class="arrow" points="{course}" marker-end="url(#head)"/>')

    def resize(self, height: int) -> None:
        """Set the height, where it is known only after drawing."""
        self._height = height

    def _label(self, x: int, y: int, label: str) -> None:
        lines = label.split("\n")
        for i, line in enumerate(lines):
            self.text(x, y - 15 * (len(lines) - 1 - i), line)

    def _ends(self, source: str, target: str) -> tuple[tuple[int, int], tuple[int, int]]:
        x, y, width, height = self._boxes[source]
        u, v, wide, high = self._boxes[target]
        if y + height <= v or v + high <= y:
            low, top = max(x, u), min(x + width, u + wide)
            middle = (low + top) // 2 if low < top else 0
            down = y + height <= v
            return (
                (middle or x + width // 2, y + height if down else y),
                (middle or u + wide // 2, v - 3 if down else v + high + 3),
            )
        low, top = max(y, v), min(y + height, v + high)
        middle = (low + top) // 2
        right = x + width <= u
        return (x + width if right else x, middle), (u - 3 if right else u + wide + 3, middle)

    def __str__(self) -> str:
        shapes = "\n".join(self._shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width} {self._height}" '
            f'role="img">\n<title>{escape(self._title)}</title>\n<style>\n{STYLE}\n</style>\n'
            '<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto-start-reverse"><path class="head" d="M0,0 L8,4 L0,8 z"/>'
            "</marker></defs>\n"
            f'<rect class="back" width="{self._width}" height="{self._height}" rx="8"/>\n'
            f"{shapes}\n</svg>\n"
        )


def terminal(lines: list[str], title: str) -> str:
    """A terminal's text as a drawing; lines that begin with `$ ` are commands."""
    width = 24 + round(7.55 * max(map(len, lines)))
    drawing = Diagram(width, 24 + LINE * len(lines), title)
    for i, line in enumerate(lines):
        kind = "mono prompt" if line.startswith("$ ") else "mono"
        drawing.text(12, 26 + LINE * i, line, kind, "start")
    return str(drawing)
