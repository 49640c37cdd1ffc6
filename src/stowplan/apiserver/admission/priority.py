"""Priority: sets priority and preemption policy of a pod from its priority class.

Source: kube-apiserver v1.36, plugin/pkg/admission/priority.
"""

from __future__ import annotations

from stowplan.apis.machinery.errors import forbidden
from stowplan.apis.machinery.resource import ApiCall, ObjectClient
from stowplan.apis.scheduling import priority_class
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    admission_forbidden,
    stored_object,
    stored_objects,
    targets,
)
from stowplan.objects.encoding.tree import Tree


class PriorityAdmission(AdmissionPluginBase):
    """Resolves `priorityClassName` of new pods and rejects a second default class."""

    repeatable = True
    only_objects = True
    paths = ("pods", priority_class.PATH)

    def __init__(self) -> None:
        self._default: Tree | None = None
        self._objects: ObjectClient | None = None
        self._n_writes = 0

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Set priority and policy of a new pod; on update restore them if missing."""
        if (
            call.verb == "delete"
            and targets(call, priority_class.PATH)
            and call.name in priority_class.SYSTEM_CLASSES
        ):
            why = "this is a system priority class and cannot be deleted"
            raise forbidden(call.resource.group, call.resource.plural, call.name, why)
        if obj is None or not targets(call, "pods"):
            return
        spec = obj.setdefault("spec", {})
        if old is None:
            self._resolve(call, obj, spec)
            return
        for name in ("priority", "preemptionPolicy"):
            if spec.get(name) is None and old.get("spec", {}).get(name) is not None:
                spec[name] = old["spec"][name]

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Reject a second default class."""
        if obj is None or not targets(call, priority_class.PATH) or not obj.get("globalDefault"):
            return
        default = self._default_class(call)
        if default is None:
            return
        name = default["metadata"]["name"]
        if old is None or name != obj["metadata"].get("name"):
            why = f"PriorityClass {name} is already marked as default. Only one default can exist"
            raise admission_forbidden(call, obj, why)

    def _resolve(self, call: ApiCall, obj: Tree, spec: Tree) -> None:
        name, value, policy = self.established(call, obj, spec.get("priorityClassName") or "")
        if name:
            spec["priorityClassName"] = name
        for field, computed, printed in (
            ("priority", value, "integer value of priority"),
            ("preemptionPolicy", policy or None, "string value of PreemptionPolicy"),
        ):
            given = spec.get(field)
            if computed is None:
                continue
            if given is not None and given != computed:
                why = (
                    f"the {printed} ({given}) must not be provided in pod spec; priority admission "
                    f"controller computed {computed} from the given PriorityClass name"
                )
                raise admission_forbidden(call, obj, why)
            spec[field] = computed

    def established(self, call: ApiCall, obj: Tree, name: str) -> tuple[str, int, str]:
        """Class name, priority and policy; without a class those of the default class, or 0."""
        if not name:
            found = self._default_class(call)
            if found is None:
                return "", 0, priority_class.PREEMPT_LOWER_PRIORITY
        else:
            found = stored_object(call, priority_class.PATH, "", name)
            if found is None:
                raise admission_forbidden(call, obj, f"no PriorityClass with name {name} was found")
        return found["metadata"]["name"], found.get("value", 0), found.get("preemptionPolicy", "")

    def _default_class(self, call: ApiCall) -> Tree | None:
        """The default class; of several that of the lowest value.

        Cached until a class is written.
        """
        n_writes = call.objects.n_writes(priority_class.PATH)
        if self._objects is not call.objects or self._n_writes != n_writes:
            found = [
                each
                for each in stored_objects(call, priority_class.PATH)
                if each.get("globalDefault")
            ]
            self._default = min(found, key=lambda each: each.get("value", 0), default=None)
            self._objects, self._n_writes = call.objects, n_writes
        return self._default
