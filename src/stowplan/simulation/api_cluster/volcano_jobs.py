"""Jobs of Volcano in a replay by its sessions: its controllers run there, as on `stowplan up`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.config.queue_models.queue_model_choice import VOLCANO
from stowplan.controllers.volcano.volcano_kinds import BATCH
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.objects.encoding.tree import Tree

VOLCANO_JOB = f"Job.{BATCH}"


def with_volcano_jobs(cluster: Cluster, deciders: Deciders) -> Cluster:
    """A cluster whose Jobs of Volcano are created as they are, where Volcano's sessions decide;
    reading has made pods and groups of them."""
    plan = None if deciders.batch is None else deciders.batch.queue_model
    is_volcano = plan is not None and plan.model == VOLCANO and deciders.kueue is None
    if not (is_volcano and cluster.volcano_jobs):
        return cluster
    return replace(
        cluster,
        manifests=[*cluster.manifests, *cluster.volcano_jobs],
        notes=[note for note in cluster.notes if not note.startswith(VOLCANO_JOB)],
    )


def is_volcano_job(tree: Tree) -> bool:
    """True for a Job of Volcano as it was read."""
    return tree.get("kind") == "Job" and str(tree.get("apiVersion", "")).startswith(f"{BATCH}/")


def waiting_notes(groups: Iterable[Tree], reasons: Mapping[str, str]) -> Iterator[str]:
    """How many Jobs wait without pods at the end, since their group is not admitted, and why.

    groups: all PodGroups. reasons: PodGroup -> why it waits.
    """
    waiting = [
        group
        for group in groups
        if ((group.get("status") or {}).get("phase") or "Pending") == "Pending"
        and any(owner.get("kind") == "Job" for owner in _owners(group))
    ]
    if not waiting:
        return
    yield f"Volcano: {count_of(len(waiting), 'job')} not admitted, without pods"
    for group in waiting:
        meta = group["metadata"]
        reason = reasons.get(f"{meta['namespace']}/{meta['name']}", "no session has looked at it")
        yield f"{_owners(group)[0]['name']} in {meta['namespace']}: {reason}"


def _owners(group: Tree) -> list[Tree]:
    return list(group["metadata"].get("ownerReferences") or ())
