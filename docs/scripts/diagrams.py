"""The diagrams of the concept pages, and those of layers and of the README."""

from __future__ import annotations

import configparser
from pathlib import Path

from svg import LINE, Diagram

from stowplan.queue.pod_record import PodState
from stowplan.scheduler.pods.transitions import IN_BINDING_CYCLE, QUEUED, TRANSITIONS, PodEvent

ROOT = Path(__file__).parents[2]


def pod() -> str:
    """Life of a pod: from the watch to the confirmed binding."""
    d = Diagram(980, 520, "Life of a pod: from the watch event to the confirmed binding")
    d.group(225, 10, 190, 375, "scheduling queue")
    d.group(745, 10, 220, 410, "binding cycle, node assumed")
    d.box("watch", 20, 40, "PodAdded\nfrom the informer")
    d.box("gated", 20, 150, "gated\na PreEnqueue plugin\nrefuses it", kind="warn")
    d.box("active", 240, 40, "active\npriority, then arrival", 160)
    d.box("flight", 500, 40, "in flight\nbeing decided", kind="mark")
    d.box("backoff", 240, 150, "backoff\n1 s, 2 s, 4 s, ... 10 s", 160)
    note = "unschedulable\nrefused; no event\nthat may help it"
    d.box("unschedulable", 240, 295, note, 160, "warn")
    d.box("permit", 760, 40, "waiting on permit\nPermit plugins", 190)
    d.box("prebind", 760, 145, "prebinding\nPreBind plugins, their I/O", 190)
    d.box("binding", 760, 250, "binding\nBind effect sent", 190, "mark")
    d.box("unknown", 500, 250, "bind unknown\nthe reply was lost", kind="warn")
    d.box("confirmed", 760, 355, "assumed\nthe API server agreed", 190)
    d.box("watched", 760, 450, "bound\nconfirmed by the watch", 190, "mark")
    d.arrow("watch", "active")
    d.arrow("watch", "gated", "PreEnqueue", (42, 4))
    d.path([(170, 190), (205, 190), (205, 78), (237, 78)])
    d.arrow("active", "flight", "pop")
    d.arrow("flight", "permit", "Reserve", (-10, -2))
    d.arrow("permit", "prebind", "allowed", (34, 6))
    d.arrow("prebind", "binding")
    d.arrow("binding", "confirmed", "BindDone", (38, 8))
    d.arrow("binding", "unknown", "no answer")
    d.path([(575, 307), (575, 385), (757, 385)], "PodRead: it is bound", (666, 402))
    d.arrow("confirmed", "watched")
    d.path([(540, 97), (540, 165), (403, 165)], "error", (470, 160))
    d.path([(570, 97), (570, 200), (440, 200), (440, 325), (403, 325)], "no node fits", (505, 217))
    d.arrow("backoff", "active", "over", (20, 6))
    d.arrow("unschedulable", "backoff", "event helps", (40, 4))
    d.path([(240, 345), (190, 345), (190, 88), (237, 88)], "waited enough", (140, 300))
    d.path(
        [(760, 170), (625, 170), (625, 100)], "failed: Unreserve,\nback to the queue", (692, 205)
    )
    return str(d)


def session() -> str:
    """Life of a session: snapshot, actions, statement, effects."""
    d = Diagram(
        900, 470, "Life of a session: inventory, plugins in tiers, actions, statement, effects"
    )
    d.box("watch", 20, 40, "events\npods, nodes, PodGroups,\nQueues", 170)
    d.box("inventory", 20, 170, "inventory\njobs, tasks, queues,\nkept between sessions", 170)
    d.box("open", 240, 170, "open\nplugins register hooks,\ninvalid jobs leave", 170, "mark")
    d.box("close", 690, 170, "close\nfit errors, status\nof each PodGroup", 180, "mark")
    d.box("effects", 690, 40, "effects\nBind, Evict, PatchGroup,\nRecordEvent", 180)
    d.box(
        "tiers", 240, 40, "tiers of plugins\npriority, gang, drf,\nproportion, predicates ...", 190
    )
    actions = ("reclaim", "allocate", "backfill", "preempt")
    notes = (
        "from queues with more than they deserve",
        "idle resources, queue by queue, job by job",
        "pods that request nothing",
        "inside a queue, from lower priority",
    )
    for i, (name, note) in enumerate(zip(actions, notes, strict=True)):
        d.box(name, 250, 275 + 47 * i, name, 110)
        d.text(370, 298 + 47 * i, note, "note", "start")
    d.group(235, 250, 395, 212, "actions, in the configured order")
    d.box(
        "statement",
        690,
        300,
        "statement\nAllocated, Pipelined, Evicted\nmark, rollback, commit",
        195,
    )
    d.arrow("watch", "inventory")
    d.arrow("inventory", "open", "", (0, 0))
    d.arrow("tiers", "open", "ask", (22, 4))
    d.path([(325, 242), (325, 247)])
    d.path([(633, 330), (687, 330)], "try", (658, 322))
    d.path([(690, 352), (633, 352)], "undo", (661, 370))
    d.arrow("statement", "close", "commit", (34, 4))
    d.arrow("close", "effects")
    d.path(
        [(780, 40), (780, 20), (105, 20), (105, 37)],
        "the watch shows what became of them",
        (450, 15),
    )
    return str(d)


def queue() -> str:
    """The scheduling queue: where a pending pod is, and what moves it."""
    d = Diagram(900, 330, "The scheduling queue: active, backoff, unschedulable and gated pods")
    d.box("active", 360, 40, "active\nheap: priority, arrival", 180, "mark")
    d.box("backoff", 80, 150, "backoff\nheap: end of backoff", 180)
    d.box("unschedulable", 360, 250, "unschedulable\nby plugin that refused", 180, "warn")
    d.box("gated", 640, 250, "gated\nPreEnqueue refuses", 180, "warn")
    d.box("flight", 640, 80, "in flight\nevents are recorded", 180, "mark")
    d.path([(543, 55), (730, 55), (730, 77)], "pop", (640, 49))
    d.path(
        [(640, 105), (500, 105), (500, 247)],
        "refused, and no event\nmeanwhile may help",
        (575, 205),
    )
    d.path([(640, 125), (263, 165)], "failed, or an event\nmeanwhile may help", (330, 135))
    d.path([(170, 150), (170, 65), (357, 65)], "backoff over", (250, 58))
    d.path([(360, 270), (170, 270), (170, 210)], "event: a hint says Queue", (262, 262))
    d.path([(420, 250), (420, 100)], "backoff served", (372, 225))
    d.path(
        [(730, 250), (730, 232), (860, 232), (860, 20), (450, 20), (450, 37)],
        "gates removed",
        (806, 15),
    )
    d.path([(360, 290), (40, 290), (40, 80), (357, 80)], "5 minutes", (75, 308))
    return str(d)


def kernels() -> str:
    """Classes and kernels: how a run of pods is placed."""
    d = Diagram(
        900,
        400,
        "Pods of a template form a class; plugins state kernel terms; a kernel places a run",
    )
    d.box("pods", 20, 40, "pods at the head\nof the queue", 150)
    d.box("classes", 220, 40, "classes\nsame spec, labels,\nnamespace, controller", 170)
    d.box(
        "terms",
        440,
        40,
        "kernel terms per class\nResourceFit, ResourceScore,\nTopologyTerms, ...",
        200,
    )
    d.box("arrays", 690, 40, "arrays\nint64 per class and row", 180)
    d.box(
        "nodes", 440, 180, "NodeTable\na column per fact, by delta;\na journal of touched rows", 200
    )
    d.box(
        "kernel",
        690,
        170,
        "kernel (Numba)\nscore tree per class;\none pod after the other",
        180,
        "mark",
    )
    d.box("walk", 20, 190, "column walk (NumPy)\nany pod, any plugin", 170, "mark")
    d.box("scalar", 220, 190, "scalar walk\none node at a time:\nthe contract", 170, "mark")
    d.box("decision", 330, 320, "the same decision", 240)
    d.arrow("pods", "classes")
    d.arrow("classes", "terms")
    d.arrow("terms", "arrays")
    d.arrow("arrays", "kernel")
    d.arrow("nodes", "kernel")
    d.path([(95, 97), (95, 187)], "a rule without terms,\nvolumes, nomination", (160, 150))
    d.path([(780, 241), (780, 340), (573, 340)])
    d.path([(105, 247), (105, 340), (327, 340)])
    d.path([(305, 264), (305, 300), (380, 300), (380, 317)])
    d.text(450, 385, "tests compare all three on recorded answers and on generated clusters")
    return str(d)


def exactness() -> str:
    """Exactness: what is compared with what."""
    d = Diagram(
        900, 330, "Recorded answers of the Go originals are compared with every way of deciding"
    )
    d.box(
        "go",
        20,
        40,
        "Go code of the originals\nkube-scheduler 1.36.2,\nKubernetes 1.13, kube-batch 0.5",
        220,
    )
    d.box("vectors", 300, 40, "vectors\nquestion and answer,\ntests/conformance", 190)
    d.box("api", 20, 210, "kube-apiserver 1.36.2\nrecorded conversations", 220)
    d.box("transcripts", 300, 210, "recordings\nrequest and answer,\ntests/contract", 190)
    for i, (name, text) in enumerate(
        [
            ("scalar", "scalar walk"),
            ("column", "column walk"),
            ("kernel", "kernels"),
            ("session", "sessions, all switches on"),
            ("server", "embedded API server"),
        ]
    ):
        d.box(name, 620, 20 + 60 * i, text, 250, "mark")
    for i in range(4):
        d.path([(490, 75), (555, 75), (555, 38 + 60 * i), (617, 38 + 60 * i)])
    d.path([(490, 260), (617, 278)])
    d.text(553, 15, "every answer, to the bit")
    d.arrow("go", "vectors", "run once")
    d.arrow("api", "transcripts", "run once")
    return str(d)


def layers() -> str:
    """The layers of the import contract, read from .importlinter."""
    contract = configparser.ConfigParser()
    contract.read(ROOT / ".importlinter")
    rows = next(
        section["layers"].split("\n")
        for name, section in contract.items()
        if section.get("type") == "layers" and section.get("containers", "").strip() == "stowplan"
    )
    rows = [row.strip().replace("(", "").replace(")", "") for row in rows if row.strip()]
    d = Diagram(760, 0, "Layers: imports point down only")
    y = 36
    for row in rows:
        pieces = _wrapped(row)
        names = [[one.strip() for one in piece.split("|") if one.strip()] for piece in pieces]
        for packages in names:
            width = (720 - 8 * (len(packages) - 1)) // len(packages)
            for i, name in enumerate(packages):
                x = 20 + i * (width + 8)
                d.box(name, x, y, name, width)
            y += 42
        y += 4
    d.text(380, 24, "imports point down only; packages of one layer do not import each other")
    d.resize(y + 8)
    return str(d)


def _wrapped(row: str) -> list[str]:
    """A layer in rows of at most five packages."""
    names = [one.strip() for one in row.split("|")]
    return [" | ".join(names[i : i + 5]) for i in range(0, len(names), 5)]


def pod_states() -> str:
    """The states of a pod and what ends them, read from the transition table."""
    rows: dict[PodState, dict[PodEvent, tuple[PodState, ...]]] = {}
    for (state, event), transition in TRANSITIONS.items():
        rows.setdefault(state, {})[event] = transition.targets
    d = Diagram(980, 0, "States of a pod: the events that end them, and the states that follow")
    y = 36
    d.text(490, 24, "queue: gated, active, backoff or unschedulable")
    for state in sorted(rows):
        d.box(state.label, 20, y, state.label, 170, "mark" if state in IN_BINDING_CYCLE else "box")
        lines = [f"{event.label}: {_states(rows[state][event])}" for event in sorted(rows[state])]
        for i, line in enumerate(lines):
            d.text(215 + 375 * (i % 2), y + 22 + LINE * (i // 2), line, "note", "start")
        y += 20 + LINE * max(1, -(-len(lines) // 2)) + 8
    d.resize(y + 4)
    return str(d)


def _states(states: tuple[PodState, ...]) -> str:
    """Labels of states; those of the queue as one."""
    labels = [state.label for state in states]
    if set(QUEUED) <= set(states):
        labels = ["queue", *(state.label for state in states if state not in QUEUED)]
    return ", ".join(labels)


DIAGRAMS = {
    "pod.svg": pod,
    "pod_states.svg": pod_states,
    "session.svg": session,
    "queue.svg": queue,
    "kernels.svg": kernels,
    "exactness.svg": exactness,
    "layers.svg": layers,
}
