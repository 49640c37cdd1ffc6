"""Options about nodes that fail, with the names that kube-controller-manager has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from stowplan.cli.command import flag, grouped
from stowplan.cli.simulate_options import duration_callback

if TYPE_CHECKING:
    from stowplan.controllers.node_lifecycle.node_lifecycle_options import NodeLifecycleOptions

_FIELDS = {
    "node_startup_grace_period": "node_startup_grace_period_s",
    "node_monitor_grace_period": "node_monitor_grace_period_s",
    "node_eviction_rate": "node_eviction_rate",
    "secondary_node_eviction_rate": "secondary_node_eviction_rate",
    "large_cluster_size_threshold": "large_cluster_size_threshold",
    "unhealthy_zone_threshold": "unhealthy_zone_threshold",
}
"""Fields of `NodeLifecycleOptions` by option; what it imports is too much for a help text."""

_RATE = click.FloatRange(min=0, max=1e6)


def node_lifecycle_options(implies: str = "") -> Callable[[Any], Any]:
    """The decorator that gives a command these options. implies: the end of their help texts."""
    return grouped(
        flag(
            "--node-startup-grace-period",
            metavar="DURATION",
            callback=duration_callback,
            help="Time without a first heartbeat after which a node is marked unreachable.  "
            f"[default: 60s{implies}]",
        ),
        flag(
            "--node-monitor-grace-period",
            metavar="DURATION",
            callback=duration_callback,
            help="Time without a heartbeat after which a node is marked unreachable.  "
            f"[default: 50s{implies}]",
        ),
        flag(
            "--node-eviction-rate",
            metavar="RATE",
            type=_RATE,
            help="Nodes of a zone that are tainted NoExecute per second after they failed.  "
            f"[default: 0.1{implies}]",
        ),
        flag(
            "--secondary-node-eviction-rate",
            metavar="RATE",
            type=_RATE,
            help="The same while the zone is unhealthy; 0 in a zone that is not large.  "
            f"[default: 0.01{implies}]",
        ),
        flag(
            "--large-cluster-size-threshold",
            metavar="N",
            type=click.IntRange(min=0, max=2**31 - 1),
            help=f"A zone with more nodes than this is large.  [default: 50{implies}]",
        ),
        flag(
            "--unhealthy-zone-threshold",
            metavar="SHARE",
            type=click.FloatRange(min=0, max=1),
            help="Share of nodes that are not ready, at least 3 of them, from which a zone is "
            f"unhealthy.  [default: 0.55{implies}]",
        ),
    )


def take_node_lifecycle(given: dict[str, Any]) -> NodeLifecycleOptions | None:
    """Remove these options from all options of a command; None where none is given."""
    found = {field: given.pop(option) for option, field in _FIELDS.items()}
    chosen = {field: value for field, value in found.items() if value is not None}
    if not chosen:
        return None
    from stowplan.controllers.node_lifecycle.node_lifecycle_options import NodeLifecycleOptions

    return NodeLifecycleOptions(**chosen)
