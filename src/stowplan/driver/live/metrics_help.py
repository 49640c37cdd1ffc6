"""HELP text of each metric: what is counted or measured, in which unit.

Source: kube-scheduler v1.36, scheduler/metrics; kube-batch v0.5, pkg/scheduler/metrics.
"""

from __future__ import annotations

from stowplan.driver.live import metrics_recorder
from stowplan.framework.deciders import session_metrics as sessions
from stowplan.framework.runtime import timed_framework as profiles
from stowplan.scheduler import timed_scheduler as machines
from stowplan.scheduler.lanes import session_lane

PENDING_PODS = "scheduler_pending_pods"
INCOMING_PODS = "scheduler_queue_incoming_pods_total"
UNSCHEDULABLE_PODS = "scheduler_unschedulable_pods"
INFLIGHT_EVENTS = "scheduler_inflight_events"
CACHE_SIZE = "scheduler_cache_size"
MASTER_STATUS = "leader_election_master_status"
REQUESTS = "rest_client_requests_total"
INFORMER_OBJECTS = "stowplan_informer_objects"
BUILD_INFO = "stowplan_build_info"
FAIRNESS_FINDINGS = "stowplan_fairness_findings"
GPU_CARDS = "stowplan_gpu_cards"
GPU_IDLE_CARDS = "stowplan_gpu_idle_cards"
GPU_FRAGMENT_CARDS = "stowplan_gpu_fragment_cards"
RECORDING_BYTES = "stowplan_recording_bytes_total"
RECORDING_STOPPED = "stowplan_recording_stopped"

HELP = {
    # Looked up when the page is read.
    PENDING_PODS: "Number of pending pods, by the part of the scheduling queue that holds them.",
    INCOMING_PODS: "Number of pods added to a part of the scheduling queue, by event.",
    UNSCHEDULABLE_PODS: "Number of unschedulable pods, by plugin that rejected them and profile.",
    INFLIGHT_EVENTS: "Number of events in the in-flight log of the scheduling queue, by event.",
    CACHE_SIZE: "Number of nodes, pods and assumed pods in the scheduler cache (size), by type.",
    MASTER_STATUS: "1 if this process is the master (holds the lease), 0 if it is a standby.",
    REQUESTS: "Number of HTTP requests of the REST client, by status code, method and host.",
    INFORMER_OBJECTS: "Number of objects in the cache of an informer, by resource.",
    BUILD_INFO: "Build version of Stowplan; the value is always 1.",
    FAIRNESS_FINDINGS: (
        "Number of fairness findings of `stowplan diagnose`, by kind: repeated and mutual "
        "preemption, starving queues, long pending pods."
    ),
    GPU_CARDS: "Number of GPU cards of all nodes, with a profile that has GpuShare.",
    GPU_IDLE_CARDS: "What is left of all GPU cards, in cards.",
    GPU_FRAGMENT_CARDS: (
        "What of the idle GPU cards is expected to be of no use to typical pods, in cards, by "
        "cause: cpu_short, gpu_short, both_short, model, no_gpu_wanted."
    ),
    RECORDING_BYTES: "Number of bytes written to the recording (--record).",
    RECORDING_STOPPED: "1 if the recording stopped, as on a full disk; scheduling goes on.",
    # Counted along the way.
    metrics_recorder.ATTEMPTS: (
        "Number of attempts to schedule a pod, by result and profile: scheduled, unschedulable "
        "(no node fits) or error (the attempt failed)."
    ),
    metrics_recorder.ATTEMPT_SECONDS: (
        "Duration of a scheduling attempt in seconds (algorithm and binding), by result."
    ),
    metrics_recorder.ALGORITHM_SECONDS: (
        "Duration of the scheduling algorithm for one pod in seconds, without binding."
    ),
    metrics_recorder.SLI_SECONDS: (
        "Duration in seconds from the first attempt of a pod until it is bound, by number of "
        "scheduling attempts."
    ),
    metrics_recorder.POD_ATTEMPTS: "Number of attempts that it took to schedule a pod.",
    metrics_recorder.AFTER_FLUSH: (
        "Number of pods scheduled after the periodic flush of unschedulable pods requeued them."
    ),
    metrics_recorder.PREEMPTIONS: "Number of preemption attempts in the cluster.",
    metrics_recorder.VICTIMS: "Number of victims selected by one preemption.",
    metrics_recorder.CLAIM_CREATES: (
        "Number of ResourceClaims created for extended resources, by status: success or failure."
    ),
    metrics_recorder.CONDITION_ALLOCATIONS: (
        "Number of allocated devices with binding conditions per attempt, by profile, driver and "
        "status: success, failure, timeout or error."
    ),
    metrics_recorder.CONDITION_SECONDS: (
        "Duration of the wait for binding conditions of devices in seconds, by profile, driver and "
        "status."
    ),
    metrics_recorder.CONFIGURATION_RELOADS: (
        "Number of changed configurations, by result: applied, or refused (the last valid one "
        "stays in force)."
    ),
    profiles.EVALUATIONS: (
        "Number of evaluations of a pod by a plugin, by extension point and profile."
    ),
    profiles.PLUGIN_SECONDS: (
        "Duration of a plugin at an extension point in seconds, sampled in one of ten attempts."
    ),
    profiles.POINT_SECONDS: (
        "Duration of all plugins of an extension point in seconds, by extension point and status."
    ),
    machines.EVENT_SECONDS: "Duration of handling a watch event in seconds, by event.",
    machines.PERMIT_SECONDS: "Duration that a pod waits at Permit in seconds, by result.",
    machines.GROUP_ATTEMPTS: "Number of attempts to schedule pod groups, by result and profile.",
    machines.GROUP_ATTEMPT_SECONDS: (
        "Duration of an attempt to schedule a pod group in seconds, by result and profile."
    ),
    machines.GROUP_ALGORITHM_SECONDS: (
        "Duration of the scheduling algorithm for a pod group in seconds."
    ),
    # Sessions.
    sessions.E2E_LATENCY: "End-to-end (e2e) latency of a session in milliseconds.",
    sessions.ATTEMPTS: "Number of attempts of sessions to schedule a task, by result.",
    sessions.PREEMPTIONS: "Total number of preemption attempts by sessions.",
    sessions.VICTIMS: "Number of preemption victims selected by the last session.",
    sessions.UNREADY_TASKS: "Number of tasks that the last session could not schedule, by job.",
    sessions.UNREADY_JOBS: "Number of jobs that the last session could not schedule.",
    sessions.RETRIES: "Number of retries of a job that could not be scheduled, by job.",
    sessions.ACTION_LATENCY: "Latency of an action of a session in microseconds, by action.",
    sessions.PLUGIN_LATENCY: (
        "Latency of a session plugin in microseconds, by plugin and callback (OnSession)."
    ),
    session_lane.TASK_LATENCY: (
        "Latency of a task in microseconds, from its first sight until its binding begins."
    ),
}


def help_of(name: str) -> str:
    """The HELP text of a metric; a plugin's own metric without a text is named by its name."""
    return HELP.get(name, f"{name} (no description).")
