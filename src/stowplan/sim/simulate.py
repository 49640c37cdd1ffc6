"""simulate(): places the waiting pods of a cluster, one after the other.

Pods come in the order of their arrival; each is decided on all nodes, and a placed pod counts for
the next one. Nobody leaves, so PostFilter (preemption) is left out: nobody would go.

Differs: the original's queue sorts by priority first, tries refused pods again and preempts.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stowplan import config as configuration_files
from stowplan._version import __version__
from stowplan.assembly import configuration_of, frameworks_for
from stowplan.columns import NodeTable
from stowplan.config import Configuration
from stowplan.cycle import Decision, Turn, decide
from stowplan.framework import CycleState, Framework, Nominations, Snapshot, Status
from stowplan.framework.problems import did_you_mean
from stowplan.objects.pod import Pod
from stowplan.plugins.volume_binding import VolumeBinding
from stowplan.sim.cluster import Cluster, read_cluster
from stowplan.sim.files import read_text
from stowplan.sim.input_error import InputError
from stowplan.sim.outputs import write_files
from stowplan.sim.plugins import plugin_classes
from stowplan.sim.workload import generate

PLACEMENTS = "placements.jsonl"
SUMMARY = "summary.json"
WAITING = "waiting on permit, which is not simulated yet"
ORDER_NOTE = "pods are tried once, in order of arrival; priority and preemption do not count yet"
EXTENDERS_NOTE = "extenders are not simulated yet: nobody is asked"
VOLUMES_NOTE = "volumes count as bound once a pod is placed; provisioning is not simulated"

Progress = Callable[[int, int], None]
"""Called with (pods done, pods in all)."""

_PROGRESS_EVERY = 50


class Placement(msgspec.Struct, frozen=True):
    """What became of a pod.

    node: "" when it went nowhere. reason: why, without numbers, so that pods can be counted by
    it. message: the text that users of a cluster read.
    """

    pod: str
    node: str = ""
    reason: str = ""
    message: str = ""


class Simulation(msgspec.Struct):
    """What became of all pods, in the order of their arrival.

    summary: see `summarised`; `pods_per_s` in it is the one figure that differs between two runs
    with the same seed, and is not written to files.
    """

    placements: list[Placement]
    summary: dict[str, Any]

    def write(self, directory: str | Path) -> None:
        """Write placements.jsonl and summary.json; raises InputError when that cannot be done."""
        lasting = {key: value for key, value in self.summary.items() if key != "pods_per_s"}
        lines = (msgspec.json.encode(placement) + b"\n" for placement in self.placements)
        text = msgspec.json.format(msgspec.json.encode(lasting), indent=2) + b"\n"
        write_files(directory, {PLACEMENTS: b"".join(lines), SUMMARY: text})


def simulate(
    cluster: Cluster | str | Path | Iterable[str | Path] | None = None,
    *,
    config: Configuration | str | Path | None = None,
    plugins: Iterable[type[Any] | str | Path] = (),
    seed: int = 0,
    profile: str | None = None,
    on_progress: Progress | None = None,
) -> Simulation:
    """Place the pending pods of a cluster and say what became of each.

    cluster: files and directories as for `--cluster`, or a Cluster; None: a generated
    workload. config: a KubeSchedulerConfiguration, or its file. plugins: classes, or files that
    define some. seed: of the generated workload and of ties between nodes. profile: let this
    one decide every pod. Raises InputError, ConfigError and ContractError.
    """
    given: object = config
    if not isinstance(given, Configuration | str | Path | None):
        wanted = "a file name or a Configuration"
        raise InputError("config", "", f"a {type(given).__name__}", wanted)
    if seed < 0:
        raise InputError("seed", "", str(seed), "a whole number from 0 up")
    configuration, frameworks = _deciders(config, plugins)
    if profile is not None:
        _check_profile(profile, configuration)
    world = _cluster(cluster, seed)
    run = _Run(world, frameworks, np.random.default_rng(seed), profile)
    pending = world.pending()
    placements = []
    began = time.perf_counter()
    for done, pod in enumerate(pending):
        if on_progress is not None and done % _PROGRESS_EVERY == 0:
            on_progress(done, len(pending))
        placements.append(run.place(pod))
    elapsed_s = time.perf_counter() - began
    if on_progress is not None:
        on_progress(len(pending), len(pending))
    summary = summarised(world, placements, run.table, configuration, seed)
    summary["notes"] += run.notes()
    summary["pods_per_s"] = round(len(pending) / elapsed_s, 1) if elapsed_s and pending else 0.0
    return Simulation(placements, summary)


def _cluster(cluster: Cluster | str | Path | Iterable[str | Path] | None, seed: int) -> Cluster:
    if isinstance(cluster, Cluster):
        return cluster
    return generate(seed=seed) if cluster is None else read_cluster(cluster)


def _deciders(
    config: Configuration | str | Path | None, plugins: Iterable[type[Any] | str | Path]
) -> tuple[Configuration, dict[str, Framework]]:
    """The configuration, and a framework per scheduler name."""
    classes = plugin_classes(plugins)
    is_file = isinstance(config, str | Path)
    text = read_text(config) if isinstance(config, str | Path) else None
    source = str(config) if is_file else "default configuration"
    configuration, registry = configuration_of(text, source, classes)
    if isinstance(config, Configuration):
        configuration = config
    return configuration, frameworks_for(without_post_filter(configuration), registry)


def without_post_filter(configuration: Configuration) -> Configuration:
    """The configuration without preemption: nobody would evict its victims."""
    profiles = {
        name: msgspec.structs.replace(profile, points={**profile.points, "postFilter": ()})
        for name, profile in configuration.profiles.items()
    }
    return msgspec.structs.replace(configuration, profiles=profiles)


def _check_profile(profile: str, configuration: Configuration) -> None:
    known = configuration.profiles
    if profile not in known:
        hint = did_you_mean(profile, known)
        wanted = f"one of {', '.join(known)}" + (f" ({hint})" if hint else "")
        raise InputError(configuration.source, "profile", repr(profile), wanted)


class _Run:
    """A cluster that fills up."""

    def __init__(
        self,
        cluster: Cluster,
        frameworks: dict[str, Framework],
        dice: np.random.Generator,
        profile: str | None,
    ) -> None:
        self.frameworks = frameworks
        self.profile = profile
        self.dice = dice
        self.turn = Turn()
        self.table = cluster.table()
        self.has_volumes = False
        nominated = (pod for pod in cluster.pending() if pod.status.nominated_node_name)
        self.snapshot = Snapshot(self.table, cluster.world(), Nominations(nominated))

    def place(self, pod: Pod) -> Placement:
        """Decide a pod and count it where it goes."""
        name = self.profile or pod.spec.scheduler_name
        framework = self.frameworks.get(name)
        if framework is None:
            return _nowhere(pod, f"no profile has the schedulerName {name!r}")
        gate = framework.run_pre_enqueue(pod)
        if not gate.is_success:
            return _nowhere(pod, gate.message)
        self.table.refresh()
        decision = decide(pod, self.snapshot, framework, self.dice, self.turn)
        if decision.node_name:
            return self._bind(pod, decision, framework)
        # Sorted by text: the counts of the message differ from pod to pod, the reasons do not.
        reasons = decision.near_misses or tuple(decision.reasons)
        return _nowhere(pod, "; ".join(reasons), decision.message)

    def _bind(self, pod: Pod, decision: Decision, framework: Framework) -> Placement:
        """Walk the points after the choice; a refusal takes the pod off the node again."""
        node, state = decision.node_name, decision.state
        assert state is not None, decision
        self.table.add_pod(pod, node)
        refusal = self._carry_out(pod, node, state, framework)
        if refusal is None:
            self.snapshot.nominations.drop(pod.uid)
            framework.run_post_bind(pod, node, state)
            return Placement(pod.key, node)
        framework.run_unreserve(pod, node, state)
        self.table.remove_pod(pod.uid)
        return _nowhere(pod, refusal)

    def _carry_out(
        self, pod: Pod, node: str, state: CycleState, framework: Framework
    ) -> str | None:
        """Reserve, Permit, PreBind and Bind; returns why not, None when all went well."""
        status = framework.run_reserve(pod, node, state)
        if not status.is_success:
            return status.message
        permit = framework.run_permit(pod, node, state)
        if not isinstance(permit, Status):
            return f"{', '.join(permit)}: {WAITING}"
        if not permit.is_success:
            return permit.message
        status = framework.run_pre_bind(pod, node, state)
        if not status.is_success:
            return status.message
        status = framework.run_bind(pod, node, state)
        if not status.is_success:
            return status.message or "no Bind plugin took the pod"
        self._bind_volumes(framework, state)
        return None

    def _bind_volumes(self, framework: Framework, state: CycleState) -> None:
        """Let the next pods see which volumes and claims this one took."""
        member = framework.members.get(VolumeBinding.name)
        reserved = None if member is None else member.plugin.reserved(state)
        if reserved is not None and not reserved.is_empty:
            self.has_volumes = True
            reserved.apply(self.snapshot.world)

    def notes(self) -> list[str]:
        """What a user should know of how it was done."""
        return [ORDER_NOTE, VOLUMES_NOTE] if self.has_volumes else [ORDER_NOTE]


def _nowhere(pod: Pod, reason: str, message: str = "") -> Placement:
    return Placement(pod.key, "", reason, message or reason)


def summarised(
    cluster: Cluster,
    placements: list[Placement],
    table: NodeTable,
    configuration: Configuration,
    seed: int,
) -> dict[str, Any]:
    """The figures of a run.

    failed: reason -> pods, the commonest first. bound: pods that had a node before. utilisation:
    resource -> what is requested and offered after the run, base units (milli-CPU, bytes, counts),
    and the share. ignored: kind -> objects of the files that were passed over.
    """
    failed = Counter(p.reason for p in placements if not p.node)
    notes = list(cluster.notes)
    if configuration.extenders:
        notes.append(EXTENDERS_NOTE)
    return {
        "seed": seed,
        "versions": {
            "stowplan": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "configuration": configuration_files.digest(configuration),
        "nodes": table.n_nodes,
        "bound": len(cluster.bound()),
        "pods": len(placements),
        "placed": sum(1 for p in placements if p.node),
        "failed": dict(sorted(failed.items(), key=lambda item: (-item[1], item[0]))),
        "utilisation": _utilisation(table),
        "ignored": cluster.ignored,
        "notes": notes,
    }


def _utilisation(table: NodeTable) -> dict[str, dict[str, float]]:
    """What the nodes offer and what is requested of it, by resource."""
    found = {}
    for name in table.resources.values:
        offered = int(table.allocatable(name).sum())
        taken = table.pod_count if name == "pods" else table.requested(name)
        requested = int(taken.sum())
        share = round(requested / offered, 6) if offered else 0.0
        found[name] = {"requested": requested, "allocatable": offered, "share": share}
    return dict(sorted(found.items()))
