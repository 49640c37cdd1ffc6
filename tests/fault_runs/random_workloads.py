"""Nodes and workloads of a fault run, drawn from its seed: every kind that has a controller."""

from __future__ import annotations

from typing import Any

import numpy as np

Tree = dict[str, Any]

NODE_MILLI_CPU = 6000
N_ZONES = 2
CRON_JOB_HISTORY = 2
"""Successful Jobs that a CronJob keeps."""


def random_objects(rng: np.random.Generator) -> list[Tree]:
    """Nodes, of which some fail and come back, and workloads that fit the nodes."""
    objects = _nodes(rng)
    for at in range(int(rng.integers(1, 3))):
        first, second = (int(each) for each in rng.integers(0, 8, 2))
        notes = {"stowplan.dev/replica-changes": f"{int(rng.integers(5, 200))}={second}"}
        objects.append(deployment(f"web-{at}", first, notes))
    for at in range(int(rng.integers(0, 3))):
        notes = {"stowplan.dev/arrival-seconds": str(int(rng.integers(0, 100)))}
        objects.append(job(f"train-{at}", int(rng.integers(1, 6)), notes))
    if rng.random() < 0.6:
        objects.append(_stateful_set(rng))
    if rng.random() < 0.5:
        objects.append(daemon_set("agent"))
    if rng.random() < 0.5:
        policy = ("Allow", "Forbid", "Replace")[int(rng.integers(3))]
        # A run that takes longer than a minute meets the next start.
        objects.append(cron_job("report", policy, int(rng.integers(5, 100))))
    return objects


def _nodes(rng: np.random.Generator) -> list[Tree]:
    amounts = {"cpu": f"{NODE_MILLI_CPU}m", "memory": "16Gi", "pods": "40"}
    status = {"capacity": amounts, "allocatable": amounts}
    n_nodes = int(rng.integers(3, 7))
    fails, together = rng.random() < 0.5, int(rng.integers(10, 150))
    found: list[Tree] = []
    for at in range(n_nodes):
        zone = f"z{at % N_ZONES}"
        meta: Tree = {"name": f"n{at}", "labels": {"topology.kubernetes.io/zone": zone}}
        if fails and rng.random() < 0.5:
            # Some fail alone, others with a part of their zone.
            off = together if rng.random() < 0.6 else int(rng.integers(10, 150))
            text = f"{off}=off, {off + int(rng.integers(5, 500))}=on"
            meta["annotations"] = {"stowplan.dev/kubelet-changes": text}
        found.append({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status})
    return found


def template(name: str, milli_cpu: int = 500, run_s: int | None = None, **spec: Any) -> Tree:
    resources = {"requests": {"cpu": f"{milli_cpu}m", "memory": "64Mi"}}
    container = {"name": "c", "image": "i", "resources": resources}
    notes = {} if run_s is None else {"stowplan.dev/run-seconds": str(run_s)}
    meta = {"labels": {"app": name}, "annotations": notes}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def _made(version: str, kind: str, name: str, spec: Tree, notes: dict[str, str]) -> Tree:
    meta = {"name": name, "annotations": notes}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def deployment(name: str, replicas: int, notes: dict[str, str]) -> Tree:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}}
    spec |= {"template": template(name)}
    return _made("apps/v1", "Deployment", name, spec, notes)


def job(name: str, completions: int, notes: dict[str, str]) -> Tree:
    spec = {"completions": completions, "parallelism": 2, "backoffLimit": 1000}
    spec |= {"template": template(name, run_s=20, restartPolicy="Never")}
    return _made("batch/v1", "Job", name, spec, notes)


def _stateful_set(rng: np.random.Generator) -> Tree:
    policy = ("OrderedReady", "Parallel")[int(rng.integers(2))]
    first, second = (int(each) for each in rng.integers(1, 5, 2))
    spec = {"replicas": first, "serviceName": "db", "podManagementPolicy": policy}
    spec |= {"selector": {"matchLabels": {"app": "db"}}, "template": template("db", 250)}
    notes = {"stowplan.dev/replica-changes": f"{int(rng.integers(5, 200))}={second}"}
    return _made("apps/v1", "StatefulSet", "db", spec, notes)


def daemon_set(name: str) -> Tree:
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template(name, 250)}
    return _made("apps/v1", "DaemonSet", name, spec, {})


def cron_job(name: str, policy: str, run_s: int) -> Tree:
    pods = template(name, 250, run_s, restartPolicy="Never")
    job_spec = {"completions": 1, "backoffLimit": 1000, "template": pods}
    spec = {"schedule": "* * * * *", "concurrencyPolicy": policy}
    spec |= {"successfulJobsHistoryLimit": CRON_JOB_HISTORY, "jobTemplate": {"spec": job_spec}}
    return _made("batch/v1", "CronJob", name, spec, {})
