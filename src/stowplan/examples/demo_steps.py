"""The acts of the demonstration: what each shows, what it does, and what has to come of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from stowplan.examples import demo_manifests as world
from stowplan.examples.demo_cluster import DemoCluster

FAST_CLOCK_SPEED = 20.0


class DemoStep(NamedTuple):
    """title: in a few words. teaches: what there is to see. play: does it."""

    title: str
    explanation: str
    run: Callable[[DemoCluster], Awaitable[None]]


def per_node_text(counts: Counter[str]) -> str:
    """`2 on node-1, 1 on node-2`."""
    return ", ".join(f"{n} on {name}" for name, n in sorted(counts.items())) or "none"


async def _all_run(stage: DemoCluster, app: str, n: int) -> None:
    view = stage.view
    await stage.expect(
        f"{n} pods of {app} run",
        lambda: view.running(app) == n,
        lambda: f"{view.running(app)} run, {len(view.waiting(app))} wait",
    )


async def plain(stage: DemoCluster) -> None:
    """Pods with nothing but a request."""
    view = stage.view
    stage.say("Deployment web: 12 pods of half a core")
    await stage.create(world.deployment("web", 12, "500m"))
    await _all_run(stage, "web", 12)
    await stage.expect(
        "each of the 6 nodes has some, none more than 3",
        lambda: len(view.per_node("web")) == 6 and max(view.per_node("web").values()) <= 3,
        lambda: per_node_text(view.per_node("web")),
    )
    stage.note("web", 12)


async def spread(stage: DemoCluster) -> None:
    """Pods that keep zones even."""
    view = stage.view
    stage.say(f"Zones have 3, 2 and 1 nodes, and of web: {per_node_text(view.per_zone('web'))}")
    stage.say("Deployment api: 6 pods of one core, maxSkew 1 over zones")
    await stage.create(
        world.deployment("api", 6, "1", topologySpreadConstraints=world.spread("api"))
    )
    await _all_run(stage, "api", 6)
    await stage.expect(
        "two in each zone, whatever its size",
        lambda: sorted(view.per_zone("api").values()) == [2, 2, 2],
        lambda: per_node_text(view.per_zone("api")),
    )
    stage.note("api", 6)


async def preemption(stage: DemoCluster) -> None:
    """Pods that others have to make room for."""
    view = stage.view
    stage.say("Deployment report: low priority, 4 cores a pod, until nothing more fits")
    await stage.create(
        world.priority_class("low", -10),
        world.priority_class("high", 1000),
        world.deployment("report", 6, "4", priorityClassName="low"),
    )
    await _all_run(stage, "report", 6)
    stage.say("Deployment checkout: high priority, 3 pods of 4 cores")
    await stage.create(world.deployment("checkout", 3, "4", priorityClassName="high"))
    await _all_run(stage, "checkout", 3)
    await stage.expect(
        "3 pods of report evicted, and no other",
        lambda: (len(view.evicted("report")), len(view.evicted())) == (3, 3),
        lambda: f"{len(view.evicted('report'))} of report, {len(view.evicted())} in all",
    )
    await stage.expect(
        "those 3 wait for room",
        lambda: len(view.waiting("report")) == 3,
        lambda: f"{len(view.waiting('report'))} wait",
    )
    stage.note("checkout", 3)
    stage.note("report", 6)
    await stage.pause()
    stage.say("Both are done and leave")
    await stage.delete("Deployment", "report", "checkout")
    await stage.gone("report", "checkout")


async def gangs(stage: DemoCluster) -> None:
    """Pods that start together or not at all."""
    view = stage.view
    stage.say("Queues product (weight 3) and research (weight 1)")
    await stage.create(world.queue("product", 3), world.queue("research", 1))
    stage.say("Gang train in product: 6 pods of 2 cores, all 6 or none")
    await stage.create(*world.pod_group_with_job("train", "product", 6, 6, "2"))
    await _all_run(stage, "train", 6)
    stage.say("Gang survey in research: 24 pods of 2 cores, more than there is room for")
    await stage.create(*world.pod_group_with_job("survey", "research", 24, 24, "2"))
    await stage.expect(
        "no pod of survey gets a node, and its PodGroup says why",
        lambda: not view.placed("survey") and bool(view.unschedulable_message("survey")),
        lambda: (
            f"{len(view.placed('survey'))} placed; "
            f"{view.unschedulable_message('survey') or 'no reason'}"
        ),
    )
    stage.note("train", 6)
    stage.note("survey", 24)
    await stage.pause()
    await stage.delete("Job", "survey")
    await stage.delete("PodGroup", "survey")
    await stage.gone("survey")


async def reclaim(stage: DemoCluster) -> None:
    """Queues that lend and take back."""
    view = stage.view
    stage.say("Gang sweep in research: 12 pods of 2 cores, two are enough to start")
    await stage.create(*world.pod_group_with_job("sweep", "research", 12, 2, "2"))
    await stage.expect(
        "research borrows what product leaves: more pods run than the 6 of its quarter",
        lambda: view.running("sweep") > 8,
        lambda: f"{view.running('sweep')} run",
    )
    await stage.pause()
    stage.say("Gang serve in product: 12 pods of 2 cores, and product is entitled to them")
    await stage.create(*world.pod_group_with_job("serve", "product", 12, 2, "2"))
    await stage.expect(
        "sweep is cut down to 6 pods: 12 of 48 cores, what a weight of 1 in 4 deserves",
        lambda: len(view.placed("sweep")) == 6 and len(view.evicted("sweep")) > 0,
        lambda: f"{len(view.placed('sweep'))} left, {len(view.evicted('sweep'))} evicted",
    )
    await stage.expect(
        "serve has the room",
        lambda: view.running("serve") >= len(view.evicted("sweep")) > 0,
        lambda: f"{view.running('serve')} run",
    )
    stage.keep_snapshot()
    stage.note("sweep", 12)
    stage.note("serve", 12)


async def dead_node(stage: DemoCluster) -> None:
    """Pods whose node goes silent."""
    view, apps = stage.view, ("web", "api", "train")
    stage.say("sweep and serve end, so that there is room")
    await stage.delete("Job", "sweep", "serve")
    await stage.delete("PodGroup", "sweep", "serve")
    await stage.gone("sweep", "serve")
    # One of the largest zone, so that the others of that zone can take over for api.
    large = [name for name, zone in world.ZONES.items() if zone == "zone-a"]
    victim = max(large, key=lambda name: (view.per_node("api")[name], view.per_node()[name]))
    lost = Counter(one.app for one in view.placed(*apps) if one.pod.node_name == victim)
    shown = ", ".join(f"{n} {app}" for app, n in sorted(lost.items()))
    stage.say(
        f"{victim} stops answering, with {shown} (time runs {FAST_CLOCK_SPEED:g} times as fast)"
    )
    await stage.annotate_node(victim, world.KUBELET, "off")
    stage.clock.run(FAST_CLOCK_SPEED)
    await stage.expect(
        f"{victim} is found out, its pods are given up",
        lambda: not view.is_up(victim) and not view.per_node()[victim],
        lambda: f"{'up' if view.is_up(victim) else 'tainted'}, {view.per_node()[victim]} pods left",
    )
    stage.clock.run(1.0)
    for app, n in (("web", 12), ("api", 6), ("train", 6)):
        await _all_run(stage, app, n)
    await stage.expect(
        "api still has two in each zone",
        lambda: sorted(view.per_zone("api").values()) == [2, 2, 2],
        lambda: per_node_text(view.per_zone("api")),
    )


DEMO_STEPS = (
    DemoStep(
        "Plain pods",
        "Nothing is said but what a pod needs: the emptiest node that fits takes it.",
        plain,
    ),
    DemoStep("A spread", "Zones of unlike size share an app evenly.", spread),
    DemoStep(
        "A preemption",
        "A full cluster: who matters more takes the place of who matters less.",
        preemption,
    ),
    DemoStep("Gangs", "Pods that are of use together only start together, or not at all.", gangs),
    DemoStep("A reclaim", "A queue may use what others leave, until they want it back.", reclaim),
    DemoStep("A node that dies", "What ran there is replaced and placed anew.", dead_node),
)
