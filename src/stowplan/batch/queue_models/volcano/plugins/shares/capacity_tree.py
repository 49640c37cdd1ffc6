"""Queue trees of capacity: attributes of queues with parents.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/capacity/capacity.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.plugins.shares.queue_attributes import QueueAttributes
from stowplan.batch.queue_models.volcano.queue_books import sums_by_queue
from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount, maximum
from stowplan.batch.queue_models.volcano.volcano_defects import USED_UP_SCALAR
from stowplan.batch.queue_models.volcano.volcano_queue import ROOT
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession

Tree = dict[str, QueueAttributes]


def queue_tree(session: VolcanoSession) -> tuple[Tree, str]:
    """Attributes of all queues, and why they cannot be used; "" if they can."""
    tree: Tree = {}
    problem = ""
    for name in session.queues:
        problem = _enter(session, tree, name, ())
        if problem:
            return tree, problem
    jobs = []
    for job in session.jobs.values():
        attributes = tree.get(job.queue)
        if attributes is None:
            continue
        if attributes.children:
            problem = f"queue {job.queue!r} has children and the job {job.uid}"
            break
        jobs.append(job)
    for name, book in sums_by_queue(jobs, session.cluster.books).items():
        tree[name].add(book)
        for above in tree[name].ancestors:
            tree[above].add(book)
    if problem:
        return tree, problem
    root = tree.get(ROOT)
    if root is None:
        return tree, f"there is no queue {ROOT!r}"
    if root.capability.is_empty:
        root.capability = VolcanoAmount.unlimited(session.total.scalars or ())
    root.real_capability = root.capability
    _resolve(root, names_all=USED_UP_SCALAR in session.options.mends)
    return tree, ""


def _enter(session: VolcanoSession, tree: Tree, name: str, below: tuple[str, ...]) -> str:
    """Add a queue, and before it those above it."""
    if name in tree and name not in below:
        return ""
    if name in below:
        return f"cycle in the parents of queue {name!r}"
    queue = session.queues[name]
    attributes = tree[name] = QueueAttributes(queue, states_deserved=True)
    if name == ROOT:
        return ""
    parent = queue.queue.spec.parent or ROOT
    if parent not in session.queues:
        return f"the parent {parent!r} of queue {name!r} does not exist"
    problem = _enter(session, tree, parent, (*below, name))
    if not problem:
        tree[parent].children[name] = attributes
        attributes.ancestors = (*tree[parent].ancestors, parent)
    return problem


def _resolve(parent: QueueAttributes, *, names_all: bool) -> None:
    """Fill in what the children of a queue inherit, and their limits."""
    guarantees, deserved = VolcanoAmount(), VolcanoAmount()
    for child in parent.children.values():
        child.deserved = maximum(child.deserved, child.guarantee)
        deserved.add(child.deserved)
        guarantees.add(child.guarantee)
        limit, inherited = child.capability, parent.capability
        limit.cpu = limit.cpu if limit.cpu > 0 else inherited.cpu
        limit.memory = limit.memory if limit.memory > 0 else inherited.memory
        if inherited.scalars is not None:
            limit.scalars = {**inherited.scalars, **(limit.scalars or {})}
    if parent.name == ROOT:
        parent.guarantee, parent.deserved = guarantees, deserved
    for child in parent.children.values():
        rest = parent.real_capability.rest(guarantees, names_all=names_all)
        child.real_capability = rest.add(child.guarantee)
        child.real_capability.limit(child.capability, absent_is_unlimited=True)
    for child in parent.children.values():
        _resolve(child, names_all=names_all)


def ancestors_within(attributes: QueueAttributes, levels: int) -> dict[int, str]:
    """Queues above a queue: level (1 is the parent) -> name, up to a level."""
    names = attributes.ancestors
    return {level: names[-level] for level in range(1, min(levels, len(names)) + 1)}


def common_level(left: QueueAttributes, right: QueueAttributes) -> int:
    """Position of the last common queue in the paths of two queues; 0 also where there is none."""
    level = 0
    for i, (first, second) in enumerate(zip(left.ancestors, right.ancestors, strict=False)):
        if first != second:
            break
        level = i
    return level
