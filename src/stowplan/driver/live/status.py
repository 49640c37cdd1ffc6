"""Standing: how a live scheduler is doing, as trees for people and programs."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stowplan._version import __version__
from stowplan.driver.clocks import monotonic_ns, request_time
from stowplan.driver.live.exposition import pending_pods
from stowplan.objects.encoding.duration import SECOND

if TYPE_CHECKING:
    from stowplan.driver.live.scheduler_server import SchedulerServer

Tree = dict[str, Any]

HUNG_AFTER_S = 60.0
"""A loop that has not gone round for so long is taken for stuck."""


def is_alive(live: SchedulerServer) -> bool:
    """True while the loop goes round."""
    return monotonic_ns() - live.heartbeat_at < HUNG_AFTER_S * SECOND


def unready_reasons(live: SchedulerServer) -> list[str]:
    """What is missing before pods can be decided here, should it be this one's turn."""
    missing = [] if is_alive(live) else ["the loop is stuck"]
    informers = live.informers
    if informers is None:
        return [*missing, "nothing is followed yet"]
    return missing + [f"not listed yet: {what}" for what in informers.unsynced()]


def status_summary(live: SchedulerServer) -> Tree:
    """What `stowplan status` shows."""
    election_config = live.options.election_config
    api_dispatcher = live.api_dispatcher
    informers = live.informers
    metrics_recorder = live.metrics_recorder
    tree: Tree = {
        "version": __version__,
        "server": live.options.client_config.server,
        "schedulerNames": list(live.machine_names()),
        "leader": {
            "leads": live.leadership.leads,
            "term": live.leadership.term,
            "holder": live.leadership.leader,
            "lease": ""
            if election_config is None
            else f"{election_config.namespace}/{election_config.name}",
        },
        "synced": live.is_synced,
        "pending": pending_pods(live),
        "nodes": live.scheduler.cache.nodes.n_nodes,
        "assumed": len(live.scheduler.cache.assumed()),
        "counts": {
            "events": metrics_recorder.n_events,
            "bound": metrics_recorder.n_bound,
            "refused": metrics_recorder.n_refused,
        },
        "rates": metrics_recorder.rates(),
        "writes": {
            "waiting": 0 if api_dispatcher is None else api_dispatcher.n_waiting,
            "underWay": 0 if api_dispatcher is None else api_dispatcher.n_busy,
            "dropped": 0 if api_dispatcher is None else api_dispatcher.n_dropped,
        },
        "followed": [] if informers is None else [_informer(one) for one in informers.informers],
    }
    sessions = live.scheduler.sessions
    if sessions is not None:
        tree["sessions"] = {"held": sessions.number, "waiting": sessions.decider.n_waiting}
    if live.comparer is not None:
        tree["shadow"] = dict(live.comparer.counts)
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


def write_state_dump(live: SchedulerServer) -> Path:
    """Write all that is known of pods and nodes into a file that only its owner may read; raises
    OSError."""
    scheduler = live.scheduler
    tree = status_summary(live)
    tree["at"] = request_time().micros
    tree["queue"] = [_entry(scheduler, entry) for entry in list(scheduler.queue)]
    tree["cache"] = {
        info.name: [one.pod.key for one in info.pods] for info in scheduler.cache.nodes.infos()
    }
    tree["assumedPods"] = sorted(scheduler.cache.assumed())
    handle, name = tempfile.mkstemp(prefix="stowplan-state-", suffix=".json")
    with os.fdopen(handle, "w") as file:
        json.dump(tree, file, indent=1)
    return Path(name)


def _entry(scheduler: Any, entry: Any) -> Tree:
    place = scheduler.queue.place_of(entry.key)
    return {
        "pod": entry.key,
        "place": str(getattr(place, "value", place)),
        "attempts": entry.attempts,
        "refusedBy": sorted(entry.refusers),
        "gatedBy": entry.gated_by,
    }
