"""One run of the published experiment: a workload fills the OpenB cluster under one policy.

Pods come one by one and are placed for good, or dropped. They are placed by the plugin GpuShare
through the engine that places runs of pods in a scheduler.

Source: "Beware of Fragmentation" (Weng et al., USENIX ATC 2023), and the scripts published with it.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stowplan.assembly import registered
from stowplan.columns.engine import card_arrays as ca
from stowplan.columns.nodetable import NodeTable, table_of
from stowplan.config import from_tree
from stowplan.cycle.engine import Engine, kernel_loading
from stowplan.experiments.gpu_sharing.openb_workload import Arrivals, OpenBWorkload
from stowplan.framework import FeatureGates, Framework, ObjectStore, Snapshot
from stowplan.objects.devices.gpu_cards import CARD_MILLI, INDEX_KEY, card_indices
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_choice import CardChoiceOptions
from stowplan.plugins.gpu_share.card_inventory import GpuCardInventory
from stowplan.plugins.gpu_share.card_ledger import CardLedger
from stowplan.plugins.gpu_share.policies import GpuPolicy
from stowplan.plugins.gpu_share.typical_pods import TypicalPodsOptions, typical_pods

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DECIMALS = {"alloc_pct": 2, "frag_pct_of_capacity": 2, "frag_pct_of_idle": 6}
"""The metrics of a run, in the order of the table, with the decimals that are published."""
N_COLUMNS = 131
"""Columns 0 to 130: percent of the cluster's milli that have arrived."""
PODS_PER_NODE = "1001"
BATCH = 256
"""Pods per call of the engine."""

SELECTIONS = {GpuPolicy.FGD: "FGDScore", GpuPolicy.RANDOM: "random"}
"""How the card for a part of one is chosen; for the other policies the one with the least left."""

TYPICAL = TypicalPodsOptions(involve_cpu_pods=True, popularity_threshold=95, increase_step=1)


class Fill(NamedTuple):
    """Outcome of each pod, in the order of arrival.

    rows: int64 (n_pods,), row of the node in the order of names, -1 for a dropped pod. given: int64
    (n_pods, n_cards + 1), how many cards, and which. arrived, used, idle: int64 (n_pods,), milli
    after it. fragments: float64 (n_pods,), milli.
    """

    rows: Ints
    given: Ints
    arrived: Ints
    used: Ints
    idle: Ints
    fragments: Floats


def run_experiment(workload: OpenBWorkload, policy: GpuPolicy, seed: int) -> dict[str, list[float]]:
    """The published figures of one run: by metric, 131 columns by percent of arrived milli.

    The same for the same arguments. Random differs from the published figures, as the original's
    draws depend on the order in which its threads meet nodes.
    """
    return measures_by_column(fill(workload, policy, seed), workload.n_cards)


# The fill.


def fill(workload: OpenBWorkload, policy: GpuPolicy, seed: int) -> Fill:
    """Place the pods of a run. Raises RuntimeError without Numba."""
    arrivals = workload.arrivals(seed)
    table = table_of(_ranked_nodes(workload, arrivals), ())
    typical = typical_pods(((request, 1) for request in workload.requests), TYPICAL)
    choice = CardChoiceOptions(typical=tuple(typical))
    ledger = CardLedger.of(table)
    inventory = GpuCardInventory(ledger, table, policy, choice, ties_by_name=True, seed=seed)
    cards = inventory.columns()
    # Views of the table.
    cards = cards._replace(n_cards=cards.n_cards.copy(), model=cards.model.copy())
    compiled = kernel_loading.load_kernels()
    if compiled is None:
        raise RuntimeError("experiments require Numba 0.61 or newer")
    card_kernels = kernel_loading.load_card_kernels()
    engine = Engine(compiled)
    engine.use(compiled, kernel_loading.load_card_kernels)
    pods = _arriving_pods(workload, arrivals)
    rows, given = _placed(engine, _framework(workload, policy, seed), table, pods, cards)
    totals = np.array([workload.requests[index].total_milli for index in arrivals.pods])
    used = np.cumsum(np.where(rows >= 0, totals, 0))
    fragments = _fragments(card_kernels, inventory, cards, workload, arrivals, rows, given)
    return Fill(
        rows, given, np.cumsum(totals), used, workload.n_cards * CARD_MILLI - used, fragments
    )


def _ranked_nodes(workload: OpenBWorkload, arrivals: Arrivals) -> list[Node]:
    """The nodes in the order of their names, with the rank that breaks ties in front of each."""
    found: list[Node] = []
    for node, rank in zip(workload.nodes, arrivals.rank, strict=True):
        amounts = {**node.status.allocatable, "pods": PODS_PER_NODE}
        meta = replace(node.metadata, name=f"{rank:04d}-{node.metadata.name}")
        status = replace(node.status, allocatable=amounts)
        found.append(replace(node, metadata=meta, status=status))
    return found


def _arriving_pods(workload: OpenBWorkload, arrivals: Arrivals) -> list[Pod]:
    found: list[Pod] = []
    for number, index in enumerate(arrivals.pods):
        pod, name = workload.pods[index], f"pod-{number:05d}"
        meta = ObjectMeta(
            name=name, namespace="default", uid=name, annotations=pod.metadata.annotations
        )
        found.append(Pod(metadata=meta, spec=pod.spec))
    return found


def _framework(workload: OpenBWorkload, policy: GpuPolicy, seed: int) -> Framework:
    """A profile that filters by amounts and cards, and scores by the policy alone."""
    args: dict[str, Any] = {"policy": policy.value, "gpuSel": SELECTIONS.get(policy, "best")}
    args |= {"dimExt": "merge", "norm": "max", "seed": seed}
    if policy is GpuPolicy.FGD:
        args["workload"] = [
            {"cpuMilli": one.cpu_milli, "num": one.num, "milli": one.milli, "models": one.models}
            for one in workload.requests
        ]
    everything = [{"name": "*"}]
    own, fit = {"name": "GpuShare"}, {"name": "NodeResourcesFit"}
    plugins: dict[str, Any] = {
        "multiPoint": {"disabled": everything, "enabled": [own]},
        "queueSort": {"enabled": [{"name": "PrioritySort"}]},
        "preFilter": {"enabled": [fit, own]},
        "filter": {"enabled": [fit, own]},
        "bind": {"enabled": [{"name": "DefaultBinder"}]},
    }
    profile = {"plugins": plugins, "pluginConfig": [{"name": "GpuShare", "args": args}]}
    full, defaults = registered(())
    made = from_tree({"profiles": [profile]}, "", full, defaults, body=True)
    (only,) = made.profiles.values()
    return Framework(only, full, FeatureGates())


def _placed(
    engine: Engine,
    framework: Framework,
    table: NodeTable,
    pods: list[Pod],
    cards: ca.CardKernelColumns,
) -> tuple[Ints, Ints]:
    """`Fill.rows` and `Fill.given`."""
    snapshot = Snapshot(table, ObjectStore(()))
    rows = np.full(len(pods), -1, dtype=np.int64)
    given = np.zeros((len(pods), cards.left.shape[1] + 1), dtype=np.int64)
    for start in range(0, len(pods), BATCH):
        some = pods[start : start + BATCH]
        classes = [engine.class_of(pod, framework) for pod in some]
        run = engine.run(some, [one for one in classes if one is not None])
        done = 0
        while done < len(some):
            table.refresh()
            placed = run.place(done, snapshot)
            rows[start + done : start + done + len(placed)] = placed
            done += len(placed)
            if done < len(some):
                if run.heads[done] < 0:
                    raise RuntimeError(f"pod {some[done].name} has no kernel terms")
                # It fits nowhere.
                done += 1
        for place, notes in run.annotations.items():
            of_pod = card_indices(notes[INDEX_KEY]) if notes else None
            if of_pod:
                given[start + place, 0] = len(of_pod)
                given[start + place, 1 : len(of_pod) + 1] = of_pod
    return rows, given


def _fragments(
    card_kernels: ModuleType,
    inventory: GpuCardInventory,
    cards: ca.CardKernelColumns,
    workload: OpenBWorkload,
    arrivals: Arrivals,
    rows: Ints,
    given: Ints,
) -> Floats:
    """float64 (n_pods,): `Fill.fragments`."""
    requests = [workload.requests[index] for index in arrivals.pods]
    expectation = inventory.expectation()
    n_nodes, n_cards = cards.left.shape
    scratch = ca.card_scratch(1, n_nodes, n_cards, expectation.typical.shape[0])
    changes = np.zeros(len(requests), dtype=np.float64)
    card_kernels.fragment_path(
        tuple(cards),
        tuple(expectation),
        tuple(scratch),
        rows,
        np.array([one.cpu_milli for one in requests], dtype=np.int64),
        np.array([one.milli for one in requests], dtype=np.int64),
        given,
        changes,
    )
    # The rows are counted at the end: the amount at the start follows.
    after: Floats = math.fsum(scratch.fragments.tolist()) - np.cumsum(changes[::-1])[::-1] + changes
    return after


# Measures.


def measures_by_column(filled: Fill, n_cards: int) -> dict[str, list[float]]:
    """By metric, the mean of the rows of each column; a row per pod."""
    percent = n_cards * CARD_MILLI / 100
    column = np.round(filled.arrived / percent).astype(np.int64)
    # Rounded as decimals are printed; NumPy's rounding differs in rare cases.
    by_row = {
        "alloc_pct": [round(used / percent, 2) for used in filled.used.tolist()],
        "frag_pct_of_capacity": [round(one, 2) / percent for one in filled.fragments.tolist()],
        "frag_pct_of_idle": [
            round(100 * fragment / idle, 2) if idle else 0.0
            for fragment, idle in zip(filled.fragments.tolist(), filled.idle.tolist(), strict=True)
        ],
    }
    found: dict[str, list[float]] = {}
    for metric, values in by_row.items():
        array = np.array(values)
        means = [_mean(array, column, k) for k in range(N_COLUMNS)]
        # Halves go as NumPy rounds them, but those of the last metric as decimals are printed.
        rounded = means if metric == "frag_pct_of_idle" else np.round(means, 2).tolist()
        found[metric] = [round(one, DECIMALS[metric]) for one in rounded]
    return found


def _mean(values: Floats, column: Ints, k: int) -> float:
    """The mean of the rows of a column; without any, of those of its neighbours."""
    chosen = values[column == k]
    if not chosen.size:
        chosen = values[np.abs(column - k) <= 1]
    # NumPy's order of additions, as that of the published figures.
    return float(chosen.mean()) if chosen.size else math.nan
