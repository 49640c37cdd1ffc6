"""Steps of the demo: what each shows, does and expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from stowplan.examples import demo_manifests as manifests
from stowplan.examples.demo_cluster import DemoCluster
from stowplan.inputs.counts import count_of

FAST_CLOCK_SPEED = 20.0


class DemoStep(NamedTuple):
    """title: short. explanation: what it shows. run: does it."""

    title: str
    explanation: str
    run: Callable[[DemoCluster], Awaitable[None]]


def per_node_text(counts: Counter[str]) -> str:
    """`2 on node-1, 1 on node-2`."""
    return ", ".join(f"{n} on {name}" for name, n in sorted(counts.items())) or "none"


async def _all_run(demo: DemoCluster, app: str, n: int) -> None:
    view = demo.view
    await demo.expect(
        f"{n} pods of {app} run",
        lambda: view.running(app) == n,
        lambda: f"{view.running(app)} run, {len(view.waiting(app))} wait",
    )


async def plain(demo: DemoCluster) -> None:
    """Pods with resource requests only."""
    view = demo.view
    demo.say("Deployment web: 12 pods of half a core")
    await demo.create(manifests.deployment("web", 12, "500m"))
    await _all_run(demo, "web", 12)
    await demo.expect(
        "each of the 6 nodes has at least one, none more than 3",
        lambda: len(view.per_node("web")) == 6 and max(view.per_node("web").values()) <= 3,
        lambda: per_node_text(view.per_node("web")),
    )
    demo.note("web", 12)


async def spread(demo: DemoCluster) -> None:
    """Pods spread evenly over zones."""
    view = demo.view
    demo.say(f"Zones have 3, 2 and 1 nodes, and of web: {per_node_text(view.per_zone('web'))}")
    demo.say("Deployment api: 6 pods of one core, maxSkew 1 over zones")
    await demo.create(
        manifests.deployment("api", 6, "1", topologySpreadConstraints=manifests.spread("api"))
    )
    await _all_run(demo, "api", 6)
    await demo.expect(
        "two pods in each zone, whatever its size",
        lambda: sorted(view.per_zone("api").values()) == [2, 2, 2],
        lambda: per_node_text(view.per_zone("api")),
    )
    demo.note("api", 6)


async def preemption(demo: DemoCluster) -> None:
    """Pods with priority preempt others."""
    view = demo.view
    demo.say("Deployment report: low priority, 6 pods of 4 cores, which fill the cluster")
    await demo.create(
        manifests.priority_class("low", -10),
        manifests.priority_class("high", 1000),
        manifests.deployment("report", 6, "4", priorityClassName="low"),
    )
    await _all_run(demo, "report", 6)
    demo.say("Deployment checkout: high priority, 3 pods of 4 cores")
    await demo.create(manifests.deployment("checkout", 3, "4", priorityClassName="high"))
    await _all_run(demo, "checkout", 3)
    await demo.expect(
        "3 pods of report are evicted, and no others",
        lambda: (len(view.evicted("report")), len(view.evicted())) == (3, 3),
        lambda: f"{len(view.evicted('report'))} of report, {len(view.evicted())} in all",
    )
    await demo.expect(
        "those 3 are pending",
        lambda: len(view.waiting("report")) == 3,
        lambda: f"{len(view.waiting('report'))} wait",
    )
    demo.note("checkout", 3)
    demo.note("report", 6)
    await demo.pause()
    demo.say("Delete both Deployments")
    await demo.delete("Deployment", "report", "checkout")
    await demo.gone("report", "checkout")


async def gangs(demo: DemoCluster) -> None:
    """Pods that start together or not at all."""
    view = demo.view
    demo.say("Queues product (weight 3) and research (weight 1)")
    await demo.create(manifests.queue("product", 3), manifests.queue("research", 1))
    demo.say("Gang train in product: 6 pods of 2 cores, all 6 or none")
    await demo.create(*manifests.pod_group_with_job("train", "product", 6, 6, "2"))
    await _all_run(demo, "train", 6)
    demo.say("Gang survey in research: 24 pods of 2 cores, more than the cluster can run")
    await demo.create(*manifests.pod_group_with_job("survey", "research", 24, 24, "2"))
    await demo.expect(
        "no pod of survey gets a node, and its PodGroup has the reason",
        lambda: not view.placed("survey") and bool(view.unschedulable_message("survey")),
        lambda: (
            f"{len(view.placed('survey'))} placed; "
            f"{view.unschedulable_message('survey') or 'no reason'}"
        ),
    )
    demo.note("train", 6)
    demo.note("survey", 24)
    await demo.pause()
    await demo.delete("Job", "survey")
    await demo.delete("PodGroup", "survey")
    await demo.gone("survey")


async def reclaim(demo: DemoCluster) -> None:
    """Queues that borrow and reclaim resources."""
    view = demo.view
    demo.say("Gang sweep in research: 12 pods of 2 cores, minMember 2")
    await demo.create(*manifests.pod_group_with_job("sweep", "research", 12, 2, "2"))
    await demo.expect(
        "research borrows from product: more than the 6 pods that it deserves run",
        lambda: view.running("sweep") > 8,
        lambda: f"{view.running('sweep')} run",
    )
    await demo.pause()
    demo.say("Gang serve in product: 12 pods of 2 cores, which product deserves")
    await demo.create(*manifests.pod_group_with_job("serve", "product", 12, 2, "2"))
    await demo.expect(
        "sweep is reduced to 6 pods: 12 of 48 cores, as deserved by weight 1 of 4",
        lambda: len(view.placed("sweep")) == 6 and len(view.evicted("sweep")) > 0,
        lambda: f"{len(view.placed('sweep'))} left, {len(view.evicted('sweep'))} evicted",
    )
    await demo.expect(
        "serve gets the reclaimed resources",
        lambda: view.running("serve") >= len(view.evicted("sweep")) > 0,
        lambda: f"{view.running('serve')} run",
    )
    demo.keep_snapshot()
    demo.note("sweep", 12)
    demo.note("serve", 12)


async def dead_node(demo: DemoCluster) -> None:
    """Pods of a node that becomes unreachable."""
    view, apps = demo.view, ("web", "api", "train")
    demo.say("Delete sweep and serve, to free resources")
    await demo.delete("Job", "sweep", "serve")
    await demo.delete("PodGroup", "sweep", "serve")
    await demo.gone("sweep", "serve")
    # A node of the largest zone, so that the others of that zone can replace it for api.
    large = [name for name, zone in manifests.ZONES.items() if zone == "zone-a"]
    victim = max(large, key=lambda name: (view.per_node("api")[name], view.per_node()[name]))
    lost = Counter(one.app for one in view.placed(*apps) if one.pod.node_name == victim)
    app_counts = ", ".join(f"{n} {app}" for app, n in sorted(lost.items()))
    demo.say(
        f"{victim} becomes unreachable, with {app_counts} (the clock runs {FAST_CLOCK_SPEED:g}x)"
    )
    await demo.annotate_node(victim, manifests.KUBELET, "off")
    demo.clock.run(FAST_CLOCK_SPEED)
    await demo.expect(
        f"{victim} is tainted and its pods are evicted",
        lambda: not view.is_up(victim) and not view.per_node()[victim],
        lambda: (
            f"{'up' if view.is_up(victim) else 'tainted'}, "
            f"{count_of(view.per_node()[victim], 'pod')} left"
        ),
    )
    demo.clock.run(1.0)
    for app, n in (("web", 12), ("api", 6), ("train", 6)):
        await _all_run(demo, app, n)
    await demo.expect(
        "api still has two pods in each zone",
        lambda: sorted(view.per_zone("api").values()) == [2, 2, 2],
        lambda: per_node_text(view.per_zone("api")),
    )


DEMO_STEPS = (
    DemoStep(
        "Plain pods",
        "Pods with requests only: each goes to the least allocated node that fits.",
        plain,
    ),
    DemoStep("Topology spread", "An app is spread evenly over zones of different size.", spread),
    DemoStep(
        "Preemption",
        "In a full cluster, pods of higher priority preempt pods of lower priority.",
        preemption,
    ),
    DemoStep("Gangs", "Pods that need each other start together, or not at all.", gangs),
    DemoStep(
        "Reclaim", "A queue borrows idle resources of others, until they reclaim them.", reclaim
    ),
    DemoStep("Node failure", "Pods of an unreachable node are evicted and replaced.", dead_node),
)
