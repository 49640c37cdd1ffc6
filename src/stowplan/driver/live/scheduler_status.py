"""Status of a live scheduler, as trees for `stowplan status` and the status server."""

from __future__ import annotations

import json
import os
import tempfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stowplan._version import __version__
from stowplan.batch.queue_models.model_decider import ModelDecider
from stowplan.driver.clocks import monotonic_ns, request_time
from stowplan.driver.live.exposition import pending_pods
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.tree import Tree

if TYPE_CHECKING:
    from stowplan.driver.live.scheduler_server import SchedulerServer


REASONS_MAX = 20
"""Jobs whose reason is listed."""
HUNG_AFTER_S = 60.0
"""A loop without an iteration for this long counts as stuck."""


def is_alive(server: SchedulerServer) -> bool:
    """True while the scheduling loop iterates."""
    return monotonic_ns() - server.heartbeat_at < HUNG_AFTER_S * SECOND


def unready_reasons(server: SchedulerServer) -> list[str]:
    """Why the scheduler is not ready to schedule (leadership aside)."""
    missing = [] if is_alive(server) else ["scheduling loop is stuck"]
    informers = server.informers
    if informers is None:
        return [*missing, "informers have not started"]
    return missing + [f"informer not synced: {what}" for what in informers.unsynced()]


def status_summary(server: SchedulerServer) -> Tree:
    """The tree that `stowplan status` shows."""
    election_config = server.options.election_config
    api_dispatcher = server.api_dispatcher
    informers = server.informers
    metrics_recorder = server.metrics_recorder
    tree: Tree = {
        "version": __version__,
        "server": server.options.client_config.server,
        "schedulerNames": list(server.scheduler_names()),
        "leader": {
            "leads": server.leadership.leads,
            "term": server.leadership.term,
            "holder": server.leadership.leader,
            "lease": ""
            if election_config is None
            else f"{election_config.namespace}/{election_config.name}",
        },
        "synced": server.is_synced,
        "pending": pending_pods(server),
        "nodes": server.scheduler.cache.nodes.n_nodes,
        "assumed": len(server.scheduler.cache.assumed()),
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
            "eventsWaiting": 0 if api_dispatcher is None else len(api_dispatcher.events),
        },
        "followed": [] if informers is None else [_informer(one) for one in informers.informers],
    }
    for lane in server.scheduler.lanes.batch:
        tree["sessions"] = {"held": lane.number, "waiting": lane.n_waiting}
        if isinstance(lane.decider, ModelDecider):
            reasons = lane.decider.each_waiting_reason()
            tree["sessions"]["reasons"] = dict(islice(reasons, REASONS_MAX))
    groups = server.scheduler.pod_groups
    if groups is not None:
        tree["podGroups"] = {
            "held": sum(1 for _ in groups),
            "pending": sum(bool(one.unscheduled) for one in groups.values()),
            "waiting": len(server.scheduler.waiting_pods),
        }
    if server.comparer is not None:
        tree["comparison"] = dict(server.comparer.counts)
    recorder = server.options.recorder
    if recorder is not None:
        tree["recording"] = {
            "file": str(recorder.options.path),
            "calls": recorder.n_calls,
            "bytes": recorder.n_bytes,
            "failure": recorder.failure,
        }
    tree["findings"] = msgspec.to_builtins(server.fairness_watch.findings(monotonic_ns()))
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


def write_state_dump(server: SchedulerServer) -> Path:
    """Write a dump of pods and nodes to a file that only its owner can read; raises OSError."""
    scheduler = server.scheduler
    tree = status_summary(server)
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
