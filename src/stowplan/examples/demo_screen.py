"""Display of the demo: plain lines without a terminal, and live node bars on one."""

from __future__ import annotations

from collections import Counter
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from stowplan.examples.demo_cluster import DemoCheck
from stowplan.examples.demo_manifests import CORES, ZONES
from stowplan.examples.demo_state import ObservedCluster, cores_of
from stowplan.examples.demo_steps import DemoStep

COLORS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red", "bright_cyan", "bright_green")
CELLS_PER_CORE = 2
POLLS_PER_FRAME = 3


class PlainDisplay:
    """Prints a line for each action and check."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def begin(self, number: int, n_steps: int, step: DemoStep) -> None:
        """Heading of a step."""
        title = Text(f"\n{number}/{n_steps} {step.title}. ", style="bold")
        self._print(title.append(Text(step.explanation, style="not bold")))

    def say(self, text: str) -> None:
        """The next action."""
        self._print(Text(f"  {text}"))

    def report_check(self, check: DemoCheck) -> None:
        """An expectation, and what was observed."""
        if check.held:
            line = Text("  ok ", style="green").append(check.expected, style="default")
            line.append(f" ({check.seen})", style="dim")
        else:
            line = Text("  NO ", style="bold red").append(check.expected, style="default")
            line.append(f"; seen: {check.seen}", style="red")
        self._print(line)

    def refresh(self, view: ObservedCluster) -> None:
        """Nothing: too many updates for lines."""

    def _print(self, line: Text) -> None:
        self.console.print(line, soft_wrap=not self.console.is_terminal)


class LiveDisplay(PlainDisplay):
    """The same, with the nodes below."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._looks = 0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def refresh(self, view: ObservedCluster) -> None:
        """Draw the nodes, at a limited rate."""
        self._looks += 1
        if self._looks % POLLS_PER_FRAME == 0:
            self._live.update(cluster_bars(view), refresh=True)


def cluster_bars(view: ObservedCluster) -> Group:
    """A bar for each node, two cells per core, in the colours of its apps; then the pending
    pods."""
    apps = list(dict.fromkeys(one.app for one in view.pods.values()))
    colors = {app: COLORS[number % len(COLORS)] for number, app in enumerate(apps)}
    lines = [Text("")]
    for name, zone in ZONES.items():
        if name in view.nodes:
            lines.append(_bar(view, name, zone, colors))
    waiting = Counter(one.app for one in view.waiting())
    pending = ", ".join(f"{app} {n}" for app, n in waiting.items()) or "none"
    lines.append(Text(f"pending: {pending}", style="dim"))
    return Group(*lines)


def _bar(view: ObservedCluster, name: str, zone: str, colors: dict[str, str]) -> Text:
    line = Text(f"{name} {zone} ", style="default" if view.is_up(name) else "red")
    counts: Counter[str] = Counter()
    cells = 0
    on_node = [p for p in view.pods.values() if not p.deleted_at and p.pod.node_name == name]
    for one in sorted(on_node, key=lambda one: list(colors).index(one.app)):
        width = round(cores_of(one.pod) * CELLS_PER_CORE)
        line.append("█" * width, style=colors[one.app] if one.is_live else "bright_black")
        cells += width
        counts[one.app] += 1
    line.append("·" * max(0, CORES * CELLS_PER_CORE - cells), style="dim")
    if not view.is_up(name):
        return line.append("  silent", style="red")
    for app, n in counts.items():
        line.append(f"  {app} {n}", style=colors[app])
    return line
