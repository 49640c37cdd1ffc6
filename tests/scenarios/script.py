"""Scripts for the scheduler: commands, a line of dashes, and the effects.

A script is a text of blocks, each with commands, `----` and the effects of one call of `handle`; a
comment before a block says what it shows. The first block may configure the scheduler.

    scheduler profiles=one,two plugins=PermitByLabel,PreBindIO binders=BindIO leads=no
    scheduler assume_limit=30
    scheduler extenders=fit:filter:names waits=2          see `extender_commands`
    scheduler engine=compiled repeats=yes                 kernels; repeated refusals are counted
    scheduler off=SchedulingGates                         a plugin is disabled in all profiles

The watch; settings are those of `draw` and a few more, kept from command to command:

    node n1 cpu=4 taints=gpu=yes:NoSchedule
    node n1 gone
    pod web cpu=1 priority=10 labels=app=web        a pod is added or updated
    pod web on=n1                                   it is bound
    pod web gates=                                  an empty setting is removed
    pod web uid=web-2 scheduler=two phase=Succeeded
    pod web leaving                                 it is terminating; `preempted`: by preemption
    pod web gone

Objects that pods wait for, each with a new version:

    class local provisioner=csi.example.com         its claims are bound with the first pod
    volume pv1 class=local node=n1 claim=data       claim data class=local volume=pv1 node=n1

Sessions, for pods with `scheduler=kube-batch`; `group=NAME` names their group:

    scheduler sessions=yes profiles=default-scheduler bind_failures=2 policy=Release synced=yes
    queue default weight=1                  group train min=2 queue=q1 priority=high
    priority high value=100                 synced
    reload actions=allocate,backfil         (default tiers)

The profiles of a changed configuration; it has no others:

    profiles one,three off=NodeName backoff=5

Outcomes of effects, the latest about that pod or object:

    bind web done                       bind web failed 409 it is bound already
    read web on n1                      read web pending         read web gone
    evict web done                      evict web failed 500 try again
    patch train failed 500              (the status of a group)
    prepare web done                    prepare web failed no power (web/PreBindIO for one of two)
    write pv1 done                      write pv1 failed 409 it has been modified
    write pv1/web done                  write pv1 done already            (no change needed)
    answer web {"NodeNames": ["n1"]}    answer web/fit 500                answer web failed no route

Others:

    allow web PermitByLabel             reject web PermitByLabel rejected
    elected 2                           deposed
    wait 30s                            time advances; the scheduler is called at its wake-ups
    show                                nodes and pods with their state
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from stowplan.assembly.build import configuration_of, frameworks_for
from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.assembly.extenders import extenders_of
from stowplan.assembly.profile_reload import ProfileReload
from stowplan.cycle import CycleDecider
from stowplan.cycle.engine.kernel_loading import EngineMode
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND, parse, render
from stowplan.objects.encoding.json_codec import encode
from stowplan.objects.pod import PodCondition
from stowplan.queue import QueueOptions
from stowplan.queue.pod_record import PodState
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.scheduler.lanes.session_lane import SessionLaneFactory
from stowplan.testing import draw
from tests.scenarios import extender_commands, group_commands
from tests.scenarios.label_plugins import LABEL_PLUGINS
from tests.scenarios.storage_commands import KINDS
from tests.scheduler.transition_trace import TransitionTrace

DASHES = "----"
SCRIPT = "script"
PREEMPTED = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
# Binding states are shown in a word.
_STATE_TEXTS = {
    PodState.WAITING_ON_PERMIT: "waiting",
    PodState.PREBINDING: "prebind",
    PodState.ASSUMED: "bound",
}
_STATES = {"leaving", "preempted"}
_OWN = {"uid", "scheduler", "phase", "nominated", "group"}
_EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_OUTCOMES: dict[type[Any], str] = {
    to_do.Bind: "bind",
    to_do.ReadPod: "read",
    to_do.Evict: "evict",
    to_do.Prepare: "prepare",
    to_do.Write: "write",
    to_do.CallExtender: "answer",
    to_do.PatchGroup: "patch",
}


class Player:
    """A scheduler, its clock and the effects without an outcome."""

    def __init__(self, trace: TransitionTrace | None = None) -> None:
        """trace: observes the schedulers; None makes one, so that each script is checked."""
        self.trace = TransitionTrace() if trace is None else trace
        self.scheduler = made()
        self.trace.follow(self.scheduler)
        self.now = 0
        self.alarm: int | None = None
        self._objects: dict[tuple[str, str], dict[str, str]] = {}
        self._open: list[Effect] = []
        self._version = 0

    def play(self, commands: list[str]) -> list[str]:
        """Run a block of commands; returns its output lines."""
        first, *words = commands[0].split()
        if first == "scheduler":
            self.scheduler = made(**dict(word.split("=", 1) for word in words))
            self.trace.follow(self.scheduler)
            return ["ready"]
        if first == "wait":
            return list(self._wait(words[0]))
        if first == "show":
            return list(self._places())
        return self._call([self._event(command) for command in commands])

    def _call(self, events: Iterable[Event]) -> list[str]:
        effects = self.scheduler.handle(events, self.now)
        self.scheduler.validate()
        for effect in effects:
            if isinstance(effect, to_do.Wake):
                self.alarm = effect.at
        self._open += [effect for effect in effects if type(effect) in _OUTCOMES]
        return [rendered(effect) for effect in effects]

    def _wait(self, text: str) -> Iterable[str]:
        until = self.now + round(parse(text).total_seconds() * SECOND)
        while self.now < until:
            self.now = until if self.alarm is None else max(self.now, min(self.alarm, until))
            if self.alarm is not None and self.alarm <= self.now:
                self.alarm = None
            for line in self._call([happened.Tick()]):
                if not line.startswith("wake"):
                    yield f"{clock(self.now)}: {line}"

    def _places(self) -> Iterable[str]:
        queue, bindings, nodes = (
            self.scheduler.queue,
            self.scheduler.bindings,
            self.scheduler.cache.nodes,
        )
        for row, name in enumerate(nodes.names):
            pods = sorted(info.pod.name for info in nodes.pods[row])
            yield f"{name}: {', '.join(pods) or 'empty'}"
        for entry in sorted(queue, key=lambda entry: entry.key):
            place = queue.place_of(entry.key)
            node = queue.nominator.node_of(entry.uid)
            by = ", ".join(sorted(entry.refusers))
            assert place is not None
            yield (
                f"{short(entry.pod)}: {place.value}"
                f"{f' by {by}' if by else ''}{f', nominated {node}' if node else ''}"
            )
        for _, record in bindings:
            text = _STATE_TEXTS.get(record.state, record.state.label)
            yield f"{short(record.pod)}: {text} on {record.binding.node}"
        for lane in self.scheduler.lanes.batch:
            for uid, node in lane.nominations.items():
                yield f"{uid.partition('/')[2]}: nominated to {node}"
        for _, attempt in self.scheduler.extender_attempts:
            yield f"{short(attempt.entry.pod)}: {attempt.entry.state.label}"

    # Commands.

    def _event(self, command: str) -> Event:
        words = command.split()
        if words[0] in KINDS or words[0] in group_commands.KINDS:
            return self._read_object(*words)
        read: Callable[..., Event] = getattr(self, f"_read_{words[0]}")
        return read(*words[1:])

    def _read_object(self, kind: str, name: str, *settings: str) -> Event:
        is_new = (kind, name) not in self._objects
        make = {**KINDS, **group_commands.KINDS}[kind]
        value = make(name, self._newer(), self._settled(kind, name, settings))
        if "gone" in settings:
            del self._objects[kind, name]
            return happened.ObjectDeleted(value)
        return happened.ObjectAdded(value) if is_new else happened.ObjectUpdated(value)

    def _newer(self) -> str:
        self._version += 1
        return str(self._version)

    def _read_node(self, name: str, *settings: str) -> Event:
        is_new = ("node", name) not in self._objects
        node = self._made("node", name, self._settled("node", name, settings))
        if "gone" in settings:
            del self._objects["node", name]
            return happened.NodeDeleted(node)
        return happened.NodeAdded(node) if is_new else happened.NodeUpdated(node)

    def _read_pod(self, name: str, *settings: str) -> Event:
        is_new = ("pod", name) not in self._objects
        pod = self._pod(name, self._settled("pod", name, settings))
        if "gone" in settings:
            del self._objects["pod", name]
            return happened.PodDeleted(pod)
        return happened.PodAdded(pod) if is_new else happened.PodUpdated(pod)

    def _settled(self, kind: str, name: str, settings: Iterable[str]) -> dict[str, str]:
        kept = self._objects.setdefault((kind, name), {})
        for setting in settings:
            key, stated, value = setting.partition("=")
            assert stated or key in {"gone", *_STATES}, f"{kind} {name}: {setting!r}"
            if key != "gone":
                kept[key] = value
        return {key: value for key, value in kept.items() if value or key in _STATES}

    def _pod(self, name: str, settings: dict[str, str]) -> Any:
        own = {key: settings[key] for key in settings.keys() & _OWN}
        spec_settings = {k: v for k, v in settings.items() if k not in own and k not in _STATES}
        pod = self._made("pod", name, spec_settings)
        leaving = _EPOCH if _STATES & settings.keys() else None
        meta = replace(
            pod.metadata,
            uid=own.get("uid", pod.uid),
            deletion_timestamp=leaving,
            annotations=group_commands.annotations(own.get("group", "")),
        )
        spec = replace(pod.spec, scheduler_name=own.get("scheduler", pod.spec.scheduler_name))
        conditions = (PREEMPTED,) if "preempted" in settings else ()
        status = replace(
            pod.status,
            phase=own.get("phase", ""),
            conditions=conditions,
            nominated_node_name=own.get("nominated", ""),
        )
        return replace(pod, metadata=meta, spec=spec, status=status)

    def _made(self, kind: str, name: str, settings: dict[str, str]) -> Any:
        header, cells = " ".join([kind, *settings]), " ".join([name, *settings.values()])
        drawing = draw(f"{header}\n{cells}")
        return (drawing.nodes if kind == "node" else drawing.pods)[name]

    def _asked(self, kind: str, name: str, narrower: str = "") -> Any:
        """The latest effect of a kind about a pod or an object. narrower: name of a plugin or
        pod."""
        found = [
            effect
            for effect in self._open
            if _OUTCOMES[type(effect)] == kind
            and _subject(effect) == name
            and narrower in ("", _partner(effect), effect.uid.partition("/")[2])
        ]
        assert found, f"no {kind} about {name} is waiting for an outcome"
        return found[-1]

    def _read_answer(self, name: str, first: str, *rest: str) -> Event:
        name, _, extender = name.partition("/")
        return extender_commands.answer(self._asked("answer", name, extender), first, rest)

    def _read_bind(self, name: str, how: str, code: str = "0", *reason: str) -> Event:
        effect = self._asked("bind", name)
        if how == "done":
            return happened.BindDone(effect.effect, effect.uid)
        return happened.BindFailed(effect.effect, effect.uid, int(code), " ".join(reason))

    def _read_evict(self, name: str, how: str, code: str = "0", *reason: str) -> Event:
        effect = self._asked("evict", name)
        if how == "done":
            return happened.EvictDone(effect.effect, effect.uid)
        return happened.EvictFailed(effect.effect, effect.uid, int(code), " ".join(reason))

    def _read_prepare(self, name: str, how: str, *reason: str) -> Event:
        name, _, plugin = name.partition("/")
        effect = self._asked("prepare", name, plugin)
        if how == "done":
            return happened.PrepareDone(effect.effect, effect.uid)
        return happened.PrepareFailed(effect.effect, effect.uid, " ".join(reason))

    def _read_write(self, name: str, how: str, code: str = "0", *reason: str) -> Event:
        name, _, of_pod = name.partition("/")
        effect = self._asked("write", name, of_pod)
        if how == "done":
            is_news = code != "already"
            version = self._newer() if is_news else effect.value.metadata.resource_version
            return happened.WriteDone(effect.effect, effect.uid, version)
        return happened.WriteFailed(effect.effect, effect.uid, int(code), " ".join(reason))

    def _read_read(self, name: str, *found: str) -> Event:
        effect = self._asked("read", name)
        if found[0] == "gone":
            return happened.PodRead(effect.effect, effect.uid, None)
        settings = dict(self._objects["pod", name])
        if found[0] == "on":
            settings["on"] = found[1]
        return happened.PodRead(effect.effect, effect.uid, self._pod(name, settings))

    def _read_patch(self, name: str, how: str, code: str = "0") -> Event:
        assert how == "failed", "a status that was written has no outcome"
        effect = self._asked("patch", name)
        return happened.PatchFailed(effect.effect, effect.uid, int(code))

    def _read_synced(self) -> Event:
        return happened.Synced()

    def _read_reload(self, *settings: str) -> Event:
        return happened.ConfigurationChanged(group_commands.configured(settings), "batch.yaml")

    def _read_profiles(self, names: str, *settings: str) -> Event:
        text = profiles_text(names, **dict(setting.split("=", 1) for setting in settings))
        return happened.ConfigurationChanged(text, SCRIPT, has_profiles=True, has_sessions=False)

    def _read_allow(self, name: str, plugin: str) -> Event:
        return happened.Allowed(f"default/{name}", plugin)

    def _read_reject(self, name: str, plugin: str, *reason: str) -> Event:
        return happened.Rejected(f"default/{name}", plugin, " ".join(reason))

    def _read_elected(self, term: str) -> Event:
        return happened.LeaderElected(int(term))

    def _read_deposed(self) -> Event:
        return happened.LeaderLost()


def made(
    profiles: str = "default-scheduler",
    plugins: str = "",
    assume_limit: str = "",
    leads: str = "yes",
    binders: str = "",
    hints: str = "yes",
    backoff: str = "1",
    extenders: str = "",
    waits: str = "1",
    sessions: str = "",
    synced: str = "yes",
    engine: str = "auto",
    repeats: str = "no",
    off: str = "",
    **batch: str,
) -> Scheduler:
    """A scheduler with these profiles, all alike, with label plugins and Bind plugins by name.

    extenders: see `extender_commands`. waits: how many attempts may wait for them. sessions:
    whether sessions run too; batch: their options.
    """
    text = profiles_text(profiles, binders=binders, extenders=extenders, off=off)
    custom = [LABEL_PLUGINS[name] for name in plugins.split(",") if name]
    configuration, registry = configuration_of(text, SCRIPT, custom)
    limit = float(assume_limit) if assume_limit else None
    initial_s = float(backoff) if backoff else None
    queue = QueueOptions(hints=hints == "yes", initial_backoff_s=initial_s)
    options = SchedulerOptions(
        queue=queue,
        assume_limit_s=limit,
        leads=leads == "yes",
        extender_waits_max=int(waits),
        synced=synced == "yes",
        counts_repeats=repeats == "yes",
    )
    built = frameworks_for(configuration, registry)
    asked = extenders_of(configuration)
    lanes = []
    if sessions:
        text = group_commands.configured([f"{key}={value}" for key, value in batch.items()])
        shared = next(iter(built.values())).shared
        held = deciders_of([ConfigText(text, "batch.yaml")], custom).session_decider(shared)
        lanes.append(SessionLaneFactory(held))
    decider = CycleDecider() if engine == "auto" else CycleDecider(EngineMode(engine))
    reload = ProfileReload(
        lambda text, source: configuration_of(text, source, custom)[0],
        configuration,
        registry,
        dict,
        options=options,
    )
    return Scheduler(built, decider, options, extenders=asked, batch_lanes=lanes, reread=reload)


def profiles_text(
    names: str, binders: str = "", extenders: str = "", off: str = "", backoff: str = ""
) -> str:
    """A configuration of profiles with these names, all alike."""
    bind = {"disabled": [{"name": "*"}], "enabled": [{"name": n} for n in binders.split(",")]}
    plugins: dict[str, Any] = {"bind": bind} if binders else {}
    if off:
        plugins["multiPoint"] = {"disabled": [{"name": name} for name in off.split(",")]}
    tree = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": n, "plugins": plugins} for n in names.split(",")],
        "extenders": extender_commands.configured(extenders),
    }
    if backoff:
        tree["podInitialBackoffSeconds"] = int(backoff)
    return json.dumps(tree)


def _subject(effect: Any) -> str:
    """Name of the pod or object that an effect is about."""
    if isinstance(effect, to_do.CallExtender):
        return effect.uid.partition("/")[2]
    return str(getattr(effect, "value", effect).name)


def _partner(effect: Any) -> str:
    """Plugin or extender of an effect."""
    if isinstance(effect, to_do.CallExtender):
        return extender_commands.caller(effect.question)
    return str(getattr(effect, "plugin", ""))


# Formatting effects.


def clock(now: int) -> str:
    """A time as seconds since the start."""
    return render(datetime.timedelta(microseconds=now // 1000))


def short(about: Any) -> str:
    """A pod's name, with its namespace unless that is `default`."""
    return str(about.name) if about.namespace == "default" else f"{about.namespace}/{about.name}"


def rendered(effect: Effect) -> str:
    """An effect on one line, without its number."""
    line = _line(effect)
    return line if effect.term == 1 else f"{line}  [term {effect.term}]"


def _line(effect: Effect) -> str:
    match effect:
        case to_do.Bind():
            return f"bind {short(effect)} to {effect.node}"
        case to_do.ReadPod():
            return f"read {short(effect)}"
        case to_do.PatchStatus():
            stated = f" {effect.reason}: {effect.message}" if effect.reason else ""
            node = effect.nominated_node
            return f"patch {short(effect)}{'' if node is None else f' nominated={node}'}{stated}"
        case to_do.PatchGroup():
            return f"group {short(effect)}: {group_commands.status_line(effect.status)}"
        case to_do.RecordEvent():
            kind = "" if effect.kind == "Pod" else f"{effect.kind} "
            return f"event {kind}{short(effect)} {effect.type} {effect.reason}: {effect.note}"
        case to_do.Evict():
            return f"evict {short(effect)} for {effect.preemptor or 'no pod'}: {effect.message}"
        case to_do.Prepare():
            what = f"{effect.plugin} at {effect.point} for {effect.timeout_s:g}s"
            return f"prepare {short(effect)} on {effect.node}: {what}"
        case to_do.Write():
            kind, patch = type(effect.value).__name__, encode(effect.patch).decode()
            return f"write {kind} {effect.value.name}: {patch}"
        case to_do.CallExtender():
            return extender_commands.written(effect)
        case to_do.Cancel():
            return f"cancel {effect.uid.partition('/')[2]}"
        case to_do.Report():
            return f"report {effect.subject}{' fault' if effect.is_fault else ''}: {effect.text}"
        case to_do.Wake():
            return f"wake {clock(effect.at)}"


# Scripts.


def replayed(text: str, player: Player | None = None) -> str:
    """Run the script; returns the same commands with the actual output."""
    player = player or Player()
    return "\n\n".join(_answered(block, player) for block in text.strip().split("\n\n")) + "\n"


def _answered(block: str, player: Player) -> str:
    """A block with its output; comments stay, and a block of comments alone is left as it is."""
    lines = block.split("\n")
    head = lines[: lines.index(DASHES)] if DASHES in lines else lines
    commands = [line for line in head if not line.startswith("#")]
    if not commands:
        return block
    return "\n".join([*head, DASHES, *player.play(commands)])


def scripts() -> list[Path]:
    """All scripts in this folder."""
    return sorted(Path(__file__).parent.glob("*.txt"))
