"""Standing: how a live scheduler is doing, as trees for people and programs."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stowplan._version import __version__
from stowplan.client.backoff import SECOND
from stowplan.driver.clocks import moment, steady
from stowplan.driver.exposition import pending

if TYPE_CHECKING:
    from stowplan.driver.live import Live

Tree = dict[str, Any]

HUNG_S = 60.0
"""A loop that has not gone round for so long is taken for stuck."""


def is_alive(live: Live) -> bool:
    """True while the loop goes round."""
    return steady() - live.beat_at < HUNG_S * SECOND


def unready(live: Live) -> list[str]:
    """What is missing before pods can be decided here, should it be this one's turn."""
    missing = [] if is_alive(live) else ["the loop is stuck"]
    following = live.following
    if following is None:
        return [*missing, "nothing is followed yet"]
    return missing + [f"not listed yet: {what}" for what in following.waiting_for()]


def summary(live: Live) -> Tree:
    """What `stowplan status` shows."""
    terms = live.options.terms
    hands = live.hands
    following = live.following
    measures = live.measures
    tree: Tree = {
        "version": __version__,
        "server": live.options.connection.server,
        "schedulerNames": list(live.machine_names()),
        "leader": {
            "leads": live.leadership.leads,
            "term": live.leadership.term,
            "holder": live.leadership.leader,
            "lease": "" if terms is None else f"{terms.namespace}/{terms.name}",
        },
        "synced": live.is_synced,
        "pending": pending(live),
        "nodes": live.machine.cache.nodes.n_nodes,
        "assumed": len(live.machine.cache.assumed()),
        "counts": {
            "events": measures.n_events,
            "bound": measures.n_bound,
            "refused": measures.n_refused,
        },
        "rates": measures.rates(),
        "writes": {
            "waiting": 0 if hands is None else hands.n_waiting,
            "underWay": 0 if hands is None else hands.n_busy,
            "dropped": 0 if hands is None else hands.n_dropped,
        },
        "followed": [] if following is None else [_informer(one) for one in following.informers],
    }
    sessions = live.machine.sessions
    if sessions is not None:
        tree["sessions"] = {"held": sessions.number, "waiting": sessions.decider.n_waiting}
    if live.shadow is not None:
        tree["shadow"] = dict(live.shadow.counts)
    return tree


def _informer(informer: Any) -> Tree:
    tree: Tree = {
        "resource": informer.resource.title,
        "objects": len(informer),
        "events": informer.n_events,
        "lists": informer.n_lists,
    }
    if not informer.is_served:
        tree["served"] = False
    if informer.fault:
        tree["fault"] = informer.fault
    return tree


def dump(live: Live) -> Path:
    """Write all that is known of pods and nodes into a file that only its owner may read; raises
    OSError."""
    machine = live.machine
    tree = summary(live)
    tree["at"] = moment().micros
    tree["queue"] = [_entry(machine, entry) for entry in list(machine.queue)]
    tree["cache"] = {
        info.name: [one.pod.key for one in info.pods] for info in machine.cache.nodes.infos()
    }
    tree["assumedPods"] = sorted(machine.cache.assumed())
    handle, name = tempfile.mkstemp(prefix="stowplan-state-", suffix=".json")
    with os.fdopen(handle, "w") as file:
        json.dump(tree, file, indent=1)
    return Path(name)


def _entry(machine: Any, entry: Any) -> Tree:
    place = machine.queue.place_of(entry.key)
    return {
        "pod": entry.key,
        "place": str(getattr(place, "value", place)),
        "attempts": entry.attempts,
        "refusedBy": sorted(entry.refusers),
        "gatedBy": entry.gated_by,
    }
