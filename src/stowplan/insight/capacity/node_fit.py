"""The cheapest nodes on which a workload runs: found by deciding, with a proven lower bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stowplan.columns.nodeinfo import allocatable_amounts
from stowplan.config.queue_models.scheduler_hints import no_profile
from stowplan.cycle.attempt import filter_pod
from stowplan.inputs.counts import count_of
from stowplan.insight.capacity.bounds import Demand, demand_of, is_impossible, lower_bound
from stowplan.insight.capacity.pools import PricedPool
from stowplan.insight.cluster_copy import ClusterCopy
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.encoding.html_summary import html_summary, html_table, html_text
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import fit_requests

DECISIONS_MAX = 40_000
"""Pods decided in one search."""
MIXES_MAX = 20_000
"""Mixes that are looked at in one search."""
NODES_MAX = 5_000
EPSILON = 1e-9

Mix = tuple[int, ...]
"""Numbers of nodes, one per pool."""
CopyOf = Callable[[Sequence[Node], Sequence[Pod]], ClusterCopy]
"""A copy with these nodes and pods bound to them."""


class PoolCount(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes of one pool. price: of one node. pods: of the workload placed there."""

    pool: str
    nodes: int
    price: float
    pods: int


class NodeFit(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The cheapest nodes found on which a workload runs.

    cost: price of all nodes; without prices their number. lower_bound: no scheduler can run the
    workload on nodes of a lower cost. is_least: every cheaper mix of nodes was proven too small or
    was decided and left a pod out. unplaceable: pod -> why no node of any pool takes it; then there
    are no pools.
    """

    api_version: str
    pods: int
    nodes: int
    cost: float
    lower_bound: float
    is_least: bool
    pools: tuple[PoolCount, ...]
    unplaceable: dict[str, str] = {}
    mixes_decided: int = 0
    not_searched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if self.unplaceable:
            return f"NodeFit({count_of(len(self.unplaceable), 'pod')} that no pool takes)"
        bound = "the least" if self.is_least else f"at least {self.lower_bound:g}"
        return f"NodeFit({count_of(self.nodes, 'node')}, cost {self.cost:g}, {bound})"

    def _repr_html_(self) -> str:
        """For notebooks: nodes per pool, and pods that no pool takes."""
        pools = ((one.pool, one.nodes, f"{one.price:g}", one.pods) for one in self.pools)
        return html_summary(
            repr(self),
            html_table(("Pool", "Nodes", "Price", "Pods"), pools),
            html_table(("Pod that does not fit", "Reason"), self.unplaceable.items()),
            *map(html_text, (*self.not_searched, *self.notes)),
        )

    @property
    def gap(self) -> float:
        """How far the cost can be from the least: 0.05 is 5 %."""
        return self.cost / self.lower_bound - 1 if self.lower_bound else 0.0

    def to_frame(self, library: str = "") -> Any:
        """One row per pool as a DataFrame of pandas or polars; see `to_dataframe`."""
        names = ("pool", "nodes", "price", "pods")
        return to_dataframe(
            {name: [getattr(one, name) for one in self.pools] for name in names}, library
        )


class FoundFit(NamedTuple):
    """Outcome of a search. homes: pool of each pod, by index. unplaceable: see `NodeFit`."""

    mix: Mix
    cost: float
    bound: float
    is_least: bool
    homes: list[int]
    n_mixes: int
    not_searched: tuple[str, ...] = ()
    unplaceable: dict[str, str] = {}


class FitSearch:
    """One search. pods: in the order in which they are decided."""

    def __init__(
        self, pods: Sequence[Pod], pools: Sequence[PricedPool], copy_of: CopyOf, decisions: int
    ) -> None:
        self.pods = pods
        self.pools = pools
        self.copy_of = copy_of
        self.decisions_left = decisions
        self.n_mixes = 0
        self.prices = [pool.price for pool in pools]
        self._known: dict[Mix, list[int]] = {}
        self._class_of = _classes(pods)
        self.samples = [pods[self._class_of.index(k)] for k in range(max(self._class_of) + 1)]
        self.unplaceable: dict[str, str] = {}
        self.demand = self._demand()

    # The demand, for bounds.

    def _demand(self) -> Demand:
        names = sorted({name for pod in self.samples for name in fit_requests(pod)})
        counts = Counter(self._class_of)
        n_classes, n_pools = len(self.samples), len(self.pools)
        offered = np.zeros((n_pools, len(names) + 1))
        fits = np.zeros((n_classes, n_pools), dtype=bool)
        alone = np.zeros((n_classes, n_pools))
        refusals: dict[int, set[str]] = {}
        for p, pool in enumerate(self.pools):
            for template in pool.templates:
                free = _free(template, pool)
                row = [free.get(name, 0) for name in names] + [free.get("pods", 0)]
                offered[p] = np.maximum(offered[p], row)
                for k, pod in enumerate(self.samples):
                    n_alone, refusal = self._alone(pod, counts[k], pool, template)
                    fits[k, p] |= refusal == ""
                    alone[k, p] = max(alone[k, p], n_alone)
                    refusals.setdefault(k, set()).add(refusal)
        for k, pod in enumerate(self.samples):
            if not fits[k].any():
                self.unplaceable[pod.key] = "; ".join(sorted(refusals[k]))
        requests = np.array(
            [[fit_requests(pod).get(name, 0) for name in names] + [1] for pod in self.samples],
            dtype=float,
        )
        return demand_of(
            [counts[k] for k in range(n_classes)], requests, offered, alone, fits, self.prices
        )

    def _alone(self, pod: Pod, count: int, pool: PricedPool, template: Node) -> tuple[float, str]:
        """(How many pods of a class run on an empty node, 0 for unknown; why none does, "" where
        that may be because other pods are not there)."""
        copy = self.copy_of([template], pool.daemon_pods(template))
        copies = [_numbered(pod, number) for number in range(min(count, 256))]
        n_placed = sum(1 for one in copy.place(copies, stops=True) if one.node_name)
        if n_placed:
            is_whole = n_placed == len(copies)
            return (0.0 if is_whole else float(n_placed)), ""
        framework = copy.frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            return 0.0, no_profile(pod.spec.scheduler_name)
        attempt = filter_pod(pod, copy.snapshot, framework)
        if any(
            name in framework.members and not framework.members[name].row_local
            for name in attempt.diagnosis.plugins
        ):
            return 0.0, ""
        return 0.0, "; ".join(attempt.diagnosis.reasons())

    # Trials.

    def runs_on(self, mix: Mix) -> bool:
        """True when the scheduler places all pods on these nodes; False as well when no decisions
        are left."""
        return -1 not in self.homes_on(mix)

    def homes_on(self, mix: Mix) -> list[int]:
        """Pool of each pod on these nodes, decided once; -1 from the first pod on that no node
        takes."""
        if mix not in self._known:
            if self.decisions_left <= 0:
                return [-1] * len(self.pods)
            self._known[mix] = self._place(mix)
            self.n_mixes += 1
        return self._known[mix]

    def _place(self, mix: Mix) -> list[int]:
        """See `homes_on`."""
        nodes: list[Node] = []
        daemons: list[Pod] = []
        pool_of: dict[str, int] = {"": -1}
        for p, count in enumerate(mix):
            for node in self.pools[p].nodes(count):
                nodes.append(node)
                daemons += self.pools[p].daemon_pods(node)
                pool_of[node.name] = p
        copy = self.copy_of(nodes, daemons)
        made = copy.place(self.pods, stops=True)
        self.decisions_left -= max(copy.n_decided, 1)
        homes = [pool_of[one.node_name] for one in made]
        return homes + [-1] * (len(self.pods) - len(homes))

    def cost(self, mix: Sequence[int]) -> float:
        """Price of these nodes."""
        return float(sum(n * price for n, price in zip(mix, self.prices, strict=True)))

    # The search.

    def run(self) -> FoundFit:
        """Find a mix that runs, make it cheaper, then try all cheaper ones in order of cost."""
        if self.unplaceable:
            return FoundFit((), 0.0, 0.0, False, [], 0, (), self.unplaceable)
        bound = lower_bound(self.demand)
        best = self._first(bound.values)
        if best is None:
            lines = (f"mixes of more than {NODES_MAX:,} nodes, or decisions beyond the limit",)
            return FoundFit((), 0.0, bound.price, False, [], self.n_mixes, lines)
        best = self._without_spare(best)
        return self._cheaper(best, bound.price)

    def _first(self, values: Any) -> Mix | None:
        """A mix on which the workload runs: packed by what each pod costs at least, then grown."""
        candidates = [self._packed(values)]
        for p in range(len(self.pools)):
            if self.demand.fits[:, p].all():
                one_pool = self.demand._replace(
                    fits=self.demand.fits & (np.arange(len(self.pools)) == p)[None]
                )
                least = lower_bound(one_pool, 100).price / max(self.prices[p], EPSILON)
                candidates.append(_unit(p, len(self.pools), max(int(np.ceil(least - 1e-6)), 1)))
        grown = [mix for mix in map(self._grown, dict.fromkeys(candidates)) if mix is not None]
        return min(grown, key=self.cost, default=None)

    def _packed(self, values: Any) -> Mix:
        """Numbers of nodes by filling one node after another, each of the pool that holds most
        value for its price."""
        left = self.demand.counts.copy()
        uses = self.demand.uses
        mix = [0] * len(self.pools)
        by_value = np.argsort(-values)
        while left.any() and sum(mix) < NODES_MAX:
            best, chosen = -1.0, None
            for p in range(len(self.pools)):
                filled = _filled(left, uses[:, p], self.demand.fits[:, p], by_value)
                value = float((filled * values).sum()) / max(self.prices[p], EPSILON)
                if filled.any() and value > best:
                    best, chosen = value, (p, filled)
            if chosen is None:
                break
            p, filled = chosen
            used = filled > 0
            times = max(int((left[used] // filled[used]).min()), 1)
            left = np.maximum(left - times * filled, 0)
            mix[p] += times
        return tuple(mix)

    def _grown(self, mix: Mix) -> Mix | None:
        """The mix with as many more nodes as the refused pods need."""
        step = 1
        while sum(mix) <= NODES_MAX and self.decisions_left > 0:
            if self.runs_on(mix):
                return mix
            refused = self._class_of[self.homes_on(mix).index(-1)]
            there = [p for p in range(len(mix)) if self.demand.fits[refused, p]]
            kept = [p for p in there if mix[p]] or there
            p = min(kept, key=lambda p: self.prices[p])
            mix = tuple(n + step * (i == p) for i, n in enumerate(mix))
            step = max(step, sum(mix) // 20)
        return None

    def _without_spare(self, mix: Mix) -> Mix:
        """The mix without nodes that it can do without: halves of a pool first, then single
        nodes, dear ones first."""
        for p in sorted(range(len(mix)), key=lambda p: -self.prices[p]):
            step = max(mix[p] // 4, 1)
            while step and self.decisions_left > 0:
                fewer: Mix = tuple(n - step * (i == p) for i, n in enumerate(mix))
                if fewer[p] >= 0 and any(fewer) and self.runs_on(fewer):
                    mix = fewer
                else:
                    step //= 2
        return mix

    def _cheaper(self, best: Mix, bound: float) -> FoundFit:
        """The cheapest mix that runs, and the cost below which none can: of the mixes that are not
        proven too small the cheapest."""
        proven: float | None = None
        not_searched: tuple[str, ...] = ()
        mixes, is_cut = self._mixes(bound - 1e-6, self.cost(best) - EPSILON)
        if is_cut:
            not_searched = (f"mixes beyond the first {MIXES_MAX:,}",)
        for at, (cost, mix) in enumerate(mixes):
            if is_impossible(self.demand, mix):
                continue
            proven = cost if proven is None else proven
            if self.decisions_left <= 0:
                n_left = len(mixes) - at
                not_searched = (*not_searched, f"{n_left:,} cheaper mixes of nodes")
                break
            if self.runs_on(mix):
                best = mix
                break
        cost = self.cost(best)
        if proven is None:
            proven = max(bound, 0.0) if is_cut else cost
        homes = self.homes_on(best)
        least = min(proven, cost)
        return FoundFit(best, cost, least, not not_searched, homes, self.n_mixes, not_searched)

    def _mixes(self, least: float, below: float) -> tuple[list[tuple[float, Mix]], bool]:
        """All mixes of a cost in [least, below), cheapest first; whether some were left out."""
        found: list[tuple[float, Mix]] = []
        for mix in _combinations(self.prices, least, below):
            found.append((self.cost(mix), mix))
            if len(found) > MIXES_MAX:
                return sorted(found[:MIXES_MAX]), True
        return sorted(found), False


def _combinations(prices: Sequence[float], least: float, below: float) -> Iterator[Mix]:
    """Numbers of nodes per pool with a price in [least, below)."""
    price, rest = prices[0], prices[1:]
    most = min(int(below / price) + 1, NODES_MAX) if price > 0 else 0
    for n in range(most + 1):
        left = below - n * price
        if left <= 0:
            return
        if not rest:
            if n * price >= least:
                yield (n,)
            continue
        for others in _combinations(rest, least - n * price, left):
            yield (n, *others)


def _filled(left: Any, uses: Any, fits: Any, order: Any) -> Any:
    """Pods of each class on one node: as many of each, in order, as its limits allow."""
    filled = np.zeros_like(left)
    room = np.ones(uses.shape[1])
    for k in order:
        if not fits[k] or left[k] <= 0:
            continue
        used = uses[k] > 0
        each = np.floor((room[used] / uses[k][used]).min() + EPSILON) if used.any() else left[k]
        filled[k] = min(max(float(each), 0.0), float(left[k]))
        room = room - filled[k] * uses[k]
    return filled


def _classes(pods: Sequence[Pod]) -> list[int]:
    """Class number of each pod: pods that differ in their names only have the same."""
    numbers: dict[object, int] = {}
    specs: dict[object, int] = {}
    found = []
    for pod in pods:
        spec = specs.setdefault(id(pod.spec), len(specs))
        key = (spec, pod.namespace, tuple(sorted(pod.labels.items())))
        found.append(numbers.setdefault(key, len(numbers)))
    return found


def _numbered(pod: Pod, number: int) -> Pod:
    meta = msgspec.structs.replace(
        pod.metadata, name=f"{pod.name}-{number}", uid=f"{pod.key}-{number}"
    )
    return msgspec.structs.replace(pod, metadata=meta)


def _unit(position: int, size: int, value: int) -> Mix:
    return tuple(value * (i == position) for i in range(size))


def _free(template: Node, pool: PricedPool) -> dict[str, int]:
    """What a new node of a pool has left beside its daemons, `pods` among it."""
    free = dict(allocatable_amounts(template))
    free["pods"] = free.get("pods", 0) - len(pool.daemons)
    for pod in pool.daemons:
        for name, amount in fit_requests(pod).items():
            free[name] = free.get(name, 0) - amount
    return {name: max(amount, 0) for name, amount in free.items()}
