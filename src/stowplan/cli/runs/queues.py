"""What `stowplan queues` does: read the cluster, compute shares or audit them, print them."""

from __future__ import annotations

from stowplan.assembly.deciders import Deciders
from stowplan.cli.options import TREES
from stowplan.cli.runs.cluster_source import ClusterSource, read_cluster_source
from stowplan.cli.runs.queue_models.unread_queues import report_unread_queues
from stowplan.cli.tables.console import print_names, print_tree, stdout_console
from stowplan.cli.tables.queue_reports.audit_table import print_audit
from stowplan.cli.tables.queues import print_shares
from stowplan.forecast.queue_reports.queue_audit import audit_queues
from stowplan.forecast.queue_shares import shares_of
from stowplan.simulation.session_runner import SessionRunner


def run_audit(source: ClusterSource, deciders: Deciders, output: str) -> int:
    """Print what is wrong with the queues; 1 if something can never be met."""
    if deciders.kueue is not None:
        # Imported here: most clusters have nothing of Kueue.
        from stowplan.cli.runs.kueue.kueue_reports import read_queued_cluster
        from stowplan.forecast.queue_reports.kueue_audit import audit_kueue

        audit = audit_kueue(read_queued_cluster(source, deciders), deciders.kueue)
    else:
        cluster = read_cluster_source(source, deciders, notes=True)
        audit = audit_queues(cluster, SessionRunner(cluster, deciders))
        report_unread_queues(source, cluster, deciders, is_empty=not audit.queues)
    if output in TREES:
        print_tree(audit, output)
    elif output == "name":
        named = [one for one in audit.findings if one.name]
        for kind in dict.fromkeys(one.kind for one in named):
            print_names(kind, dict.fromkeys(one.name for one in named if one.kind == kind))
    else:
        print_audit(audit, stdout_console())
    return 1 if audit.has_errors else 0


def run_queues(source: ClusterSource, deciders: Deciders, output: str) -> None:
    """Print the shares of the queues."""
    if deciders.kueue is not None:
        # Imported here: most clusters have nothing of Kueue.
        from stowplan.cli.runs.kueue.kueue_reports import run_kueue_queues

        run_kueue_queues(source, deciders, output)
        return
    cluster = read_cluster_source(source, deciders, notes=True)
    shares = shares_of(SessionRunner(cluster, deciders))
    report_unread_queues(source, cluster, deciders, is_empty=not shares.queues)
    if output in TREES:
        print_tree(shares, output)
    elif output == "name":
        print_names("queue", (queue.name for queue in shares.queues))
    else:
        print_shares(shares, stdout_console(), wide=output == "wide")
