"""Folders with results, as `simulate --out` and `stowplan experiment` write them."""

import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import yaml
from msgspec.structs import replace

from stowplan.experiments.experiment_run import experiment
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.cluster_reader import Cluster
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import Simulation, simulate
from stowplan.testing import builders

MARKUP = "<img src=x onerror=alert(1)>"
CLOSING = "</script><script>alert(2)</script>"
POLICIES = ("default", MARKUP)
START = datetime(2026, 1, 1, tzinfo=UTC)


def small_cluster(n_pods: int = 60, n_nodes: int = 5) -> Cluster:
    """A node and a namespace have markup as their name. Pods come each minute, and end."""
    nodes = [builders.node(f"n{k}", cpu="4", memory="16Gi") for k in range(n_nodes)]
    nodes.append(builders.node(MARKUP, cpu="4", memory="16Gi"))
    pods = []
    for k in range(n_pods):
        namespace = (MARKUP, "research", "web")[k % 3]
        pod = builders.pod(f"p{k}", namespace=namespace, cpu=f"{1 + k % 3}", memory="2Gi")
        metadata = replace(
            pod.metadata,
            creation_timestamp=START + timedelta(minutes=k),
            annotations={RUN_ANNOTATION: str(600 + 60 * (k % 7))},
        )
        pods.append(replace(pod, metadata=metadata))
    pods.append(builders.pod("too-big", cpu="64"))
    return Cluster(nodes, pods)


@cache
def replayed(seed: int = 0, speedup: float = 1.0) -> Simulation:
    # A sample each minute, as pods arrive: more are most of the time of so small a replay.
    options = ReplayOptions(speedup=speedup, sample_s=60.0)
    return simulate(small_cluster(), seed=seed, replay=options)


@cache
def filled() -> Simulation:
    return simulate(small_cluster())


def run_folder(path: Path) -> Path:
    replayed().write(path)
    return path


def experiment_folder(path: Path) -> Path:
    """Two policies, two seeds, one run that failed; the second policy is a replay twice as fast."""
    runs, rows = [], ["policy,workload,queue,seed,measure,value"]
    for policy, speedup in zip(POLICIES, (1.0, 2.0), strict=True):
        for seed in (0, 1):
            key = f"k{speedup:g}{seed}"
            result = replayed(seed if speedup == 1 else 0, speedup)
            result.write(path / "runs" / key)
            cell = {"policy": policy, "workload": "small", "options": {"queue": 1}, "seed": seed}
            runs.append({"key": key, "status": "done", **cell})
            mean = result.summary["waits_s"]["mean"] + seed
            rows.append(f"{policy},small,1,{seed},wait_s.mean,{mean}")
            rows.append(f"{policy},small,1,{seed},placed,{result.summary['placed']}")
    bad = {"key": "bad", "status": "failed", "policy": MARKUP, "workload": "small", "seed": 9}
    runs.append({**bad, "options": {"queue": 1}})
    write_json(path / "failures" / "bad.json", {"error": f"plugin failed: {CLOSING}"})
    described = {"title": f"Small {CLOSING}", "policies": POLICIES, "runs": runs}
    described |= {"command": "stowplan experiment small.yaml", "versions": {"stowplan": "0"}}
    write_json(path / "experiment.json", described)
    (path / "measures.csv").write_text("\n".join(rows) + "\n")
    write_json(path / "comparison.json", comparison())
    return path


def executed_experiment(path: Path) -> Path:
    """What `stowplan.experiment` leaves of two workloads, policies and seeds."""
    sizes = {"small": {"nodes": 3, "pods": 9}, "large": {"nodes": 4, "pods": 12}}
    packing = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": packing}}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"pluginConfig": [fit]}],
    }
    plan = {
        "title": "Two by two by two",
        "mode": "replay",
        "workloads": [{"name": name, "generated": size} for name, size in sizes.items()],
        "policies": ["default", {"name": "packing", "configuration": configuration}],
        "options": {"sampleEvery": "12h"},
        "seeds": 2,
    }
    return experiment(plan, out=path, jobs=2).folder


def queued_experiment(path: Path) -> Path:
    """Pods of two queues by kube-scheduler, and by a profile that serves none of them."""
    offer = {"cpu": "4", "memory": "16Gi", "pods": "20"}
    status = {"allocatable": offer, "capacity": offer}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status}
    text = [yaml.safe_dump(node)]
    for k in range(12):
        labels = {"kai.scheduler/queue": f"team-{'ab'[k % 2]}"}
        meta = {"name": f"p{k}", "labels": labels, "annotations": {RUN_ANNOTATION: "300"}}
        meta["creationTimestamp"] = (START + timedelta(minutes=k)).isoformat()
        requests = {"cpu": f"{1 + k % 2}"}
        spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        text.append(yaml.safe_dump(pod))
    (path / "trace.yaml").write_text("---\n".join(text))
    idle = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "other"}],
    }
    plan = {
        "mode": "replay",
        "workloads": [{"name": "trace", "files": [str(path / "trace.yaml")]}],
        "policies": [{"name": "fair"}, {"name": "idle", "configuration": idle}],
        "seeds": 1,
    }
    return experiment(plan, out=path / "out", jobs=1).folder


def comparison() -> dict[str, object]:
    measure = {
        "measure": "wait_s.mean",
        "seeds": 2,
        "meanA": 10.0,
        "meanB": 15.0,
        "difference": 5.0,
        "low": 4.0,
        "high": 6.0,
        "relative": 0.5,
        "relativeLow": 0.4,
        "relativeHigh": 0.6,
        "p": 0.5,
        "pCorrected": 0.5,
        "effect": None,
        "isDifferent": True,
        "verdict": f"{MARKUP} waits 50 % more (95 % CI 40 to 60)",
    }
    result = {
        "policy": MARKUP,
        "baseline": "default",
        "workload": "small",
        "options": {"queue": "1"},
        "seeds": [1, 2],
        "measures": [measure],
        "verdict": f"{MARKUP} against default: waits more",
        "notes": ["2 seeds cannot show a difference"],
    }
    return {"baseline": "default", "policies": list(POLICIES), "results": [result]}


def write_json(path: Path, tree: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(tree))
