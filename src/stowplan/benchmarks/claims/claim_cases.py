"""Cases with ResourceClaims: our own, and those of scheduler_perf. Writes of claims are answered by
their outcome and by the watch.

Source, of the cases with capitals in their names: kube-scheduler v1.36,
test/integration/scheduler_perf/dra.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stowplan.benchmarks.benchmark_objects import BenchmarkClient, Tree, pod_tree
from stowplan.benchmarks.benchmark_workload import (
    BATCH,
    BenchmarkCase,
    BenchmarkWorkload,
    HandleCall,
    WorkloadSizes,
    arriving_pods,
    event_workload,
    objects_added,
)
from stowplan.benchmarks.claims.claim_objects import (
    DRA_LABEL,
    DRIVER,
    MakeClaim,
    card,
    cards,
    claim_nodes,
    claim_tree,
    claiming_pods,
    device_class,
    device_cluster,
    events_of,
    node_slice,
    one_device,
    request_of,
    slice_of,
)
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.devices.device import ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.json_codec import decode, encode
from stowplan.objects.pod import Pod

N_DEVICES = 8
PERF_DEVICES = 10
"""Devices of a node in scheduler_perf (maxClaimsPerNode)."""
N_TEMPLATES = 20
N_PARTS = 7
STEADY_PODS = 10
"""Pods that come at a time where as many go."""
STEADY_CALLS = 5
"""Calls until pods that came are bound, and deleted again."""

SCORED_RESOURCE, N_CLASSES = "example.com/gpu", 20
SCORING = f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: LeastAllocated
        resources:
        - {{name: cpu, weight: 1}}
        - {{name: memory, weight: 1}}
        - {{name: {SCORED_RESOURCE}, weight: 1}}
"""

Made = Callable[[BenchmarkClient, WorkloadSizes], BenchmarkWorkload]
MakeCluster = Callable[[int], list[Event]]


def workload_of(
    before: list[Event], found: Sequence[tuple[ResourceClaim, Pod]]
) -> BenchmarkWorkload:
    """Pods with claims, which arrive in batches."""
    calls = [
        HandleCall(SECOND, events_of(found[first : first + BATCH]))
        for first in range(0, len(found), BATCH)
    ]
    return BenchmarkWorkload(before, calls, frozenset(pod.uid for _, pod in found))


def arriving(
    cluster: MakeCluster,
    make_claim: MakeClaim,
    n_first: int = 0,
    first_claim: MakeClaim | None = None,
) -> Made:
    """Pods with a claim each. n_first: pods that are placed before, per measured pod in percent.
    first_claim: the claims of these, where they differ."""

    def make(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
        before = cluster(sizes.nodes)
        n_before = sizes.pods * n_first // 100
        before += events_of(claiming_pods(client, "init", n_before, first_claim or make_claim))
        return workload_of(before, claiming_pods(client, "pod", sizes.pods, make_claim))

    return make


def equal_devices(n_devices: int) -> MakeCluster:
    """Nodes with so many equal devices."""
    return lambda n_nodes: device_cluster(n_nodes, cards(n_devices))


# Our own.


def of_templates(index: int) -> Tree:
    """Claims of twenty templates in turn."""
    number = index % N_TEMPLATES
    amount = {"requests": {"memory": f"{number + 1}Gi"}}
    return {"devices": {"requests": [request_of(f"r{number}", capacity=amount)]}}


def parted_cluster(n_nodes: int) -> list[Event]:
    """Nodes with a card in seven parts, which share its counters."""
    names, events = claim_nodes(n_nodes)
    counters = [{"name": "card", "counters": {"slices": {"value": str(N_PARTS)}}}]
    takes = [{"counterSet": "card", "counters": {"slices": {"value": "1"}}}]
    whole = [{"counterSet": "card", "counters": {"slices": {"value": str(N_PARTS)}}}]
    devices = [card("card", consumesCounters=whole, attributes={"whole": {"bool": True}})]
    parts = {"attributes": {"whole": {"bool": False}}, "capacity": {"memory": {"value": "10Gi"}}}
    devices += [card(f"part-{i}", consumesCounters=takes, **parts) for i in range(N_PARTS)]
    slices: list[ResourceSlice] = []
    for name in names:
        slices.append(slice_of(f"{name}-devices", name, 2, nodeName=name, devices=devices))
        slices.append(slice_of(f"{name}-counters", name, 2, nodeName=name, sharedCounters=counters))
    return events + objects_added([device_class(), *slices])


def one_part(index: int) -> Tree:
    """A part of a card."""
    text = f'!device.attributes["{DRIVER}"].whole'
    return {"devices": {"requests": [request_of(selectors=[{"cel": {"expression": text}}])]}}


def shared_cluster(n_nodes: int) -> list[Event]:
    """Nodes with cards that several claims may have."""
    return device_cluster(
        n_nodes, [card(f"gpu-{i}", allowMultipleAllocations=True) for i in range(N_DEVICES)]
    )


def a_share(index: int) -> Tree:
    """An eighth of a card."""
    amount = {"requests": {"memory": "10Gi"}}
    return {"devices": {"requests": [request_of(capacity=amount)]}}


def refused(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Claims for a device more than any node has."""

    def too_many(index: int) -> Tree:
        return {"devices": {"requests": [request_of(count=N_DEVICES + 1)]}}

    found = claiming_pods(client, "pod", sizes.pods, too_many)
    before = device_cluster(sizes.nodes, cards(N_DEVICES))
    return workload_of(before, found)._replace(refused=True)


# Those of scheduler_perf.


def steady(percent: int) -> Made:
    """Ten pods at a time come, and go once they are bound. percent: devices that are in use; of a
    full cluster all but ten."""

    def make(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
        n_all = sizes.nodes * PERF_DEVICES
        n_used = min(n_all * percent // 100, n_all - STEADY_CALLS * STEADY_PODS)
        before = device_cluster(sizes.nodes, cards(PERF_DEVICES))
        before += events_of(claiming_pods(client, "init", n_used, one_device))
        found = claiming_pods(client, "pod", sizes.pods, one_device)
        rounds = [found[i : i + STEADY_PODS] for i in range(0, len(found), STEADY_PODS)]
        calls = []
        for number, some in enumerate(rounds):
            # What came first is bound by now.
            over = rounds[number - STEADY_CALLS] if number >= STEADY_CALLS else []
            gone: list[Event] = []
            for claim, pod in over:
                gone += [happened.PodDeleted(pod), happened.ObjectDeleted(claim)]
            calls.append(HandleCall(SECOND, [*gone, *events_of(some)]))
        return BenchmarkWorkload(before, calls, frozenset(pod.uid for _, pod in found))

    return make


def by_reference(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Five pods share a claim."""

    def some(prefix: str) -> tuple[list[Event], list[Pod]]:
        n_claims = -(-sizes.pods // 5)
        names = [f"{prefix}-claim-{i}" for i in range(n_claims)]
        claims = [decode(encode(claim_tree(n, one_device(0))), ResourceClaim) for n in names]
        trees = []
        for index in range(sizes.pods):
            use = {"name": "devices", "resourceClaimName": names[index % n_claims]}
            trees.append(pod_tree(f"{prefix}-{index}", resourceClaims=[use]))
        return objects_added(claims), client.pods(trees)

    first, init = some("init")
    added, pods = some("pod")
    before = device_cluster(sizes.nodes, cards(2)) + first
    before += [happened.PodAdded(pod) for pod in init]
    return arriving_pods(before + added, pods)


def published(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Slices that arrive. pods: number of slices."""
    names, events = claim_nodes(sizes.pods)
    slices = [node_slice(name, cards(PERF_DEVICES)) for name in names]
    return event_workload(events, objects_added(slices))


def extended(n_classes: int, *, implicit: bool = False) -> Made:
    """Pods with an extended resource of one of many classes."""

    def make(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
        before = device_cluster(sizes.nodes, cards(PERF_DEVICES))
        names = [f"class-{i}" for i in range(n_classes)]
        resources = [f"example.com/gpu-{i}" for i in range(n_classes)]
        for name, resource in zip(names, resources, strict=True):
            fields = {} if implicit else {"extendedResourceName": resource}
            before += objects_added([device_class(name, **fields)])
        if implicit:
            resources = [f"deviceclass.resource.kubernetes.io/{name}" for name in names]
        trees = [pod_tree(f"pod-{i}", {resources[i % n_classes]: "1"}) for i in range(sizes.pods)]
        return arriving_pods(before, client.pods(trees))

    return make


def one_resource(client: BenchmarkClient, sizes: WorkloadSizes) -> BenchmarkWorkload:
    """Pods with one extended resource, which twenty classes provide."""
    before = device_cluster(sizes.nodes, cards(2 * PERF_DEVICES))
    provided = {"extendedResourceName": SCORED_RESOURCE}
    for i in range(N_CLASSES):
        before += objects_added([device_class(f"class-{i}", **provided)])
    trees = [pod_tree(f"pod-{i}", {SCORED_RESOURCE: "1"}) for i in range(sizes.pods)]
    return arriving_pods(before, client.pods(trees))


def first_available(index: int) -> Tree:
    """A device of a class that has none, else of one that has."""
    none = {**request_of()["exactly"], "name": "sub-0", "deviceClassName": "none"}
    some = {**request_of()["exactly"], "name": "sub-1"}
    return {"devices": {"requests": [{"name": "gpu", "firstAvailable": [none, some]}]}}


def with_empty_class(n_nodes: int) -> list[Event]:
    """Nodes with equal devices, and a class without any."""
    none = device_class("none", 'device.driver == "none.example.com"')
    return device_cluster(n_nodes, cards(PERF_DEVICES)) + objects_added([none])


def with_devices() -> Tree:
    """A selector of all nodes with devices."""
    term = {"matchExpressions": [{"key": DRA_LABEL, "operator": "In", "values": ["true"]}]}
    return {"nodeSelectorTerms": [term]}


def for_all(n_nodes: int, per_node: int, devices: Callable[[int], list[Tree]]) -> list[Event]:
    """Nodes that all reach the same slices. per_node: slices for each of them."""
    _, events = claim_nodes(n_nodes)
    reach = with_devices()
    slices = [
        slice_of(f"slice-{i}", f"slice-{i}", nodeSelector=reach, devices=devices(i))
        for i in range(n_nodes * per_node)
    ]
    return events + objects_added([device_class(), *slices])


def consumable(n_nodes: int) -> list[Event]:
    """Shared devices that all nodes reach, twenty per node."""
    policy = {"default": "1Gi", "validRange": {"min": "1Gi"}}
    memory = {"memory": {"value": "80Gi", "requestPolicy": policy}}
    return for_all(
        n_nodes, 20, lambda i: [card("shared", allowMultipleAllocations=True, capacity=memory)]
    )


COUNTERS = [f"counter{i}" for i in range(1, 5)]


def partitionable(n_nodes: int) -> list[Event]:
    """Pools that all nodes reach, twenty per node: a card of four counters, which devices of two or
    of one counter consume."""
    parts = [COUNTERS[:2], COUNTERS[2:], *([one] for one in COUNTERS)]
    return pools_for_all(
        n_nodes,
        20,
        {"card": dict.fromkeys(COUNTERS, "1")},
        [{"card": dict.fromkeys(names, "1")} for names in parts],
    )


def backtracking_pools(n_nodes: int) -> list[Event]:
    """A pool of eight devices of which seven fit into the memory, but not with the first one."""
    sizes = ["20Gi"] + 7 * ["10Gi"]
    takes = [{"cpu": {f"cpu{i}": "1"}, "memory": {"memory": size}} for i, size in enumerate(sizes)]
    whole = {"cpu": {f"cpu{i}": "1" for i in range(len(sizes))}, "memory": {"memory": "70Gi"}}
    return pools_for_all(n_nodes, 1, whole, takes)


def pools_for_all(
    n_nodes: int,
    per_node: int,
    counters: dict[str, dict[str, str]],
    takes: list[dict[str, dict[str, str]]],
) -> list[Event]:
    """Nodes that all reach the same pools with counters. per_node: pools for each of them. takes:
    what each device of a pool consumes, by set and counter."""
    _, events = claim_nodes(n_nodes)
    reach = {"nodeSelector": with_devices()}
    sets = [{"name": name, "counters": _amounts(held)} for name, held in counters.items()]
    slices: list[ResourceSlice] = []
    for i in range(n_nodes * per_node):
        devices = [
            card(
                f"device-{number}",
                attributes={"dra.example.com/slice": {"int": i}, "first": {"bool": number == 0}},
                capacity={"counters": {"value": str(sum(map(len, taken.values())))}},
                consumesCounters=[
                    {"counterSet": name, "counters": _amounts(held)} for name, held in taken.items()
                ],
            )
            for number, taken in enumerate(takes)
        ]
        pool = f"pool-{i}"
        slices += [
            slice_of(f"counters-{i}", pool, 2, sharedCounters=sets, **reach),
            slice_of(f"devices-{i}", pool, 2, devices=devices, **reach),
        ]
    return events + objects_added([device_class(), *slices])


def _amounts(held: dict[str, str]) -> Tree:
    return {name: {"value": value} for name, value in held.items()}


def two_parts(index: int) -> Tree:
    """Two devices of one card."""
    constraints = [{"requests": ["gpu"], "matchAttribute": "dra.example.com/slice"}]
    return {"devices": {"requests": [request_of(count=2)], "constraints": constraints}}


def first_part(index: int) -> Tree:
    """The first device of a card, which has two of its counters."""
    text = f'device.attributes["{DRIVER}"].first'
    return {"devices": {"requests": [request_of(selectors=[{"cel": {"expression": text}}])]}}


def seven_devices(index: int) -> Tree:
    """Seven devices."""
    return {"devices": {"requests": [request_of(count=7)]}}


def two_halves(index: int) -> Tree:
    """Two halves of shared devices."""
    amount = {"requests": {"memory": "40Gi"}}
    names = ("req-0", "req-1")
    return {"devices": {"requests": [request_of(name, capacity=amount) for name in names]}}


def tainted(n_nodes: int) -> list[Event]:
    """Nodes with tainted devices."""
    taint = {"key": "example.com/taint", "value": "tainted", "effect": "NoSchedule"}
    return device_cluster(n_nodes, [card(f"gpu-{i}", taints=[taint]) for i in range(PERF_DEVICES)])


def tolerating(index: int) -> Tree:
    """A device that may be tainted."""
    tolerations = [{"key": "example.com/taint", "operator": "Exists"}]
    return {"devices": {"requests": [request_of(tolerations=tolerations)]}}


CLAIM_CASES = (
    BenchmarkCase(
        "dra",
        "a claim for one of eight devices of a node, from one template",
        500,
        4000,
        arriving(equal_devices(N_DEVICES), one_device),
    ),
    BenchmarkCase(
        "dra-templates",
        "claims of twenty templates in turn",
        500,
        4000,
        arriving(equal_devices(N_DEVICES), of_templates),
    ),
    BenchmarkCase(
        "dra-parts",
        "a claim for one of seven parts of a card",
        500,
        3000,
        arriving(parted_cluster, one_part),
    ),
    BenchmarkCase(
        "dra-shares",
        "a claim for an eighth of one of eight cards that are shared",
        500,
        4000,
        arriving(shared_cluster, a_share),
    ),
    BenchmarkCase("dra-refused", "claims that no node can serve", 500, 1000, refused),
    BenchmarkCase(
        "SchedulingWithResourceClaimTemplate",
        "a claim for one of ten devices of a node; half are in use",
        500,
        2500,
        arriving(equal_devices(PERF_DEVICES), one_device, 100),
    ),
    *(
        BenchmarkCase(
            f"SteadyStateClusterResourceClaimTemplate-{name}",
            f"pods with a claim come and go; {percent} % of the devices are in use",
            500,
            2500,
            steady(percent),
        )
        for name, percent in (("empty", 0), ("half", 50), ("full", 100))
    ),
    BenchmarkCase(
        "SchedulingWithResourceClaim", "five pods share a claim", 500, 2500, by_reference
    ),
    BenchmarkCase(
        "PublishResourceSlices",
        "slices with ten devices arrive",
        0,
        5000,
        published,
        unit="events",
    ),
    BenchmarkCase(
        "FirstAvailable",
        "a device of a class without any, else of one with ten on each node",
        500,
        2500,
        arriving(with_empty_class, first_available),
    ),
    BenchmarkCase(
        "DeviceTaintToleration",
        "claims that tolerate the taints of all devices; half are in use",
        500,
        2500,
        arriving(tainted, tolerating, 100),
    ),
    BenchmarkCase(
        "ConsumableCapacity",
        "two halves of shared devices that all nodes reach",
        100,
        2000,
        arriving(consumable, two_halves),
    ),
    BenchmarkCase(
        "Partitionable",
        "two parts of one of the cards that all nodes reach, half of which is in use",
        20,
        400,
        arriving(partitionable, two_parts, 100, first_part),
    ),
    BenchmarkCase(
        "PartitionableBacktracking",
        "seven of the eight devices of a pool, of which the first does not fit with six others",
        1,
        1,
        arriving(backtracking_pools, seven_devices),
    ),
    BenchmarkCase(
        "ExtendedResource",
        "ten pods with an extended resource each, of a class of its own",
        1,
        10,
        extended(10),
    ),
    *(
        BenchmarkCase(
            name,
            f"an extended resource of one of {n_classes} classes of devices",
            500,
            2500,
            extended(n_classes, implicit=name.startswith("Implicit")),
        )
        for name, n_classes in (
            ("ExtendedResource_25Classes", 25),
            ("ExtendedResource_50Classes", 50),
            ("ImplicitExtendedResource_25Classes", 25),
        )
    ),
    BenchmarkCase(
        "ExtendedResourceScoring",
        "an extended resource that twenty classes of devices provide, and that is scored",
        500,
        2500,
        one_resource,
        configuration=SCORING,
    ),
)
