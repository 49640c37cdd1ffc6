"""What `stowplan top` shows, as text: nodes, pending pods, queues, decisions, and the map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from rich.text import Text

from stowplan.apis.machinery.timestamps import human_duration
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.quantity import format_quantity
from stowplan.web.model.page_state import PageState

ROWS_MAX = 200
"""Rows that a table shows; more are found by the filter."""
ZONE = "topology.kubernetes.io/zone"
CORDONED, NOT_READY, TAINTED = 1, 2, 4
LEVELS = "·▁▂▃▄▅▆▇█"
"""Share of a node in use; distinguished without colour."""
COLOURS = ("#4d7fc4", "#5c9bd1", "#87b7d9", "#c9c69a", "#e5ad4e", "#d9772f")


class TopRow(NamedTuple):
    """A row of a table. key: what it is about. cells: texts. values: what cells are sorted by."""

    key: str
    cells: tuple[str, ...]
    values: tuple[Any, ...]


class TopTable(NamedTuple):
    """columns: title and whether it is a number. rows: makes all of them."""

    columns: tuple[tuple[str, bool], ...]
    rows: Callable[[PageState, str], Iterable[TopRow]]


def age_text(seconds: float | None) -> str:
    """An age as kubectl prints it; "" for none."""
    return "" if seconds is None else human_duration(max(0.0, seconds))


def state_text(flags: int) -> str:
    """The state of a node as `kubectl get nodes` prints it."""
    parts = ["NotReady" if flags & NOT_READY else "Ready"]
    parts += ["SchedulingDisabled"] * bool(flags & CORDONED) + ["Tainted"] * bool(flags & TAINTED)
    return ",".join(parts)


def node_rows(state: PageState, resource: str) -> Iterable[TopRow]:
    """A row per node."""
    shares = state.share(resource)
    empty = np.zeros(len(state.names))
    used = state.nodes.get(f"requested:{resource}", empty)
    offered = state.nodes.get(f"allocatable:{resource}", empty)
    pods, flags = state.nodes.get("requested:pods", empty), state.nodes.get("flags", empty)
    zones, zone = state.groups.get(ZONE, [""]), state.nodes.get(f"group:{ZONE}", empty)
    for row, name in enumerate(state.names):
        share = float(shares[row])
        amounts = [format_quantity(resource, int(one[row])) for one in (used, offered)]
        where, what = zones[int(zone[row])], state_text(int(flags[row]))
        text = "" if np.isnan(share) else f"{int(share * 100 + 1e-9)}%"
        cells = (name, what, text, *amounts, f"{int(pods[row])}", where)
        values = (name, what, -1.0 if np.isnan(share) else share, used[row], offered[row])
        yield TopRow(name, cells, (*values, pods[row], where))


def pending_rows(state: PageState, _: str) -> Iterable[TopRow]:
    """A row per pending pod."""
    return (pending_row(state, row, state.columns, state.reason) for row in state.pending.values())


def pending_row(
    state: PageState, row: Sequence[Any], columns: dict[str, int], reason_of: Callable[[int], str]
) -> TopRow:
    """A pending pod. columns: place of each value in the row."""
    value = {name: row[place] for name, place in columns.items()}
    waits = (state.time - value["since"]) / 1000
    next_try = value["nextTry"]
    due = "" if next_try is None else f"in {age_text((next_try - state.time) / 1000)}"
    reason = reason_of(value["reason"])
    position = value["position"]
    place = value["place"] if position is None else f"{value['place']} {position}"
    cells = (
        value["pod"], reason, age_text(waits), f"{value['gpus']:g}" if value["gpus"] else "",
        str(value["priority"]), str(value["tries"]), due, place, value["queue"], value["gang"],
    )  # fmt: skip
    keys = (value["pod"], reason, waits, value["gpus"], value["priority"], value["tries"])
    return TopRow(value["pod"], cells, (*keys, next_try or 0, place, value["queue"], value["gang"]))


def queue_rows(state: PageState, resource: str) -> Iterable[TopRow]:
    """A row per queue, in amounts of one resource."""
    for scheduler in state.queues.get("schedulers", ()):
        for queue in scheduler["queues"]:
            fields = ("guarantee", "deserved", "allocated", "borrowed", "lent", "pending")
            amounts = [(queue.get(field) or {}).get(resource) for field in fields]
            texts = ["" if one is None else amount_text(resource, one) for one in amounts]
            counts = queue.get("podsPlaced", 0), queue.get("podsPending", 0)
            name, weight = queue["name"], queue.get("weight") or 0
            cells = (name, f"{weight}", *texts, *(f"{one}" for one in counts))
            yield TopRow(name, cells, (name, weight, *(one or 0.0 for one in amounts), *counts))


def amount_text(resource: str, amount: float) -> str:
    """An amount of a queue, which is in cores, bytes or units."""
    # Of Kueue as "cpu in FLAVOR" where several flavors have it.
    base = resource.partition(" in ")[0]
    return format_quantity(base, round(amount * 1000 if base == "cpu" else amount))


def decision_rows(state: PageState, _: str) -> Iterable[TopRow]:
    """A row per decision, newest first."""
    for one in reversed(state.decisions):
        age = (state.time - one["time"]) / 1000
        feasible = "" if one["feasible"] is None else f"{one['feasible']} of {one['evaluated']}"
        took = "" if one["microseconds"] is None else f"{one['microseconds']:.0f}"
        cells = (
            age_text(age), one["outcome"], one["pod"], one["node"], feasible, took,
            one["scheduler"], one.get("preemptor") or one["message"],
        )  # fmt: skip
        values = (age, one["outcome"], one["pod"], one["node"], one["feasible"] or 0)
        more = (one["microseconds"] or 0.0, one["scheduler"], cells[-1])
        yield TopRow(one["pod"], cells, (*values, *more))


def _columns(titles: str) -> tuple[tuple[str, bool], ...]:
    """Titles, `#` before those of numbers."""
    return tuple((one.removeprefix("#"), one.startswith("#")) for one in titles.split("|"))


TABLES = {
    "nodes": TopTable(_columns("NAME|STATUS|#SHARE|#REQUESTED|#ALLOCATABLE|#PODS|ZONE"), node_rows),
    "pending": TopTable(
        _columns("POD|REASON|#WAITS|#GPUS|#PRIORITY|#TRIES|NEXT TRY|PLACE|QUEUE|GANG"), pending_rows
    ),
    "queues": TopTable(
        _columns(
            "QUEUE|#WEIGHT|#GUARANTEE|#DESERVED|#ALLOCATED|#BORROWED|#LENT|#PENDING|#PODS|#WAITING"
        ),
        queue_rows,
    ),
    "decisions": TopTable(
        _columns("#AGE|OUTCOME|POD|NODE|#FEASIBLE|#µs|SCHEDULER|MESSAGE"), decision_rows
    ),
}
"""Screen -> its table."""


def matching(rows: Iterable[TopRow], text: str) -> list[TopRow]:
    """Rows of which some cell has each word, in any case of letters."""
    words = text.casefold().split()
    if not words:
        return list(rows)
    return [one for one in rows if all(word in " ".join(one.cells).casefold() for word in words)]


def in_order(rows: list[TopRow], column: int | None, *, is_down: bool) -> list[TopRow]:
    """Rows by a column; None: as they are."""
    if column is None:
        return rows
    return sorted(rows, key=lambda one: one.values[column], reverse=is_down)


def node_map(state: PageState, resource: str, width: int, height: int) -> Text:
    """The nodes, a character each, by zone; as many as there is room for, and how many are left
    out."""
    shares, flags = state.share(resource), state.nodes.get("flags", np.zeros(len(state.names)))
    zones, zone = state.groups.get(ZONE, [""]), state.nodes.get(f"group:{ZONE}")
    found, lines, n_listed = Text(), 0, 0
    for number, title in sorted(enumerate(zones), key=lambda one: one[1]):
        rows = np.arange(len(shares)) if zone is None else np.flatnonzero(zone == number)
        if not len(rows):
            continue
        label = f"{title or 'nodes'} ({len(rows)}) "[: width // 2]
        room = max(0, height - lines) * width - len(label)
        listed = rows[: max(0, room)]
        if not len(listed):
            break
        found.append(label, style="dim")
        for row in listed:
            found.append(*_cell(float(shares[row]), int(flags[row])))
        found.append("\n")
        n_listed += len(listed)
        lines += -(-(len(label) + len(listed)) // width)
    if n_listed < len(state.names):
        found.append(f"and {len(state.names) - n_listed:,} more nodes", style="dim")
    return found


def _cell(share: float, flags: int) -> tuple[str, str]:
    """Character and colour of a node: x is not ready, ! is cordoned."""
    if flags & NOT_READY:
        return "x", "bold red"
    if flags & CORDONED:
        return "!", "bold yellow"
    if np.isnan(share):
        return " ", ""
    part = min(1.0, max(0.0, share))
    return LEVELS[round(part * (len(LEVELS) - 1))], COLOURS[
        min(len(COLOURS) - 1, int(part * len(COLOURS)))
    ]


def status_text(state: PageState, problem: str, url: str) -> Text:
    """The line above all."""
    status = state.status
    if problem or not status:
        return Text(problem or f"connecting to {url}", style="bold red" if problem else "dim")
    pending = sum(status.get("pending", {}).values())
    is_good = status.get("healthy", True)
    found = Text()
    found.append("healthy" if is_good else "not ready", style="green" if is_good else "bold red")
    found.append(f"  {status.get('boundPerSecond') or 0:.1f} bound/s  {pending:,} pending")
    if status.get("gpusWaiting"):
        found.append(f", {status['gpusWaiting']:g} GPUs")
    found.append(f"  {status.get('nodes', 0):,} nodes, {status.get('pods', 0):,} pods")
    longest = status.get("longestWait")
    if longest:
        waited = age_text((state.time - longest["since"]) / 1000)
        found.append(f"  longest wait {waited}: {longest['pod']}")
    if status.get("holder"):
        found.append(f"  leader {status['holder']}", style="dim")
    return found


def why_text(tree: Tree) -> Text:
    """Why a pod is where it is."""
    found = Text()
    where = f" on {tree['node']}" if tree.get("node") else ""
    found.append(f"{tree['pod']}  {tree['state']}{where}\n", style="bold")
    if tree.get("message"):
        found.append(f"{tree['message']}\n")
    for change in (tree.get("changes") or [])[:3]:
        found.append(f"helps: {change['text']}\n", style="green")
    found.append(f"\nfits on {tree.get('fitting', 0):,} of {tree.get('nodes', 0):,} nodes\n")
    for rule in tree.get("rules", []):
        have = rule.get("have")
        need = (
            f"  needs {rule['need']}, there are {have['least']} to {have['most']}" if have else ""
        )
        found.append(
            f"{rule['first']:>7,} of {rule['nodes']:,}  {rule['rule']}: {rule['reason']}{need}\n"
        )
        for example in rule["examples"][:2]:
            details = "; ".join(example["details"])
            line = f"{example['node']}: {details}" if details else example["node"]
            found.append(f"{'':>9}{line}\n", style="dim")
    for score in tree.get("scores") or ():
        finals = " ".join(f"{name}={one['final']}" for name, one in score["plugins"].items())
        found.append(f"score {score['total']:>7}  {score['name']}  {finals}\n")
    gang = tree.get("gang")
    if gang:
        counts = f"minimum {gang['min']}, running {gang['running']}, pending {gang['pending']}"
        found.append(f"gang {gang['gang']} of queue {gang['queue']}: {counts}\n")
    for text, count in _tries(tree.get("attempts", ()))[:5]:
        times = f", {count} times" if count > 1 else ""
        found.append(f"tried{times}: {text}\n", style="dim")
    return found


def _tries(attempts: Iterable[Tree]) -> list[tuple[str, int]]:
    """Tries, newest first: those in a row with the same answer are one."""
    texts = (
        " ".join(filter(None, (one["outcome"], one.get("node", ""), one["message"])))
        for one in attempts
    )
    return [(text, sum(1 for _ in same)) for text, same in groupby(texts)]


def node_text(tree: Tree) -> Text:
    """One node with its amounts and pods."""
    found = Text()
    state = "Ready" if tree["ready"] else "NotReady"
    cordoned = ",SchedulingDisabled" if tree["unschedulable"] else ""
    found.append(f"{tree['name']}  {state}{cordoned}\n", style="bold")
    for taint in tree["taints"]:
        found.append(f"taint {taint['key']}={taint.get('value', '')}:{taint['effect']}\n")
    for one in tree["resources"]:
        name = one["name"]
        used, offered = (
            format_quantity(name, int(one[key])) for key in ("requested", "allocatable")
        )
        found.append(f"{name:<28} {used:>12} of {offered}\n")
    for card in tree.get("cards", []):
        found.append(f"card {card['index']}: {card['used'] / 10:g}%\n")
    found.append(f"\n{len(tree['pods']):,} pods\n", style="bold")
    for pod in tree["pods"]:
        amounts = ", ".join(
            f"{key} {format_quantity(key, int(v))}" for key, v in pod["requests"].items()
        )
        found.append(f"{pod['pod']:<44} {pod.get('phase', ''):<10} {amounts}\n")
    return found
