"""Simulated lifecycle of a pod on a hollow node, from its annotations.

| annotation | meaning | without it |
|---|---|---|
| `stowplan.dev/start-seconds` | from binding to the first container | the default |
| `stowplan.dev/init-seconds` | how long each init container runs | 0 |
| `stowplan.dev/ready-seconds` | from running to ready | 0 |
| `stowplan.dev/run-seconds` | how long the containers run; `forever` | for ever with restartPolicy Always, else the default |
| `stowplan.dev/exit-code` | exit code; a list `1,1,0` has one code per run, the last for all further runs | 0 |
| `stowplan.dev/stop-seconds` | how long they take to stop; at most the grace period | 0 |
| `stowplan.dev/prepare-seconds` | how long the drivers prepare the devices of its claims, before it starts | 0 |
| `stowplan.dev/prepare-failures` | how many attempts to prepare them fail | 0 |
| `stowplan.dev/unprepare-seconds` | how long the drivers take to get the devices back, after it stopped | 0 |
| `stowplan.dev/unprepare-failures` | how many attempts to get them back fail | 0 |

On a node, `stowplan.dev/kubelet: off` stops its kubelet: no heartbeats, no pod starts or ends.
In a replay `stowplan.dev/kubelet-changes: "60=off, 900=on"` stops it and starts it again.
"""  # noqa: E501

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stowplan.objects.encoding.tree import Tree

START_SECONDS = "stowplan.dev/start-seconds"
INIT_SECONDS = "stowplan.dev/init-seconds"
READY_SECONDS = "stowplan.dev/ready-seconds"
RUN_SECONDS = "stowplan.dev/run-seconds"
EXIT_CODE = "stowplan.dev/exit-code"
STOP_SECONDS = "stowplan.dev/stop-seconds"
PREPARE_SECONDS = "stowplan.dev/prepare-seconds"
PREPARE_FAILURES = "stowplan.dev/prepare-failures"
UNPREPARE_SECONDS = "stowplan.dev/unprepare-seconds"
UNPREPARE_FAILURES = "stowplan.dev/unprepare-failures"
KUBELET = "stowplan.dev/kubelet"
KUBELET_CHANGES = "stowplan.dev/kubelet-changes"
FOREVER = math.inf
_EXIT_CODE_MAX = 255
_DIGITS_MAX = 3
_FAILURES_MAX = 255
_DURATIONS = (
    START_SECONDS, INIT_SECONDS, READY_SECONDS, RUN_SECONDS, STOP_SECONDS, PREPARE_SECONDS,
    UNPREPARE_SECONDS,
)  # fmt: skip
_PREFIX = "stowplan.dev/"
_PRINTED_MAX = 40


@dataclass(frozen=True, slots=True)
class PodLifecycleDefaults:
    """Defaults for pods without annotations. start_s: time to running. run_s: of pods that end.
    stop_s: time to stop. ends: False: no pod ends by itself, whatever its annotations."""

    start_s: float = 1.0
    run_s: float = 1.0
    stop_s: float = 0.0
    ends: bool = True


@dataclass(frozen=True, slots=True)
class PodLifecycle:
    """Durations of one pod in seconds; exit_codes by run."""

    start_s: float
    init_s: float
    ready_s: float
    run_s: float
    stop_s: float
    exit_codes: tuple[int, ...]
    prepare_s: float = 0.0
    prepare_failures: int = 0
    unprepare_s: float = 0.0
    unprepare_failures: int = 0

    def exit_code(self, run: int) -> int:
        """Exit code of a run, numbered from 0."""
        return self.exit_codes[min(run, len(self.exit_codes) - 1)]


def pod_lifecycle(pod: Tree, defaults: PodLifecycleDefaults) -> PodLifecycle:
    """The lifecycle of a pod; an invalid annotation is ignored."""
    notes: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    always = pod["spec"].get("restartPolicy", "Always") == "Always"
    run_s = _duration_or(notes.get(RUN_SECONDS), FOREVER if always else defaults.run_s)
    return PodLifecycle(
        start_s=_duration_or(notes.get(START_SECONDS), defaults.start_s),
        init_s=_duration_or(notes.get(INIT_SECONDS), 0.0),
        ready_s=_duration_or(notes.get(READY_SECONDS), 0.0),
        run_s=run_s if defaults.ends else FOREVER,
        stop_s=_duration_or(notes.get(STOP_SECONDS), defaults.stop_s),
        exit_codes=_exit_codes_or_zero(notes.get(EXIT_CODE)),
        prepare_s=_duration_or(notes.get(PREPARE_SECONDS), 0.0),
        prepare_failures=_parse_failures(notes.get(PREPARE_FAILURES, "")) or 0,
        unprepare_s=_duration_or(notes.get(UNPREPARE_SECONDS), 0.0),
        unprepare_failures=_parse_failures(notes.get(UNPREPARE_FAILURES, "")) or 0,
    )


def annotation_problems(notes: Mapping[str, str]) -> Iterator[str]:
    """Texts about invalid annotations of a pod, which are ignored."""
    for name, text in notes.items():
        printed = text if len(text) <= _PRINTED_MAX else f"{text[:_PRINTED_MAX]}..."
        if name in _DURATIONS and _parse_duration(text) is None:
            yield f'{name}: Invalid value: "{printed}": must be seconds >= 0, or "forever"'
        elif name == EXIT_CODE and _parse_exit_codes(text) is None:
            codes = f'0 to {_EXIT_CODE_MAX}, as in "1,1,0"'
            yield f'{name}: Invalid value: "{printed}": must be {codes}'
        elif name in (PREPARE_FAILURES, UNPREPARE_FAILURES) and _parse_failures(text) is None:
            yield f'{name}: Invalid value: "{printed}": must be 0 to {_FAILURES_MAX}'
        elif name.startswith(_PREFIX) and name.endswith("-seconds") and name not in _DURATIONS:
            yield f"{name}: unknown annotation: supported values: {', '.join(_DURATIONS)}"


def node_annotation_problems(notes: Mapping[str, str]) -> Iterator[str]:
    """Texts about invalid annotations of a node, which are ignored."""
    text = notes.get(KUBELET, "on")
    if text not in ("on", "off"):
        printed = text[:_PRINTED_MAX]
        yield f'{KUBELET}: Unsupported value: "{printed}": supported values: "off", "on"'


def is_kubelet_off(node: Tree) -> bool:
    """True for a node whose kubelet is off."""
    return bool((node["metadata"].get("annotations") or {}).get(KUBELET) == "off")


def has_kubelet_annotation(node: Tree) -> bool:
    """True for a node with an annotation about its kubelet: its heartbeats are simulated also
    where those of other nodes are not."""
    notes = node["metadata"].get("annotations") or {}
    return KUBELET in notes or KUBELET_CHANGES in notes


def _duration_or(text: str | None, otherwise: float) -> float:
    found = None if text is None else _parse_duration(text)
    return otherwise if found is None else found


def _parse_duration(text: str) -> float | None:
    """A duration in seconds; None if the text is invalid."""
    if text == "forever":
        return FOREVER
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value < FOREVER else None


def _parse_failures(text: str) -> int | None:
    """A number of failures; None if the text is invalid."""
    if not text.isdecimal() or len(text) > _DIGITS_MAX or int(text) > _FAILURES_MAX:
        return None
    return int(text)


def _exit_codes_or_zero(text: str | None) -> tuple[int, ...]:
    return (None if text is None else _parse_exit_codes(text)) or (0,)


def _parse_exit_codes(text: str) -> tuple[int, ...] | None:
    """Exit codes; None if the text is invalid."""
    parts = [part.strip() for part in text.split(",")]
    # Python refuses to parse integers of thousands of digits.
    if not all(part.isdecimal() and len(part) <= _DIGITS_MAX for part in parts):
        return None
    if any(int(part) > _EXIT_CODE_MAX for part in parts):
        return None
    return tuple(int(part) for part in parts)
