"""Jobs and pods with a queue of Kueue: they start suspended, and gated.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/controller/jobs/job/job_webhook.go,
pkg/controller/jobs/pod/pod_webhook.go.
"""

from __future__ import annotations

from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import AdmissionPluginBase, targets
from stowplan.objects.encoding.tree import Tree

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
MANAGED_LABEL = "kueue.x-k8s.io/managed"
ADMISSION_GATE = "kueue.x-k8s.io/admission"
_SUSPENDED = ("batch/jobs", "jobset.x-k8s.io/jobsets", "trainer.kubeflow.org/trainjobs")
_BY_RUN_POLICY = tuple(
    f"kubeflow.org/{kind}s" for kind in ("pytorchjob", "tfjob", "xgboostjob", "paddlejob",
    "jaxjob", "mpijob")
)  # fmt: skip


class QueuedJobAdmission(AdmissionPluginBase):
    """Suspends new jobs with a queue, and gates pods that have one and no controller."""

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Changes the object that is created."""
        if obj is None or old is not None:
            return
        meta = obj["metadata"]
        if not (meta.get("labels") or {}).get(QUEUE_LABEL):
            return
        if _is_owned(meta):
            return
        spec = obj.setdefault("spec", {})
        if any(targets(call, path) for path in _SUSPENDED):
            spec["suspend"] = True
        elif any(targets(call, path) for path in _BY_RUN_POLICY):
            spec.setdefault("runPolicy", {})["suspend"] = True
        elif targets(call, "pods") and not spec.get("nodeName"):
            meta["labels"][MANAGED_LABEL] = "true"
            gates = spec.setdefault("schedulingGates", [])
            if all(gate.get("name") != ADMISSION_GATE for gate in gates):
                gates.append({"name": ADMISSION_GATE})


def _is_owned(meta: Tree) -> bool:
    return any(owner.get("controller") for owner in meta.get("ownerReferences") or ())
