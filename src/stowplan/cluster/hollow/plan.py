"""How a hollow pod behaves, from its annotations.

| annotation | meaning | without it |
|---|---|---|
| `stowplan.dev/start-seconds` | from binding to the first container | the fleet's habit |
| `stowplan.dev/init-seconds` | how long each init container runs | 0 |
| `stowplan.dev/ready-seconds` | from running to ready | 0 |
| `stowplan.dev/run-seconds` | how long the containers run; `forever` | for ever if they are always restarted, else the fleet's habit |
| `stowplan.dev/exit-code` | how they end; a list `1,1,0` is for one run after the other, the last for all further | 0 |
| `stowplan.dev/stop-seconds` | how long they take to end when told to; never longer than the grace | 0 |

On a node, `stowplan.dev/kubelet: off` silences its kubelet: no heartbeats, nothing starts or ends.
"""  # noqa: E501

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Tree = dict[str, Any]

START_SECONDS = "stowplan.dev/start-seconds"
INIT_SECONDS = "stowplan.dev/init-seconds"
READY_SECONDS = "stowplan.dev/ready-seconds"
RUN_SECONDS = "stowplan.dev/run-seconds"
EXIT_CODE = "stowplan.dev/exit-code"
STOP_SECONDS = "stowplan.dev/stop-seconds"
KUBELET = "stowplan.dev/kubelet"
FOREVER = math.inf
_EXIT_CODE_MOST = 255
_DIGITS_MOST = 3
_LENGTHS = (START_SECONDS, INIT_SECONDS, READY_SECONDS, RUN_SECONDS, STOP_SECONDS)
_OWN = "stowplan.dev/"
_SHOWN_MOST = 40


@dataclass(frozen=True, slots=True)
class Habits:
    """What pods do that say nothing. start_s: until they run. run_s: pods that are to end."""

    start_s: float = 1.0
    run_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What one pod will do; all in seconds, exit_codes by run."""

    start_s: float
    init_s: float
    ready_s: float
    run_s: float
    stop_s: float
    exit_codes: tuple[int, ...]

    def exit_code(self, run: int) -> int:
        """How the run of this number (from 0) ends."""
        return self.exit_codes[min(run, len(self.exit_codes) - 1)]


def plan_of(pod: Tree, habits: Habits) -> Plan:
    """The plan of a pod; an annotation that cannot be read counts as absent."""
    notes: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    always = pod["spec"].get("restartPolicy", "Always") == "Always"
    return Plan(
        start_s=_seconds(notes.get(START_SECONDS), habits.start_s),
        init_s=_seconds(notes.get(INIT_SECONDS), 0.0),
        ready_s=_seconds(notes.get(READY_SECONDS), 0.0),
        run_s=_seconds(notes.get(RUN_SECONDS), FOREVER if always else habits.run_s),
        stop_s=_seconds(notes.get(STOP_SECONDS), 0.0),
        exit_codes=_codes(notes.get(EXIT_CODE)),
    )


def problems(notes: Mapping[str, str]) -> Iterator[str]:
    """What the annotations of a pod say that cannot be read, and therefore counts as absent."""
    for name, text in notes.items():
        shown = text if len(text) <= _SHOWN_MOST else f"{text[:_SHOWN_MOST]}..."
        if name in _LENGTHS and _length(text) is None:
            yield f'{name}: got "{shown}", wanted seconds from 0 on, or "forever"'
        elif name == EXIT_CODE and _numbers(text) is None:
            yield f'{name}: got "{shown}", wanted numbers from 0 to {_EXIT_CODE_MOST}, like "1,1,0"'
        elif name.startswith(_OWN) and name.endswith("-seconds") and name not in _LENGTHS:
            yield f"{name}: no such annotation; there are {', '.join(_LENGTHS)}"


def node_problems(notes: Mapping[str, str]) -> Iterator[str]:
    """As `problems`, of a node."""
    text = notes.get(KUBELET, "on")
    if text not in ("on", "off"):
        yield f'{KUBELET}: got "{text[:_SHOWN_MOST]}", wanted "off" (or "on"); it counts as "on"'


def is_silent(node: Tree) -> bool:
    """True for a node whose kubelet is off."""
    return bool((node["metadata"].get("annotations") or {}).get(KUBELET) == "off")


def _seconds(text: str | None, otherwise: float) -> float:
    found = None if text is None else _length(text)
    return otherwise if found is None else found


def _length(text: str) -> float | None:
    """A length in seconds; None if the text is none."""
    if text == "forever":
        return FOREVER
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value < FOREVER else None


def _codes(text: str | None) -> tuple[int, ...]:
    return (None if text is None else _numbers(text)) or (0,)


def _numbers(text: str) -> tuple[int, ...] | None:
    """Exit codes; None if the text is no list of such."""
    parts = [part.strip() for part in text.split(",")]
    # Longer ones are not even looked at: a number of thousands of digits is refused by Python.
    if not all(part.isdecimal() and len(part) <= _DIGITS_MOST for part in parts):
        return None
    if any(int(part) > _EXIT_CODE_MOST for part in parts):
        return None
    return tuple(int(part) for part in parts)
