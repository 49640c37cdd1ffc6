"""PreEnqueue gates: plugins that keep a pod out of the queue without an attempt.

Source: kube-scheduler v1.36, backend/queue/scheduling_queue.go runPreEnqueuePlugins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from stowplan.framework.handle_state import PreemptingPods
from stowplan.framework.problems import ContractError
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.status import OK, Status, error
from stowplan.objects.pod import Pod, PodSpec
from stowplan.objects.pod_templates import common_spec_of, kept_outline
from stowplan.queue.pod_record import PodRecord

PreEnqueueCheck = Callable[[Pod], Status]


NamedChecks = tuple[tuple[str, PreEnqueueCheck], ...]
PodChecks = tuple[NamedChecks, NamedChecks]
"""All gates that concern a pod, and those that may keep it out while no pod preempts."""

_KEPT = "gates"


class PreEnqueueGates:
    """The PreEnqueue plugins of each profile, in call order.

    Plugins that do not concern pods of a spec are skipped: `applies_to` holds for all pods of a
    template and is called once for specs that differ in the names of claims alone.
    """

    def __init__(
        self,
        by_profile: Mapping[str, Sequence[tuple[str, PreEnqueueCheck]]],
        applies_to: Mapping[str, Callable[[Pod], bool]] | None = None,
        preempting: PreemptingPods | None = None,
        preempting_gates: Collection[tuple[str, str]] = (),
        of_groups: Collection[str] = (),
        by_outline: Collection[str] = (),
    ) -> None:
        """by_profile: scheduler name -> (plugin, its `pre_enqueue`). applies_to: plugin -> function
        that tells whether the plugin applies to a pod, for plugins that have one. preempting: pods
        that wait for their victims. preempting_gates: (scheduler name, plugin) of those that
        declare `gates_preempting`. of_groups: plugins that declare `permits_groups`, and keep the
        members of a group out together. by_outline: plugins that declare `gates_by_outline`."""
        self.of_groups = frozenset(of_groups)
        self.preempting = PreemptingPods() if preempting is None else preempting
        self._preempting_gates = frozenset(preempting_gates)
        self.faults: list[tuple[Pod, str]] = []
        self._by_name = {
            (profile, name): ask for profile, gates in by_profile.items() for name, ask in gates
        }
        asked = applies_to or {}
        self._asked = {
            profile: tuple((name, asked.get(name)) for name, _ in gates)
            for profile, gates in by_profile.items()
        }
        # Profiles whose gates follow from the outline of a spec.
        self._by_outline = {
            profile
            for profile, gates in self._asked.items()
            if all(applies is None or name in by_outline for name, applies in gates)
        }
        self._latest_outline: tuple[bytes | None, PodChecks] = None, ((), ())
        # After `concern`: that of the pod, as `kept_outline` gives it, if the same gates concern
        # all pods whose specs have this object.
        self.shared_outline: bytes | None = None
        # Cache key of the names noted on a spec. Only strings are noted: specs are not tracked by
        # the garbage collector and must not refer to objects that can form a cycle.
        self._mark = object()
        self._named: dict[tuple[str, tuple[str, ...]], PodChecks] = {}
        # Pods of one template come one after the other.
        self._latest: tuple[PodSpec | None, PodChecks] = None, ((), ())
        self._known: dict[tuple[str, ...], tuple[object, tuple[str, ...]]] = {}

    @classmethod
    def of(cls, frameworks: Mapping[str, Framework]) -> PreEnqueueGates:
        """The PreEnqueue plugins of the profiles."""
        found: dict[str, list[tuple[str, PreEnqueueCheck]]] = {name: [] for name in frameworks}
        applies_to: dict[str, Callable[[Pod], bool]] = {}
        preempting: PreemptingPods | None = None
        preempting_gates: set[tuple[str, str]] = set()
        of_groups: set[str] = set()
        by_outline: set[str] = set()
        for name, framework in frameworks.items():
            for member in framework.at("preEnqueue"):
                call = member.calls["pre_enqueue"]
                if call is not None:
                    found[name].append((member.name, call))
                    if member.declaration.gates_by_outline:
                        by_outline.add(member.name)
                    if member.declaration.permits_groups:
                        of_groups.add(member.name)
                    if member.declaration.gates_preempting:
                        preempting = framework.shared.preempting
                        preempting_gates.add((name, member.name))
                    if member.calls["applies_to"] is not None:
                        applies_to[member.name] = member.calls["applies_to"]
        return cls(found, applies_to, preempting, preempting_gates, of_groups, by_outline)

    def _about(self, pod: Pod) -> PodChecks:
        """The gates that concern a pod."""
        # A decoder has just read it of a spec that is new.
        outline = self.shared_outline = kept_outline(pod.spec)
        if outline is not None and outline is self._latest_outline[0]:
            return self._latest_outline[1]
        self.shared_outline = None
        spec = common_spec_of(pod.spec)
        latest, checks_of_latest = self._latest
        if spec is latest:
            return checks_of_latest
        known: tuple[object, tuple[str, ...]] | None = spec.__dict__.get(_KEPT)
        if known is None or known[0] is not self._mark:
            asked = self._asked.get(spec.scheduler_name, ())
            names = tuple([name for name, applies in asked if applies is None or applies(pod)])
            # One object for all pods with the same gates.
            known = self._known.get(names)
            if known is None:
                known = self._known[names] = self._mark, names
            spec.__dict__[_KEPT] = known
        key = spec.scheduler_name, known[1]
        checks = self._named.get(key)
        if checks is None:
            profile = spec.scheduler_name
            gates = tuple((name, self._by_name[profile, name]) for name in known[1])
            others = (one for one in gates if (profile, one[0]) not in self._preempting_gates)
            checks = self._named[key] = gates, tuple(others)
        self._latest = spec, checks
        if spec.scheduler_name in self._by_outline:
            self._latest_outline = outline, checks
            self.shared_outline = outline
        return checks

    def concern(self, pod: Pod) -> bool:
        """True where a gate may keep a pod out now."""
        spec, checks = self._latest
        if spec is not pod.spec:
            checks = self._about(pod)
        else:
            self.shared_outline = None
        return bool(checks[0] if self.preempting else checks[1])

    def group_gate(self, pod: Pod) -> str:
        """The gate of the groups where it is the only one that may keep a pod out now; else ""."""
        checks = self._about(pod)
        gates = checks[0] if self.preempting else checks[1]
        return gates[0][0] if len(gates) == 1 and gates[0][0] in self.of_groups else ""

    def holds(self, entry: PodRecord) -> bool:
        """True when the gate that keeps the entry out still does. Writes nothing."""
        ask = self._by_name.get((entry.pod.spec.scheduler_name, entry.gated_by))
        if ask is None:
            return False
        try:
            status = ask(entry.pod)
        except ContractError:
            # The gate is called again, with its status recorded, when the pod is about to enter.
            return False
        return status is not OK and not status.is_success

    def waits_for_victims(self, entry: PodRecord) -> bool:
        """True when the gate that keeps the entry out opens as soon as its uid leaves `preempting`,
        and not before."""
        pod = entry.pod
        return (
            pod.uid in self.preempting
            and (pod.spec.scheduler_name, entry.gated_by) in self._preempting_gates
            and pod.spec.scheduling_group is None
        )

    def admits(self, entry: PodRecord, *, is_open: bool = False) -> bool:
        """Call the gates and set `gated_by` of the entry; True when none keeps it out.

        The gate that kept it out before is called first, or not at all where `holds` has just found
        it open (is_open). A gate that rejects is added to refused_by and stays there when it opens.
        A gate that breaks its contract keeps the pod out and is added to `faults`.
        """
        pod = entry.pod
        spec, checks = self._latest
        if spec is not pod.spec:
            checks = self._about(pod)
        gates = checks[0] if self.preempting else checks[1]
        gated_by = entry.gated_by
        if gated_by and is_open:
            gates = tuple(gate for gate in gates if gate[0] != gated_by)
        elif gated_by:
            gates = tuple(sorted(gates, key=lambda gate: gate[0] != gated_by))
        for name, ask in gates:
            try:
                status = ask(pod)
            except ContractError as fault:
                status = error(str(fault))
                self.faults.append((pod, str(fault)))
            if status is not OK and not status.is_success:
                entry.gated_by = name
                entry.refused_by |= {name}
                return False
        entry.gated_by = ""
        return True
