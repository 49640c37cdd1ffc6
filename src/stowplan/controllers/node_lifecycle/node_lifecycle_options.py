"""Options of the node lifecycle controller, named as kube-controller-manager's flags.

Source: kube-controller-manager v1.36, cmd/kube-controller-manager/app/options.
"""

from __future__ import annotations

import msgspec


class NodeLifecycleOptions(msgspec.Struct, frozen=True):
    """Grace periods in seconds, and how fast nodes are tainted NoExecute.

    node_startup_grace_period_s, node_monitor_grace_period_s: time without a heartbeat after which
    a node is unreachable, before and after its first status. node_eviction_rate: nodes of a zone
    that are tainted per second. secondary_node_eviction_rate: the same while the zone is unhealthy;
    0 in zones of at most large_cluster_size_threshold nodes. unhealthy_zone_threshold: share of
    nodes, of at least three, that are not ready in an unhealthy zone.
    """

    node_startup_grace_period_s: float = 60.0
    node_monitor_grace_period_s: float = 50.0
    node_eviction_rate: float = 0.1
    secondary_node_eviction_rate: float = 0.01
    large_cluster_size_threshold: int = 50
    unhealthy_zone_threshold: float = 0.55
