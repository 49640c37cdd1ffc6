"""Scripts for a whole cluster: jobs are created, a scheduler places them, kubelets run them.

A script is a text of blocks: commands, `----`, and the output. Time is virtual.

    scheduler compat=kube-batch-0.5            kube-batch v0.5 instead of the sessions of today
    nodes 3 cpu=4 memory=8Gi gpus=2            n1, n2, n3; gpus is optional
    taint test=yes:NoSchedule                  on all nodes; `taint` removes it
    queue q1 weight=1 capability=8             class high 100; capability in CPUs
    job train min=2 queue=q1 priority=high : nginx*6 cpu=1 + master*1 cpu=1 priority=high
    replicas web 3 cpu=1                       pods of the default scheduler
    delete web
    wait 10s

    scheduler actions=preempt tiers=gang(preemptable)+drf    only these functions of a plugin

`on=n1` starts pods as running there. Evicted pods of a job are recreated, as by a Job controller.
`runs=0` lets pods finish at once.

    expect train ready 2                       running or succeeded, at least
    expect train reached 2                     the same, at any time since the last change
    expect train pending 3                     at least
    expect train.master ready 1                of these pods alone
    expect train evicted 2                     exactly, since the last change
    expect train event Unschedulable           on its group, since the last change
    expect train no-event Evict
    expect train on n1 | off n1,n2 | together  where its running pods are
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.batch import Session
from stowplan.batch.decider import BatchDecider
from stowplan.config.session_configuration import SWITCHES
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND, parse
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, PodGroupSpec, Queue, QueueSpec
from stowplan.objects.quantity import Quantity
from stowplan.objects.workload import PriorityClass
from stowplan.simulation.cluster.cluster_api import Pace
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import EPOCH, SimulatedCluster
from stowplan.simulation.cluster.watch_stream import WatchStream, any_kind
from stowplan.simulation.event_queue import EventQueue
from stowplan.testing import node, pod
from stowplan.testing.builders import HOSTNAME, affinity, taint, term
from tests.scenarios.group_commands import ACTIONS, TIERS
from tests.scheduler.transition_trace import TransitionTrace

DASHES = "----"
BATCH = "kube-batch"
PROFILE = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class Job:
    """Pods that are recreated when they are evicted."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.made = 0
        self.templates: list[tuple[Pod, int]] = []
        self.ended = 0


class ClusterScript:
    """A cluster, its jobs and its scheduler."""

    def __init__(self) -> None:
        self.event_queue = EventQueue()
        self.cluster = SimulatedCluster(self.event_queue, Pace(0, 1, 2))
        self.cluster.on_ended = self._ended
        self.cluster.on_bound = self._bound
        self.most: Counter[str] = Counter()
        self.jobs: dict[str, Job] = {}
        self.classes: dict[str, int] = {}
        self.notes: list[tuple[int, str, str]] = []
        self.evictions: Counter[tuple[str, str]] = Counter()
        self.began = 0
        self.instance: SchedulerInstance | None = None
        self.settings: dict[str, str] = {}
        self.check: Callable[[Session], None] = lambda session: None
        self.n_sessions = 0

    # Scheduler.

    def _start(self) -> SchedulerInstance:
        compat = self.settings.get("compat", "")
        actions = self.settings.get("actions", "").replace(",", ", ") or ACTIONS
        tiers = TIERS if "tiers" not in self.settings else _tiers(self.settings["tiers"])
        files = [
            ConfigText(f'actions: "{actions}"{tiers}', "batch"),
            ConfigText(PROFILE, "profiles"),
        ]
        scheduler = deciders_of(files, compat=compat).scheduler()
        TransitionTrace().follow(scheduler)
        (lane,) = scheduler.lanes.batch
        decider = lane.decider
        if isinstance(decider, BatchDecider):
            decider.on_closed = lambda session, result: self._check_session(session)
        instance = SchedulerInstance(
            "scheduler",
            self.cluster,
            scheduler,
            [WatchStream(self.cluster, any_kind)],
            self._observe,
        )
        instance.follow()
        return instance

    def _check_session(self, session: Session) -> None:
        self.n_sessions += 1
        self.check(session)

    def _observe(
        self, instance: SchedulerInstance, events: list[Event], effects: list[Effect]
    ) -> None:
        instance.scheduler.validate()
        for effect in effects:
            if isinstance(effect, to_do.RecordEvent) and effect.kind == "PodGroup":
                self.notes.append((self.event_queue.now, effect.name, effect.reason))
            if isinstance(effect, to_do.Evict):
                self.evictions[self._job_of(effect.name), effect.message.split()[1]] += 1
            if isinstance(effect, to_do.Report):
                assert not effect.is_fault, effect.text

    # Jobs.

    def _ended(self, one: Pod, why: str) -> None:
        job = self.jobs.get(self._job_of(one.name))
        if job is None:
            return
        if not why:
            job.ended += 1
        else:
            template = next(t for t, _ in job.templates if t.name == self._task_of(one.name))
            self.event_queue.after(SECOND, self._make, job, template)

    def _bound(self, one: Pod) -> None:
        name = self._job_of(one.name)
        if name in self.jobs:
            self.most[name] = max(self.most[name], self._counts(name)[0])

    def _make(self, job: Job, template: Pod) -> None:
        if self.jobs.get(job.name) is not job:
            return
        job.made += 1
        name = f"{template.name}-{job.made}"
        meta = replace(template.metadata, name=name, uid=name, creation_timestamp=self._moment())
        self.cluster.put_pod(replace(template, metadata=meta))

    def _moment(self) -> datetime.datetime:
        return EPOCH + datetime.timedelta(microseconds=self.event_queue.now // 1000)

    @staticmethod
    def _task_of(name: str) -> str:
        return name.rpartition("-")[0]

    def _job_of(self, name: str) -> str:
        return self._task_of(name).partition(".")[0]

    def pods_of(self, name: str) -> Iterator[Pod]:
        return (one for one in self.cluster.pods.values() if self._job_of(one.name) == name)

    # Commands.

    def play(self, commands: list[str]) -> list[str]:
        """Run a block of commands; returns the resulting output."""
        if not all(command.startswith("expect") for command in commands):
            self.began = self.event_queue.now
            self.evictions.clear()
            self.most.clear()
        answers = []
        for command in commands:
            word, *rest = command.split()
            answers += getattr(self, f"_do_{word}")(rest) or ()
        if not answers and self.instance is not None:
            answers = list(self._seen())
        return answers

    def _do_scheduler(self, words: list[str]) -> list[str]:
        self.settings = dict(word.split("=", 1) for word in words)
        return ["ready"]

    def _do_nodes(self, words: list[str]) -> None:
        settings: dict[str, Any] = dict(word.split("=", 1) for word in words[1:])
        more = _gpus(settings.pop("gpus", "0"))
        for number in range(1, int(words[0]) + 1):
            name = f"n{number}"
            made = node(name, labels={HOSTNAME: name}, resources=more, **settings)
            self.cluster.put_node(made)
        self.cluster.put_object(_queue("default"))

    def _do_taint(self, words: list[str]) -> None:
        taints = tuple(taint(word) for word in words)
        for one in tuple(self.cluster.nodes.values()):
            self.cluster.put_node(replace(one, spec=replace(one.spec, taints=taints)))

    def _do_queue(self, words: list[str]) -> None:
        settings = dict(word.split("=", 1) for word in words[1:])
        most = settings.get("capability", "")
        self.cluster.put_object(_queue(words[0], int(settings.get("weight", "1")), most))

    def _do_class(self, words: list[str]) -> None:
        self.classes[words[0]] = int(words[1])
        meta = ObjectMeta(name=words[0], uid=words[0])
        self.cluster.put_object(PriorityClass(metadata=meta, value=int(words[1])))

    def _do_job(self, words: list[str]) -> None:
        head, _, tasks = " ".join(words).partition(" : ")
        name, *settings = head.split()
        stated = dict(word.split("=", 1) for word in settings)
        meta = ObjectMeta(
            name=name, namespace="default", uid=name, creation_timestamp=self._moment()
        )
        spec = PodGroupSpec(
            min_member=int(stated["min"]),
            queue=stated.get("queue", "default"),
            priority_class_name=stated.get("priority", ""),
        )
        self.cluster.put_object(PodGroup(metadata=meta, spec=spec))
        job = self.jobs[name] = Job(name)
        for task in tasks.split(" + "):
            kind, *wishes = task.split()
            kind, _, count = kind.partition("*")
            template = self._template(f"{name}.{kind}", dict(w.split("=", 1) for w in wishes))
            job.templates.append((template, int(count or "1")))
        for template, n_pods in job.templates:
            for _ in range(n_pods):
                self._make(job, template)

    def _do_replicas(self, words: list[str]) -> None:
        name, count, *settings = words
        job = self.jobs[name] = Job(name)
        stated = dict(word.split("=", 1) for word in settings)
        template = self._template(f"{name}.web", stated, scheduler="default-scheduler")
        job.templates.append((template, int(count)))
        for _ in range(int(count)):
            self._make(job, template)

    def _template(self, name: str, stated: dict[str, str], scheduler: str = BATCH) -> Pod:
        group = name.partition(".")[0]
        labels = dict(pair.split(":") for pair in stated.get("labels", "").split(",") if pair)
        wishes = affinity(
            nodes=stated.get("node", ()),
            prefer_nodes={stated["prefers"]: 100} if "prefers" in stated else None,
            near=[term(stated["near"], HOSTNAME)] if "near" in stated else (),
            prefer_near=[(100, term(stated["likes"], HOSTNAME))] if "likes" in stated else (),
        )
        made = pod(
            name,
            cpu=stated.get("cpu"),
            memory=stated.get("memory"),
            resources=_gpus(stated.get("gpus", "0")),
            priority=self.classes.get(stated.get("priority", "")),
            labels=labels,
            ports=[int(stated["port"])] if "port" in stated else (),
            scheduler=scheduler,
            on=stated.get("on", ""),
            affinity=wishes,
        )
        annotations = {} if scheduler != BATCH else {"scheduling.k8s.io/group-name": group}
        if "runs" in stated:
            annotations[RUN_ANNOTATION] = stated["runs"]
        owner = OwnerReference("batch/v1", "Job", group, f"job-{name}", controller=True)
        meta = replace(made.metadata, annotations=annotations, owner_references=(owner,))
        return replace(made, metadata=meta)

    def _do_delete(self, words: list[str]) -> None:
        del self.jobs[words[0]]
        for one in tuple(self.pods_of(words[0])):
            self.cluster.delete_pod(one.key, "deleted")

    def _do_wait(self, words: list[str]) -> None:
        if self.instance is None:
            self.instance = self._start()
        self.event_queue.run(self.event_queue.now + round(parse(words[0]).total_seconds() * SECOND))

    # Output.

    def _counts(self, name: str) -> tuple[int, int]:
        """(ready, pending)."""
        job, _, task = name.partition(".")
        there = [one for one in self.pods_of(job) if not task or self._task_of(one.name) == name]
        running = sum(bool(one.node_name) and not _leaves(one) for one in there)
        return running + self.jobs[job].ended, sum(not one.node_name for one in there)

    def _seen(self) -> Iterator[str]:
        for name, job in self.jobs.items():
            pending = self._counts(name)[1]
            nodes = Counter(one.node_name for one in self.pods_of(name) if one.node_name)
            where = ", ".join(f"{nodes[n]} on {n}" for n in sorted(nodes))
            parts = [where or "nowhere"]
            parts += [f"{pending} pending"] if pending else []
            parts += [f"{job.ended} succeeded"] if job.ended else []
            group = self.cluster.objects.get((PodGroup, f"default/{name}"))
            if isinstance(group, PodGroup):
                parts += [group.status.phase or "no phase"]
                parts += [f"{c.reason}: {c.message}" for c in group.status.conditions]
            yield f"{name}: {'; '.join(parts)}"
        for (name, why), count in sorted(self.evictions.items()):
            yield f"evicted: {count} of {name} ({why})"

    def _do_expect(self, words: list[str]) -> list[str]:
        name, what, *rest = words
        ready, pending = self._counts(name)
        here = {one.node_name for one in self.pods_of(name) if one.node_name}
        stated = {reason for at, of, reason in self.notes if of == name and at >= self.began}
        gone = sum(count for (of, _), count in self.evictions.items() if of == name)
        most = max(self.most[name], ready)
        holds, seen = {
            "reached": lambda: (most >= int(rest[0]), f"{most} ready"),
            "evicted": lambda: (gone == int(rest[0]), f"{gone} evicted"),
            "ready": lambda: (ready >= int(rest[0]), f"{ready} ready"),
            "pending": lambda: (pending >= int(rest[0]), f"{pending} pending"),
            "event": lambda: (rest[0] in stated, f"events {sorted(stated)}"),
            "no-event": lambda: (rest[0] not in stated, f"events {sorted(stated)}"),
            "on": lambda: (here == {rest[0]}, f"on {sorted(here)}"),
            "off": lambda: (not here & set(rest[0].split(",")), f"on {sorted(here)}"),
            "together": lambda: (len(here) == 1, f"on {sorted(here)}"),
        }[what]()
        return [f"{'yes' if holds else 'NO'}: {seen}"]


def _queue(name: str, weight: int = 1, most: str = "") -> Queue:
    """most: its CPU capability, "" for none."""
    spec = QueueSpec(weight=weight, capability={"cpu": most} if most else {})
    return Queue(metadata=ObjectMeta(name=name, uid=name), spec=spec)


def _gpus(count: str) -> dict[str, Quantity]:
    return {"nvidia.com/gpu": count} if int(count) else {}


def _tiers(text: str) -> str:
    """One tier, from `gang(preemptable)+drf(jobOrder,preemptable)`."""
    policies = []
    for policy in text.split("+"):
        name, _, kinds = policy.rstrip(")").partition("(")
        wanted = {f"enable{kind[0].upper()}{kind[1:]}" for kind in kinds.split(",") if kind}
        off = "".join(f", {s}: false" for s in SWITCHES if kinds and s not in wanted)
        policies.append(f"{{name: {name}{off}}}")
    return f"\ntiers:\n- plugins: [{', '.join(policies)}]\n"


def _leaves(one: Pod) -> bool:
    return one.metadata.deletion_timestamp is not None


def replayed(text: str) -> str:
    """Run the script; returns the same commands with the actual output."""
    script = ClusterScript()
    return "\n\n".join(_answered(block, script) for block in text.strip().split("\n\n")) + "\n"


def _answered(block: str, script: ClusterScript) -> str:
    lines = block.split("\n")
    head = lines[: lines.index(DASHES)] if DASHES in lines else lines
    commands = [line for line in head if line and not line.startswith("#")]
    if not commands:
        return block
    return "\n".join([*head, DASHES, *script.play(commands)])


def scripts() -> list[Path]:
    """All cluster scripts."""
    return sorted((Path(__file__).parent / "kube_batch").glob("*.txt"))
