"""Schedulers on a real API server: `python bench/live_real.py [PODS [NODES [ROUNDS [SECONDS]]]]`.

KUBE_APISERVER and ETCD name the programs of the server, KUBE_SCHEDULER the original beside ours.
Without the first two nothing is measured, without the third only ours and two clients that decide
nothing: one posts the same bindings and events, one the bindings alone.

Before the first round `stowplan run` is started once for one pod, so that what is made once per
machine is there: bytecode, which pip writes when it installs a package, and compiled kernels.

In each round, in turn on one server: the pods are created, the contender is started with all of
them waiting (a cold start), and they are deleted again when the last event has arrived. Rates are
counted from the start of the process, and from the first binding. Then pods arrive at constant
rates. Times of bindings are those of the watch; events are counted, ten times a second after the
last binding. Processor time is that of the contender and of the API server per thousand pods, up to
the last event. kube-scheduler may send 5,000 requests a second, as in its own benchmark.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from live_rate import AT_ONCE, NODES, PODS, cpu_s, listed, n_events, node, pod, post_all

from stowplan.client.event_correlator import EventCorrelator
from stowplan.client.requests import JSON, ApiRequest, bind, watch_request
from stowplan.client.resources import PODS as POD_RESOURCE
from stowplan.client.responses import ApiResponse
from stowplan.client.watch_decoding import LineSplitter
from stowplan.driver.background_tasks import background_tasks
from stowplan.driver.certificate import self_signed_certificate
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.clocks import request_time
from stowplan.messages.effects import Bind, RecordEvent
from stowplan.simulation import kernel_cache

TOKEN, SCHEDULER_TOKEN = "token-of-the-admin", "token-of-the-scheduler"
ACCOUNT = "system:serviceaccount:stowplan-system:stowplan"
HTTP_GATEWAY_TIMEOUT = 504
READY_S = 120.0
PATIENCE_S = 600.0
WATCH_S = 3600
DELETIONS_MAX = 10
"""Requests to delete all pods, of which each deletes for a minute at most."""
EVENTS_POLL_S = 0.1
EVENTS_END_S = 5.0
"""Without a new event for this long, the missing ones were dropped."""
RATES = (100, 300, 500)
BINDER, CLIENT = "client of bindings alone", "client of bindings and events"
OURS, ORIGINAL = "stowplan", "kube-scheduler"
SCHEDULER_NAMES = {BINDER: "none", CLIENT: "none", OURS: "stowplan", ORIGINAL: "default-scheduler"}
AIM_OF_CLIENT, AIM_OF_ORIGINAL, SMALL_AIM_OF_ORIGINAL = 0.9, 4.0, 3.0
LARGE_NODES = 5000
"""Aimed ratios of our rate to theirs; the last for fewer nodes."""

ORIGINAL_CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: {file}, qps: 5000, burst: 5000}}
"""
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: real
clusters: [{{name: real, cluster: {{server: "https://127.0.0.1:{port}",
  insecure-skip-tls-verify: true}}}}]
users: [{{name: admin, user: {{token: {token}}}}}]
contexts: [{{name: real, context: {{cluster: real, user: admin}}}}]
"""


class CpuTimes(NamedTuple):
    """Processor time in seconds of the contender, the API server and its store."""

    contender: float
    server: float
    store: float

    def since(self, before: CpuTimes, n_thousands: float) -> CpuTimes:
        """What was used for each thousand since an earlier time."""
        return CpuTimes(*((b - a) / n_thousands for a, b in zip(before, self, strict=True)))

    def __str__(self) -> str:
        return f"{self.contender:.2f} s + {self.server:.2f} s server + {self.store:.2f} s etcd"


class RealServer(NamedTuple):
    """kubeconfig: file for its administrator. pid, store_pid: of kube-apiserver and etcd."""

    kubeconfig: str
    pid: int
    store_pid: int

    def used(self, contender: int = 0) -> CpuTimes:
        """Processor time until now. contender: pid, 0 for one that has not started."""
        return CpuTimes(cpu_s(contender) if contender else 0.0, *map(cpu_s, self[1:]))


class Contender(NamedTuple):
    """A contender's run. first_s: from its start to the first binding. started_per_s: pods bound
    per second from its start to the last binding, per_s: from the first binding to the last,
    complete_per_s: from the first binding to the last event. n_events: that arrived; events_s: from
    the last binding to the last event. bound_cpu_s, cpu_s: per 1,000 pods, from the first binding
    to the last, and from the start to the last event."""

    first_s: float
    started_per_s: float
    per_s: float
    complete_per_s: float
    n_events: int
    events_s: float
    bound_cpu_s: CpuTimes
    cpu_s: CpuTimes

    def __str__(self) -> str:
        return (
            f"{self.started_per_s:.0f} pods/s from the start, {self.per_s:.0f} from the first "
            f"binding, which came after {self.first_s:.2f} s; {self.n_events} events, "
            f"the last {self.events_s:.2f} s after the last binding ({self.complete_per_s:.0f} "
            f"pods/s with them); processor time per 1,000 pods {self.cpu_s}, of it from the first "
            f"binding to the last {self.bound_cpu_s}"
        )


class Began(NamedTuple):
    """When a run began. n_events: that there were. used: processor time until then."""

    at: float
    n_events: int
    used: CpuTimes


class SeenMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""


class SeenSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class SeenPod(msgspec.Struct, frozen=True):
    """What is read of a pod: the time for the rest would be taken from the contenders."""

    metadata: SeenMeta = SeenMeta()
    spec: SeenSpec = SeenSpec()


class SeenChange(msgspec.Struct, frozen=True):
    type: str
    object: SeenPod


class Bindings:
    """Times at which the watch showed pods bound. names: of the pods that exist."""

    def __init__(self) -> None:
        self.bound_at: dict[str, float] = {}
        self.names: set[str] = set()
        self._decoder = msgspec.json.Decoder(SeenChange)

    async def follow(self, api: ApiClient) -> None:
        """Watch all pods."""
        version = (await listing_meta(api)).resource_version
        while True:
            lines = LineSplitter()
            async with api.stream(watch_request(POD_RESOURCE, version, WATCH_S)) as stream:
                assert not isinstance(stream, ApiResponse), stream
                while data := await stream.readany():
                    for line in lines.feed(data):
                        version = self._seen(self._decoder.decode(line)) or version

    def _seen(self, change: SeenChange) -> str:
        """Note a change; returns the version of its object."""
        pod = change.object
        name = pod.metadata.name
        if change.type == "DELETED":
            self.names.discard(name)
        elif change.type in ("ADDED", "MODIFIED"):
            self.names.add(name)
            if pod.spec.node_name:
                self.bound_at.setdefault(name, time.perf_counter())
        else:
            assert change.type == "BOOKMARK", change.type
        return pod.metadata.resource_version

    async def wait(self, n_bound: int) -> None:
        """Wait until so many pods are bound."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.bound_at) < n_bound:
                await asyncio.sleep(0.01)

    async def wait_empty(self) -> None:
        """Wait until no pod exists."""
        async with asyncio.timeout(PATIENCE_S):
            while self.names:
                await asyncio.sleep(0.05)
        self.bound_at.clear()


@asynccontextmanager
async def program(directory: Path, name: str, *command: str) -> AsyncIterator[int]:
    """The pid of a running program."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(directory / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with (directory / f"{name}.log").open("ab") as log:
        child = await asyncio.create_subprocess_exec(
            *command, stdout=log, stderr=log, env=environment
        )
    try:
        yield child.pid
        if child.returncode is not None:
            raise SystemExit(f"{name} ended: {(directory / f'{name}.log').read_text()[-2000:]}")
    finally:
        if child.returncode is None:
            child.terminate()
            await child.wait()


@asynccontextmanager
async def real_server(
    directory: Path, apiserver: str, etcd: str, *flags: str
) -> AsyncIterator[RealServer]:
    """A new API server with its store. flags: further ones of the server."""
    store, peer, port = free_port(), free_port(), free_port()
    key, tokens, file = directory / "key", directory / "tokens", directory / "kubeconfig"
    key.write_text(self_signed_certificate(["localhost"], time.time()).key)
    tokens.write_text(f'{TOKEN},admin,0,"system:masters"\n{SCHEDULER_TOKEN},{ACCOUNT},1\n')
    file.write_text(KUBECONFIG.format(port=port, token=TOKEN))
    data = (
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{store}",
        f"--advertise-client-urls=http://127.0.0.1:{store}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        "--quota-backend-bytes=8000000000",
        "--log-level=error",
    )
    serving = (
        f"--etcd-servers=http://127.0.0.1:{store}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={directory / 'certificates'}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        "--service-account-issuer=https://localhost",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1000",
        *flags,
    )
    async with (
        program(directory, "etcd", etcd, *data) as store_pid,
        program(directory, "kube-apiserver", apiserver, *serving) as pid,
        ApiClient(load_client_config(str(file))) as api,
    ):
        async with asyncio.timeout(READY_S):
            while not (await api.send(ApiRequest("GET", "/readyz"))).is_done:
                await asyncio.sleep(0.3)
            # Made by the server itself, a moment after it is ready.
            while not (await api.send(ApiRequest("GET", "/api/v1/namespaces/default"))).is_done:
                await asyncio.sleep(0.3)
        yield RealServer(str(file), pid, store_pid)


async def listing_meta(api: ApiClient) -> SeenMeta:
    """Metadata of a list of pods."""
    answer = await api.send(ApiRequest("GET", PODS, (("limit", "1"),)))
    assert answer.is_done, answer.fault
    return msgspec.json.decode(answer.body, type=SeenPod).metadata


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def command_of(name: str, directory: Path, file: str) -> tuple[str, ...]:
    """How to start a scheduler."""
    if name == OURS:
        run = ("run", "--kubeconfig", file, "--listen", "0", "--no-leader-elect")
        return (sys.executable, "-m", "stowplan", *run)
    configuration = directory / "scheduler.yaml"
    configuration.write_text(ORIGINAL_CONFIGURATION.format(file=file))
    return (os.environ["KUBE_SCHEDULER"], f"--config={configuration}", "--secure-port=0")


def kernels_are_on_disk() -> bool:
    return kernel_cache.is_exported() and kernel_cache.is_cached()


def waiting(name: str, scheduler: str) -> dict:
    """A pod for a scheduler."""
    tree = pod(name, "bench")
    tree["spec"]["schedulerName"] = SCHEDULER_NAMES[scheduler]
    return tree


class RealRun:
    """Measurements on one server."""

    def __init__(self, directory: Path, server: RealServer, api: ApiClient) -> None:
        self._directory, self._server, self._api = directory, server, api
        self.bindings = Bindings()

    async def backlog(self, name: str, n_pods: int, kernels_s: float = 0.0) -> Contender:
        """A contender starts with all pods waiting. kernels_s: waits so long for the kernels that
        it compiles."""
        await post_all(self._api, PODS, [waiting(f"p{i}", name) for i in range(n_pods)])
        await asyncio.sleep(2)
        is_client = name in (BINDER, CLIENT)
        before, pid = await n_events(self._api), os.getpid() if is_client else 0
        began = Began(time.perf_counter(), before, self._server.used(pid))
        if is_client:
            has_events = name == CLIENT
            figures = self._figures(n_pods, pid, began, has_events=has_events)
            found, _ = await asyncio.gather(figures, self._post(has_events=has_events))
        else:
            command = command_of(name, self._directory, self._server.kubeconfig)
            async with program(self._directory, name, *command) as pid:
                found = await self._figures(n_pods, pid, began)
                ends = time.perf_counter() + kernels_s
                while time.perf_counter() < ends and not kernels_are_on_disk():
                    await asyncio.sleep(1)
        await self._clear()
        return found

    async def warm_up(self) -> None:
        """What `stowplan run` makes once per machine."""
        await self.backlog(OURS, 1, kernels_s=PATIENCE_S)

    async def _post(self, *, has_events: bool) -> None:
        """Bindings and events of a client that decides nothing."""
        items = json.loads((await self._api.send(ApiRequest("GET", NODES))).body)["items"]
        names = [item["metadata"]["name"] for item in items]
        pods = await listed(self._api)
        limit, correlator = asyncio.Semaphore(AT_ONCE), EventCorrelator("bench")

        async def one(i: int, meta: dict) -> None:
            uid, name, chosen = meta["uid"], meta["name"], names[i % len(names)]
            requests = [bind(Bind(i, 1, uid, "default", name, chosen), {})]
            if has_events:
                note = f"Successfully assigned default/{name} to {chosen}"
                words = ("Normal", "Scheduled", "Binding", note)
                now = request_time()
                event = RecordEvent(i, 1, uid, "default", name, "bench", *words)
                request = correlator.record(event, now.now, now.wall_ns, now.micros)
                assert request is not None
                requests.append(request)
            async with limit:
                for sent in requests:
                    answer = await self._api.send(sent)
                    assert answer.is_done, (answer.status, answer.fault, answer.body[:200])

        await asyncio.gather(*(one(i, item["metadata"]) for i, item in enumerate(pods)))

    async def _figures(
        self, n_pods: int, pid: int, began: Began, *, has_events: bool = True
    ) -> Contender:
        """Figures of a run of the process, when all pods are bound and the events have arrived."""
        await self.bindings.wait(1)
        at_first = self._server.used(pid)
        await self.bindings.wait(n_pods)
        bound = self._server.used(pid).since(at_first, n_pods / 1000)
        first, last = (pick(self.bindings.bound_at.values()) for pick in (min, max))
        n_found, last_event = 0, last
        now = time.perf_counter()
        while has_events and n_found < n_pods and now - last_event < EVENTS_END_S:
            found = await n_events(self._api) - began.n_events
            now = time.perf_counter()
            if found != n_found:
                n_found, last_event = found, now
            await asyncio.sleep(EVENTS_POLL_S)
        return Contender(
            first - began.at,
            n_pods / (last - began.at),
            n_pods / max(last - first, 1e-9),
            n_pods / max(last_event - first, 1e-9),
            n_found,
            last_event - last,
            bound,
            self._server.used(pid).since(began.used, n_pods / 1000),
        )

    async def latencies_ms(self, name: str, per_s: int, seconds: float) -> list[float]:
        """From the creation request to the watch event of the binding, at a constant rate."""
        sent: dict[str, float] = {}

        async def come(pod_name: str) -> None:
            sent[pod_name] = time.perf_counter()
            body = json.dumps(waiting(pod_name, name)).encode()
            answer = await self._api.send(ApiRequest("POST", PODS, (), body, JSON))
            assert answer.is_done, (answer.status, answer.fault)

        command = command_of(name, self._directory, self._server.kubeconfig)
        async with program(self._directory, name, *command):
            await come("first")
            await self.bindings.wait(1)
            begun, coming = time.perf_counter(), []
            for i in range(round(per_s * seconds)):
                await asyncio.sleep(max(0.0, begun + i / per_s - time.perf_counter()))
                coming.append(asyncio.create_task(come(f"p{i}")))
            await asyncio.gather(*coming)
            await self.bindings.wait(len(sent))
        del sent["first"]
        found = [1000 * (self.bindings.bound_at[one] - at) for one, at in sent.items()]
        await self._clear()
        return found

    async def _clear(self) -> None:
        query = (("gracePeriodSeconds", "0"),)
        request = ApiRequest("DELETE", PODS, query, timeout_s=PATIENCE_S)
        # The server ends the request after a minute, with pods left, or closes the connection.
        for _ in range(DELETIONS_MAX):
            answer = await self._api.send(request)
            if answer.is_done:
                break
            assert answer.status in (0, HTTP_GATEWAY_TIMEOUT), (answer.status, answer.fault)
        assert answer.is_done, answer.fault
        await self.bindings.wait_empty()


async def main(n_pods: int, n_nodes: int, rounds: int, seconds: float) -> None:
    apiserver, etcd = os.environ.get("KUBE_APISERVER", ""), os.environ.get("ETCD", "")
    if not (shutil.which(apiserver) and shutil.which(etcd)):
        print("No real API server: KUBE_APISERVER and ETCD name no programs.")
        return
    names = [BINDER, CLIENT, OURS] + [ORIGINAL] * bool(
        shutil.which(os.environ.get("KUBE_SCHEDULER", ""))
    )
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        async with (
            real_server(directory, apiserver, etcd) as server,
            ApiClient(load_client_config(server.kubeconfig)) as api,
            background_tasks() as tasks,
        ):
            await post_all(api, NODES, [node(f"n{i}") for i in range(n_nodes)])
            run = RealRun(directory, server, api)
            tasks.start(run.bindings.follow(api), "watch of pods")
            await run.warm_up()
            await report(run, names, n_pods, n_nodes, rounds, seconds)
            tasks.cancel()


async def report(
    run: RealRun, names: list[str], n_pods: int, n_nodes: int, rounds: int, seconds: float
) -> None:
    """Measure, and print rates, ratios and latencies."""
    found: dict[str, list[Contender]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            found[name].append(await run.backlog(name, n_pods))
            print(f"{name}: {found[name][-1]}", flush=True)

    def ratio(name: str, figure: str) -> float:
        ours, theirs = (
            statistics.median(getattr(run, figure) for run in found[one]) for one in (OURS, name)
        )
        return ours / theirs

    of_original = AIM_OF_ORIGINAL if n_nodes >= LARGE_NODES else SMALL_AIM_OF_ORIGINAL
    aims = {CLIENT: AIM_OF_CLIENT, ORIGINAL: of_original}
    for name in names:
        if name != OURS:
            aim = f"; aim {aims[name]:.1f}" if name in aims else ""
            print(
                f"{n_pods} pods on {n_nodes} nodes: {ratio(name, 'started_per_s'):.2f} of the rate "
                f"of {name} from the start{aim}; from the first binding "
                f"{ratio(name, 'per_s'):.2f}, to the last event {ratio(name, 'complete_per_s'):.2f}"
            )
    for per_s in RATES if seconds else ():
        for name in names:
            if name in (OURS, ORIGINAL):
                p50, p99 = np.percentile(await run.latencies_ms(name, per_s, seconds), (50, 99))
                print(f"{name} at {per_s} pods/s: p50 {p50:.0f} ms, p99 {p99:.0f} ms", flush=True)


if __name__ == "__main__":
    words = [float(word) for word in sys.argv[1:]]
    n_pods, n_nodes, rounds, seconds = (words + [10_000, 5000, 3, 20][len(words) :])[:4]
    asyncio.run(main(int(n_pods), int(n_nodes), int(rounds), seconds))
