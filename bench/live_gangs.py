"""Gangs by kube-scheduler and by `stowplan bench`: `python bench/live_gangs.py [SHAPE...]`.

KUBE_APISERVER, ETCD and KUBE_SCHEDULER name the programs. For each shape, in turn: the nodes,
groups and pods of the benchmark are created on a new API server with the gates on, kube-scheduler
is started with all of them waiting (5,000 requests a second allowed, as in its own benchmark), and
its rate is taken from its metrics; the server is stopped, and `stowplan bench SHAPE` is run.

Three rates of kube-scheduler are printed. elapsed: from its first binding to its last one, beside
the API server on the same cores. algorithm: pods by the sum of
scheduler_podgroup_scheduling_algorithm_duration_seconds, which has neither queue nor binding.
processor: pods by processor time of the process from its start on. Ours are pods by the elapsed
time in `Scheduler.handle`, queue, cache and all effects included, without an API server, and by
processor time. The factors are those to elapsed, algorithm and processor; on a machine with other
work the last one says most.
"""

import asyncio
import gc
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from live_rate import NODES, cpu_s, post_all
from live_real import ORIGINAL_CONFIGURATION, free_port, program, real_server

from stowplan.benchmarks.benchmark_objects import BenchmarkClient
from stowplan.benchmarks.benchmark_workload import BenchmarkCase, WorkloadSizes
from stowplan.benchmarks.catalog import CASES
from stowplan.benchmarks.measurement import ENGINES, prepare_run, run_once, warmup_sizes
from stowplan.client.requests import ApiRequest
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.messages.events import NodeAdded, ObjectAdded, PodAdded
from stowplan.objects.encoding.json_codec import encode
from stowplan.objects.meta import Object

SHAPES = ("1000x3", "2000x3", "3000x3", "9x1000", "10x5000")
PROCESSOR = "--processor"
PATIENCE_S = 3600.0
POLLING_S = 0.05
SETTLING_S = 5.0
BOUND = r'scheduler_schedule_attempts_total\{.*result="scheduled"\} (\S+)'
ALGORITHM = r"scheduler_podgroup_scheduling_algorithm_duration_seconds_sum (\S+)"
ATTEMPT = (
    r'scheduler_podgroup_scheduling_attempt_duration_seconds_sum\{.*result="scheduled"\} (\S+)'
)


class Original(NamedTuple):
    """Figures of kube-scheduler, in seconds. attempts: group cycles, with what follows them."""

    elapsed: float
    algorithm: float
    attempts: float
    processor: float


def gates_of(case: BenchmarkCase) -> str:
    """The value of --feature-gates."""
    names = ["GenericWorkload", "GangScheduling"]
    if case.gates.topology_aware_workload_scheduling:
        names.append("TopologyAwareWorkloadScheduling")
    return ",".join(f"{name}=true" for name in names)


def trees_of(values: list[Object], api_version: str, kind: str) -> list[dict]:
    """JSON trees as a client sends them."""
    trees = []
    for value in values:
        tree = json.loads(encode(value))
        tree |= {"apiVersion": api_version, "kind": kind}
        for key in ("uid", "creationTimestamp", "resourceVersion"):
            tree["metadata"].pop(key, None)
        if kind != "Node":
            tree.pop("status", None)
        trees.append(tree)
    return trees


async def create(api: ApiClient, case: BenchmarkCase) -> None:
    """Create the objects of a case: its nodes, its groups, then its pods."""
    workload = case.make(BenchmarkClient(), WorkloadSizes(case.nodes, case.pods))
    nodes = [event.node for event in workload.before if isinstance(event, NodeAdded)]
    groups = [event.value for event in workload.before if isinstance(event, ObjectAdded)]
    pods = [
        event.pod for call in workload.calls for event in call.events if isinstance(event, PodAdded)
    ]
    namespace = pods[0].metadata.namespace
    meta = {"metadata": {"name": namespace}}
    await post_all(api, "/api/v1/namespaces", [meta])
    group = "scheduling.k8s.io/v1alpha2"
    path = f"/apis/{group}/namespaces/{namespace}/podgroups"
    await post_all(api, NODES, trees_of(list(nodes), "v1", "Node"))
    await post_all(api, path, trees_of(list(groups), group, "PodGroup"))
    await post_all(api, f"/api/v1/namespaces/{namespace}/pods", trees_of(list(pods), "v1", "Pod"))


async def metrics(api: ApiClient) -> str:
    """kube-scheduler's metrics; "" while it does not answer."""
    answer = await api.send(ApiRequest("GET", "/metrics"))
    return answer.body.decode() if answer.is_done else ""


def value_of(pattern: str, text: str) -> float:
    """A metric; 0 while it has no value."""
    found = re.search(pattern, text)
    return float(found[1]) if found else 0.0


async def original(directory: Path, case: BenchmarkCase) -> Original:
    """kube-scheduler places the pods of a case on a new API server."""
    gates = gates_of(case)
    serving = (f"--feature-gates={gates}", "--runtime-config=scheduling.k8s.io/v1alpha2=true")
    programs = os.environ["KUBE_APISERVER"], os.environ["ETCD"]
    async with (
        real_server(directory, *programs, *serving) as (file, *_),
        ApiClient(load_client_config(file)) as api,
    ):
        await create(api, case)
        await asyncio.sleep(SETTLING_S)
        port = free_port()
        configuration, own = directory / "scheduler.yaml", directory / "scheduler.kubeconfig"
        configuration.write_text(ORIGINAL_CONFIGURATION.format(file=file))
        server = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", Path(file).read_text())
        own.write_text(server)
        command = (
            os.environ["KUBE_SCHEDULER"],
            f"--config={configuration}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "--authorization-always-allow-paths=/metrics",
            f"--feature-gates={gates}",
        )
        async with (
            program(directory, "kube-scheduler", *command) as pid,
            ApiClient(load_client_config(str(own))) as scheduler,
        ):
            return await followed(scheduler, pid, case.pods)


async def followed(scheduler: ApiClient, pid: int, n_pods: int) -> Original:
    """Wait until all pods are bound."""
    began = last = time.perf_counter()
    text, n_bound = "", 0.0
    while n_bound < n_pods:
        if time.perf_counter() > last + PATIENCE_S:
            raise SystemExit(f"{n_bound:.0f} of {n_pods} pods are bound")
        await asyncio.sleep(POLLING_S)
        text = await metrics(scheduler)
        n_bound = value_of(BOUND, text)
        if not n_bound:
            began = time.perf_counter()
    elapsed = time.perf_counter() - began
    return Original(elapsed, value_of(ALGORITHM, text), value_of(ATTEMPT, text), cpu_s(pid))


async def output_of(*command: str) -> bytes:
    """What a command of this Python prints."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    assert child.returncode == 0, out
    return out


async def ours(name: str) -> tuple[float, float]:
    """Pods per second of `stowplan bench`, and per second of processor time."""
    report = await output_of("-m", "stowplan", "bench", name, "-o", "json")
    processor = await output_of(__file__, PROCESSOR, name)
    return float(json.loads(report)["results"][0]["pods_per_s"]), float(processor)


def processor_rate(case: BenchmarkCase) -> float:
    """Pods per second of processor time in this process, the best of three runs."""
    sizes, best = WorkloadSizes(case.nodes, case.pods), float("inf")
    run_once(case, warmup_sizes(sizes), ENGINES[0])
    for _ in range(3):
        play, _ = prepare_run(case, sizes)
        began = time.process_time()
        play.run()
        best = min(best, time.process_time() - began)
        gc.unfreeze()
    return case.pods / best


async def main(names: list[str]) -> None:
    missing = [
        name
        for name in ("KUBE_APISERVER", "ETCD", "KUBE_SCHEDULER")
        if not shutil.which(os.environ.get(name, ""))
    ]
    if missing:
        print(f"Nothing to compare with: {', '.join(missing)} name no programs.")
        return
    print("| shape | elapsed | algorithm | processor | ours, and by processor | factors | load |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            took = await original(Path(folder), case)
        rate, processor = await ours(name)
        rates = [case.pods / s for s in (took.elapsed, took.algorithm, took.processor)]
        pairs = zip((rate, rate, processor), rates, strict=True)
        factors = ", ".join(f"{own / one:.0f}" for own, one in pairs)
        cells = [name, *(f"{one:.0f}" for one in rates), f"{rate:,.0f}, {processor:,.0f}", factors]
        print(f"| {' | '.join(cells)} | {os.getloadavg()[0]:.1f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == [PROCESSOR]:
        print(processor_rate(CASES[sys.argv[2]]))
        sys.exit()
    asyncio.run(main(sys.argv[1:] or [f"GangScheduling{shape}" for shape in SHAPES]))
