"""simulate(): schedule the pending pods of a cluster.

Without a replay each pod is tried once, in arrival order, and no pod ends (a placement run). With
a replay pods arrive and end in virtual time, with retries and preemption.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from stowplan import config as configuration_files
from stowplan.assembly.build import frameworks_for, scheduler_for
from stowplan.assembly.deciders import Deciders
from stowplan.assembly.extenders import extenders_of
from stowplan.config import Configuration
from stowplan.cycle.engine import kernel_loading
from stowplan.cycle.engine.kernel_loading import EngineMode
from stowplan.cycle.explanation import Explanation
from stowplan.framework import FeatureGates, Framework, Registry
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.cluster_reader import Cluster, cluster_of
from stowplan.inputs.cluster_resize import resized
from stowplan.inputs.counts import count_of
from stowplan.inputs.files import read_bytes
from stowplan.inputs.generated_workload import generate_workload
from stowplan.inputs.input_error import InputError
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.insight.autoscaling.autoscale_config import PoolNodes, pool_templates
from stowplan.insight.gpu_fragmentation import (
    CardFragmentationMeter,
    conventions_of,
    has_cards,
    typical_of,
    typical_of_configuration,
)
from stowplan.insight.placement_failures import PlacementFailure, failures_of
from stowplan.insight.pod_owners import owners_of
from stowplan.insight.pod_placement import Placement, frame_of
from stowplan.insight.request_notes import request_notes
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.html_summary import html_bars, html_summary, html_table
from stowplan.objects.pod import Pod, PodSpec
from stowplan.queue import QueueOptions
from stowplan.recording.recording_header import (
    SIMULATION,
    SchedulerRecorder,
    SchedulerSetup,
    plugin_records,
)
from stowplan.scheduler import SchedulerOptions
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation import kernel_cache
from stowplan.simulation.api_cluster.volcano_jobs import with_volcano_jobs
from stowplan.simulation.api_cluster.workload_documents import has_workloads
from stowplan.simulation.cluster.simulated_extenders import (
    ExtenderSource,
    SimulatedExtenderFactory,
    SimulatedExtenders,
)
from stowplan.simulation.event_queue import in_seconds
from stowplan.simulation.kueue.admission_step import admission_of
from stowplan.simulation.node_autoscaler import NodeEvent
from stowplan.simulation.placement_run import PlacementRun, Progress
from stowplan.simulation.plugin_watch import PluginWatch
from stowplan.simulation.pod_explanation import (
    explain_after_replay,
    explained_pod,
    place_and_explain,
    position_of,
)
from stowplan.simulation.pod_group_run import group_notes
from stowplan.simulation.replay import PodHistory, Replay, ReplayOptions, last_arrival
from stowplan.simulation.results.node_use import (
    NodeUse,
    NodeUseSampler,
    pod_table,
    resources_of,
    use_of_fill,
)
from stowplan.simulation.results.pod_history import placement_of
from stowplan.simulation.results.result_files import write_files
from stowplan.simulation.results.simulated_objects import SimulatedObjects
from stowplan.simulation.results.summary import (
    ORDER_NOTE,
    TIMES_NOTE,
    VOLUMES_NOTE,
    extender_summary,
    replay_summary,
    run_summary,
    sha256,
)
from stowplan.simulation.results.time_series import PodSizes, TimeSeries
from stowplan.simulation.scheduler_configuration import (
    ConfigSource,
    FeatureGateSettings,
    read_deciders,
    with_cards,
)

PLACEMENTS = "placements.jsonl"
SUMMARY = "summary.json"
SERIES = "series.csv"
GPU_NODES = "gpu_nodes.csv"
USAGE = "usage.json"
AUTOSCALER = "autoscaler.jsonl"
KERNEL_LOAD_MIN = 1000
"""Pods from which loading compiled kernels from disk pays."""
KERNEL_COMPILE_MIN = 2000
"""Pods above which compiling the kernels pays in a replay."""
SAMPLES = 1000
"""Default number of samples over the arrivals."""

FILL_OPTIONS = SchedulerOptions(queue=QueueOptions(by_arrival=True))
"""Of a placement run."""

ReplayProgress = Callable[[int, int, float], None]
"""Called with (bindings, pending pods, virtual seconds) in a replay."""


class Simulation(msgspec.Struct):
    """Result of a simulation.

    placements: all pods, in arrival order. summary: see `run_summary` and `replay_summary`; its
    `pods_per_s` is the only figure that differs between runs with the same seed, and is not written
    to files. series: time series of a replay, as CSV. gpu_nodes: fragmentation of GPU cards by
    node, as CSV. failures: pods without a node, by owner and
    reason. explanation: of the pod named by `explain`. node_events: what an
    autoscaler did. objects: for measures; None for a result that was read from files.
    node_use: nodes over the run, for reports. plugin_failure: how an out-of-tree plugin or extender
    first broke its contract, "" if none did; not written to files.
    """

    placements: list[Placement]
    summary: dict[str, Any]
    series: bytes = b""
    failures: list[PlacementFailure] = []
    explanation: Explanation | None = None
    gpu_nodes: bytes = b""
    node_events: tuple[NodeEvent, ...] = ()
    objects: SimulatedObjects | None = None
    node_use: NodeUse | None = None
    plugin_failure: str = ""

    def __repr__(self) -> str:
        figures = self.summary
        placed, pods, nodes = (figures[name] for name in ("placed", "pods", "nodes"))
        return f"Simulation({placed:,} of {pods:,} pods on {count_of(nodes, 'node')})"

    def _repr_html_(self) -> str:
        """For notebooks: utilization at the end, waits, and why pods have no node."""
        use: dict[str, dict[str, float]] = self.summary["utilisation"]
        waits: dict[str, float] = self.summary.get("waits_s", {})
        failed: dict[str, int] = self.summary["failed"]
        return html_summary(
            repr(self),
            html_bars((name, one["share"]) for name, one in use.items() if one["allocatable"]),
            html_table(("Wait", "Seconds"), waits.items()),
            html_table(("Pods", "Reason"), ((count, reason) for reason, count in failed.items())),
        )

    def to_frame(self, library: str = "") -> Any:
        """The placements as a DataFrame of pandas or polars, one row per pod.

        library: `pandas` or `polars`; "" takes the first that is installed. Raises ImportError
        when it is not installed.
        """
        return frame_of(self.placements, library)

    def files(self) -> dict[str, bytes]:
        """The result files by name."""
        summary = {key: value for key, value in self.summary.items() if key != "pods_per_s"}
        lines = (msgspec.json.encode(placement) + b"\n" for placement in self.placements)
        found = {PLACEMENTS: b"".join(lines), SUMMARY: as_json(summary)}
        if self.node_events:
            events = (msgspec.json.encode(event) + b"\n" for event in self.node_events)
            found[AUTOSCALER] = b"".join(events)
        usage = b"" if self.node_use is None else msgspec.json.encode(self.node_use) + b"\n"
        more = {SERIES: self.series, GPU_NODES: self.gpu_nodes, USAGE: usage}
        return found | {name: content for name, content in more.items() if content}

    def write(self, directory: str | Path) -> None:
        """Write the result files into a directory; raises InputError."""
        write_files(directory, self.files())


def as_json(tree: dict[str, Any]) -> bytes:
    """A tree as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(tree), indent=2) + b"\n"


def simulate(
    cluster: Cluster | str | Path | Iterable[str | Path] | None = None,
    *,
    config: Deciders | Configuration | ConfigSource | None = None,
    plugins: Iterable[PluginSource] = (),
    extenders: Iterable[ExtenderSource] | ExtenderSource = (),
    seed: int = 0,
    compat: str | Iterable[str] = "",
    feature_gates: FeatureGateSettings | None = None,
    profile: str | None = None,
    node_count: int | None = None,
    replay: ReplayOptions | None = None,
    explain: str = "",
    on_progress: Progress | None = None,
    on_tick: ReplayProgress | None = None,
    recorder: SchedulerRecorder | None = None,
) -> Simulation:
    """Schedule the pending pods of a cluster.

    cluster: files and directories as for `--cluster`, or a Cluster; None: a generated workload.
    config: a Configuration, or its files; Deciders have their plugins already. plugins: classes,
    decorated functions, or files that define them. extenders: classes that answer in place of the
    configuration's extenders, or files with such classes; an extender without a class accepts every
    node. seed: of the generated workload, of ties between nodes and of all other random choices.
    compat: whose defects are reproduced, one or several. feature_gates: name -> enabled. profile:
    schedule every pod by this profile. node_count: shrink or grow the cluster. replay: options of a
    replay in virtual time; None: try each pod once. explain: a pending pod by `NAMESPACE/NAME`; the
    result explains its attempt (in a replay: why it is pending at the end). recorder: records the
    scheduler. Raises InputError, ConfigError and ContractError.
    """
    _check_arguments(config, seed)
    sources: list[PluginSource] = [plugins] if isinstance(plugins, str | Path) else list(plugins)
    deciders = _deciders(config, sources, compat, feature_gates)
    configuration = deciders.configuration
    if replay is None and not configuration.profiles:
        wanted = "profiles, or --replay: sessions do not place pods one by one"
        raise InputError(configuration.source, "", "actions and tiers only", wanted)
    extender_factory = SimulatedExtenderFactory(extenders_of(configuration), extenders)
    if profile is not None:
        check_profile_of(profile, configuration)
    cluster = _cluster(cluster, seed, keep_manifests=replay is not None)
    if node_count is not None:
        cluster = resized(cluster, node_count)
    deciders, cluster = with_cards(config, deciders, cluster)
    digest = configuration_files.digest(deciders.configuration)
    whole = cluster
    admitted = admission_of(cluster, deciders.kueue, replays=replay is not None)
    cluster = admitted.cluster
    if profile is not None:
        cluster = assign_profile(profile, cluster)
    rng = np.random.default_rng(seed)
    began = time.perf_counter()
    options, held = replay or ReplayOptions(), admitted.held
    how = ReplayRequest(options, seed, explain, profile or "", recorder, sources, held)
    if replay is None:
        result = _filled(cluster, deciders, rng, extender_factory, on_progress, how)
        result.failures = failures_of(result.placements, whole.pods)
    else:
        result = _replayed(cluster, deciders, rng, extender_factory, how, on_tick)
    elapsed_s = time.perf_counter() - began
    result.summary |= {"seed": seed, "configuration": digest, **admitted.figures()}
    result.summary["notes"] += [*extender_factory.notes, *request_notes(cluster, deciders)]
    files = [
        source for source in (*sources, *extender_factory.sources) if isinstance(source, str | Path)
    ]
    result.summary["plugins"] = {str(file): sha256(read_bytes(file)) for file in files}
    n_pods = len(result.placements)
    result.summary["pods_per_s"] = round(n_pods / elapsed_s, 1) if elapsed_s and n_pods else 0.0
    return result


def _check_arguments(config: object, seed: int) -> None:
    if not isinstance(config, Deciders | Configuration | str | Path | list | tuple | None):
        name = type(config).__name__
        raise InputError("config", "", f"a {name}", "file names or a Configuration")
    if seed < 0:
        raise InputError("seed", "", str(seed), "a whole number from 0 up")


class ReplayRequest(NamedTuple):
    """A replay as `simulate` is asked for it; explain, profile: "" for none. recorder: None for no
    recording. plugins: for its header. held: pods that the scheduler does not get."""

    options: ReplayOptions
    seed: int
    explain: str
    profile: str
    recorder: SchedulerRecorder | None = None
    plugins: Sequence[PluginSource] = ()
    held: Sequence[Placement] = ()

    def record(self, deciders: Deciders, scheduler: Scheduler, command: str, engine: str) -> None:
        """Record a new scheduler, if asked for."""
        if self.recorder is not None:
            files = plugin_records(self.plugins)
            setup = SchedulerSetup(command, self.seed, SIMULATION, engine, files, virtual=True)
            self.recorder.attach(deciders, scheduler, setup)


def _filled(
    cluster: Cluster,
    deciders: Deciders,
    rng: np.random.Generator,
    extender_factory: SimulatedExtenderFactory,
    on_progress: Progress | None,
    how: ReplayRequest,
) -> Simulation:
    # No pod ends in a placement run, so victims would never terminate; sessions do not fill.
    configuration = replace(without_post_filter(deciders.configuration), batch=None)
    deciders, explain = replace(deciders, configuration=configuration), how.explain
    engine = _engine(len(cluster.pending()), replays=False)
    scheduler = deciders.scheduler(rng=rng, options=FILL_OPTIONS, engine=engine)
    how.record(deciders, scheduler, "simulate", engine)
    fill = PlacementRun(cluster, scheduler)
    watch = PluginWatch(scheduler)
    fill.on_effects = watch.observe
    answering = extender_factory.of(fill.instance)
    explanation, pending = None, cluster.pending()
    if explain:
        placements, explanation = place_and_explain(fill, pending, explain, on_progress)
    else:
        placements = fill.place_all(pending, on_progress)
    tried, placements = placements, [*placements, *how.held]
    summary = run_summary(cluster, placements, scheduler.cache.nodes)
    summary["notes"] += [*([ORDER_NOTE] if placements else ()), *group_notes(pending, scheduler)]
    if any(RUN_ANNOTATION in pod.metadata.annotations for pod in cluster.pods):
        summary["notes"].append(TIMES_NOTE)
    if fill.volumes.has_served:
        summary["notes"].append(VOLUMES_NOTE)
    summary |= extender_summary(answering) | _plugin_figures(watch, answering)
    found = Simulation(placements, summary, explanation=explanation)
    found.plugin_failure = watch.failure or next(iter(answering.warnings), "")
    found.objects = _objects_of(cluster, pending)
    table = pod_table(pending, cluster.objects)
    found.node_use = use_of_fill(tried, table, scheduler.cache.nodes)
    _add_cards(found, _meter(cluster, configuration), scheduler)
    return found


def fill_of(
    cluster: Cluster,
    configuration: Configuration,
    registry: Registry,
    rng: np.random.Generator | None,
    n_pods: int | None = None,
    gates: FeatureGates | None = None,
) -> PlacementRun:
    """A placement run of a cluster, before the first pod.

    rng: breaks ties; None takes the first node. n_pods: how many pods it will place; None: the
    pending ones. gates: None for the defaults.
    """
    # No pod ends in a placement run, so victims would never terminate.
    configuration = without_post_filter(configuration)
    engine = _engine(len(cluster.pending()) if n_pods is None else n_pods, replays=False)
    scheduler = scheduler_for(
        configuration, registry, gates, rng=rng, options=FILL_OPTIONS, engine=engine
    )
    return PlacementRun(cluster, scheduler)


def _replayed(
    cluster: Cluster,
    deciders: Deciders,
    rng: np.random.Generator,
    extender_factory: SimulatedExtenderFactory,
    how: ReplayRequest,
    on_tick: ReplayProgress | None,
) -> Simulation:
    options, explain = how.options, how.explain
    cluster = with_volcano_jobs(cluster, deciders)
    owners: list[tuple[str, str]] = []
    if explain:
        at = position_of(explain, cluster.pending())
        owners = owners_of(cluster.pending()[at])
    # When a replay may be cut short, the last message is read from the pod's condition.
    counts = (
        options.until_s is None
        # An autoscaler reads the conditions of pods at all times.
        and options.autoscale is None
        and deciders.batch is None
        and not explain
        and not has_workloads(cluster.manifests)
    )
    engine = _engine(len(cluster.pending()), replays=True)
    options_of = SchedulerOptions(counts_repeats=counts)
    scheduler = deciders.scheduler(rng=rng, options=options_of, engine=engine)
    how.record(deciders, scheduler, "simulate --replay", engine)
    watch = PluginWatch(scheduler)
    run = replay_of(cluster, deciders, scheduler, how)
    run.on_effects = watch.observe
    answering = extender_factory.of(run.instance)
    meter = _meter(cluster, deciders.configuration)
    series = TimeSeries(PodSizes(cluster.pending()), meter)
    sampler = NodeUseSampler(resources_of(cluster.pending()))

    def on_sample(now: int) -> None:
        series.take(now, scheduler)
        sampler.take(now, scheduler.cache.nodes)
        if on_tick is not None:
            on_tick(run.binds, run.n_waiting, in_seconds(now))

    run.run(on_sample, _sample_every(cluster, options))
    arrived = _arrived(run)
    placements = [placement_of(pod_history, run) for pod_history in arrived]
    summary = run_summary(cluster, list(placements), scheduler.cache.nodes)
    summary |= (
        replay_summary(run, series, options)
        | extender_summary(answering)
        | _plugin_figures(watch, answering)
    )
    _add_notes(summary, run)
    known = (pod_history.pod for pod_history in run.pod_histories.values())
    failures = failures_of(placements, known)
    explanation = None
    if explain:
        key, name = explained_pod(explain, owners, run)
        explanation = explain_after_replay(key, run)
        if explanation is None:
            summary["notes"].append(f"{name} pending at the end: not explained")
    found = Simulation(list(placements), summary, series.csv(), failures, explanation)
    found.plugin_failure = watch.failure or next(iter(answering.warnings), "")
    found.node_events = () if run.autoscaler is None else tuple(run.autoscaler.log)
    found.objects = _objects_of(cluster, [pod_history.pod for pod_history in arrived])
    found.node_use = sampler.result([one.pod for one in arrived], cluster.objects)
    _add_cards(found, meter, scheduler)
    return found


def _arrived(run: Replay) -> list[PodHistory]:
    """The pods that have a placement: those that arrived, and were not deleted before a binding."""
    return [
        pod_history
        for pod_history in run.pod_histories.values()
        if not (pod_history.bound_at_start or pod_history.is_deleted_unbound)
    ]


def _objects_of(cluster: Cluster, pods: list[Pod]) -> SimulatedObjects:
    return SimulatedObjects(cluster.nodes, pods, cluster.bound(), cluster.objects)


def _add_notes(summary: dict[str, Any], run: Replay) -> None:
    """Add sessions, rejected objects and notes of a replay."""
    lanes = run.scheduler.lanes
    if lanes.batch:
        summary["sessions"] = lanes.n_sessions
    summary["not_created"] = run.not_created
    summary["notes"] += run.failure_notes
    if run.has_served_volumes:
        summary["notes"].append(VOLUMES_NOTE)
    if summary["deleted"]:
        n_deleted = count_of(summary["deleted"], "pod")
        summary["notes"].append(f"deleted before being bound, and not counted: {n_deleted}")


def _meter(cluster: Cluster, configuration: Configuration) -> CardFragmentationMeter | None:
    """Measures the cards under the configured typical pods, else under those of the input; None for
    a cluster without cards."""
    conventions = conventions_of(configuration.profiles.values())
    if not has_cards(cluster.nodes, conventions):
        return None
    typical = typical_of_configuration(configuration)
    typical = typical or typical_of(cluster.pods, cluster.nodes, conventions)
    return CardFragmentationMeter(typical, conventions)


def _add_cards(
    found: Simulation, meter: CardFragmentationMeter | None, scheduler: Scheduler
) -> None:
    """Add the fragmentation of the cards at the end."""
    measured = None if meter is None else meter.measure(scheduler.cache.nodes)
    if measured is not None:
        found.summary["gpu_cards"] = measured.summary()
        found.gpu_nodes = measured.csv()


def replay_of(
    cluster: Cluster,
    deciders: Deciders,
    scheduler: Scheduler,
    how: ReplayRequest,
) -> Replay:
    """A replay with controllers where the input has workloads; else of its pods. With an
    autoscaler, if the options have one."""
    pools: list[PoolNodes] = []
    if how.options.autoscale is not None:
        pools = pool_templates(how.options.autoscale, cluster.nodes, cluster.bound())
    run = _replay_without_autoscaler(cluster, deciders, scheduler, how)
    if how.options.autoscale is not None:
        run.start_autoscaler(pools, autoscaler_frameworks(deciders, cluster), how.seed)
    return run


def _replay_without_autoscaler(
    cluster: Cluster, deciders: Deciders, scheduler: Scheduler, how: ReplayRequest
) -> Replay:
    if not has_workloads(cluster.manifests) and deciders.kueue is None:
        return Replay(cluster, scheduler, how.options, how.seed)
    # Imported here: the API server's tables load slower than most inputs are read.
    from stowplan.simulation.workload_replay import WorkloadReplay

    return WorkloadReplay(cluster, deciders, scheduler, how.options, how.seed, how.profile)


def autoscaler_frameworks(deciders: Deciders, cluster: Cluster) -> dict[str, Framework]:
    """The profiles by which an autoscaler simulates scheduling, without PostFilter plugins; the
    first one, else kube-scheduler's default one, for pods that sessions decide."""
    configuration, registry, gates = deciders.configuration, deciders.registry, deciders.gates
    if not configuration.profiles:
        standard = read_deciders()
        configuration, registry = standard.configuration, standard.registry
    built = frameworks_for(without_post_filter(configuration), registry, gates)
    batch = deciders.batch
    names = {pod.spec.scheduler_name for pod in cluster.pods}
    names.update(() if batch is None else batch.scheduler_names)
    return {**dict.fromkeys(names, next(iter(built.values()))), **built}


def _plugin_figures(watch: PluginWatch, answering: SimulatedExtenders) -> dict[str, Any]:
    every = [*watch.warnings, *answering.warnings]
    return {"warnings": every} if every else {}


def _engine(n_pods: int, *, replays: bool) -> str:
    """Engine mode: compiled kernels from the first pod on when they are cached and pay; else NumPy
    kernels until the background compilation has finished."""
    waits = (
        replays
        and n_pods > KERNEL_COMPILE_MIN
        and not kernel_cache.BACKGROUND_COMPILATION.is_under_way
    )
    waits = waits or (
        n_pods >= KERNEL_LOAD_MIN
        and (kernel_loading.is_loaded() or kernel_cache.load_exported() or kernel_cache.is_cached())
    )
    return EngineMode.COMPILED.value if waits else EngineMode.AUTO.value


def _sample_every(cluster: Cluster, options: ReplayOptions) -> int:
    """Interval of samples in nanoseconds, at least a millisecond."""
    every_s = options.sample_s
    if every_s is None:
        over_s = last_arrival(cluster, options.speedup) or 3600.0
        if options.until_s is not None:
            over_s = min(over_s, options.until_s)
        every_s = over_s / SAMPLES
    return max(round(every_s * SECOND), SECOND // 1000)


def _cluster(
    cluster: Cluster | str | Path | Iterable[str | Path] | None, seed: int, *, keep_manifests: bool
) -> Cluster:
    if cluster is None:
        return generate_workload(seed=seed)
    return cluster_of(cluster, keep_manifests=keep_manifests)


def assign_profile(profile: str, cluster: Cluster) -> Cluster:
    """The cluster with every pending pod assigned to one profile; shared specs stay shared."""
    specs: dict[int, PodSpec] = {}
    pods: list[Pod] = []
    for pod in cluster.pods:
        if not pod.node_name:
            spec = specs.get(id(pod.spec))
            if spec is None:
                spec = specs[id(pod.spec)] = replace(pod.spec, scheduler_name=profile)
            pod = replace(pod, spec=spec)
        pods.append(pod)
    return replace(cluster, pods=pods)


def _deciders(
    config: Deciders | Configuration | ConfigSource | None,
    plugins: list[PluginSource],
    compat: str | Iterable[str],
    feature_gates: FeatureGateSettings | None,
) -> Deciders:
    """The deciders of a configuration or of its files."""
    if isinstance(config, Deciders):
        return config
    if isinstance(config, Configuration):
        return replace(read_deciders(None, plugins, compat, feature_gates), configuration=config)
    return read_deciders(config, plugins, compat, feature_gates, admits=True)


def without_post_filter(configuration: Configuration) -> Configuration:
    """The configuration without PostFilter plugins."""
    profiles = {
        name: replace(profile, points={**profile.points, "postFilter": ()})
        for name, profile in configuration.profiles.items()
    }
    return replace(configuration, profiles=profiles)


def check_profile_of(profile: str, configuration: Configuration) -> None:
    """Raise InputError for a profile that the configuration does not have."""
    known, hint = configuration.profiles, did_you_mean(profile, configuration.profiles)
    if profile not in known:
        names = ", ".join(known) or "(none: it has only sessions)"
        wanted = f"one of {names}" + (f" ({hint})" if hint else "")
        raise InputError(configuration.source, "profile", repr(profile), wanted)
