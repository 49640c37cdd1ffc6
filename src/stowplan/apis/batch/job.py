"""Job. Validation of its status is in `job_status`.

Source: kubernetes v1.36, pkg/registry/batch/job/strategy.go, pkg/apis/batch/validation.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.batch.job_policy_validation import (
    validate_failure_policy,
    validate_success_policy,
)
from stowplan.apis.batch.job_status import is_condition_true, validate_job_status_update
from stowplan.apis.core.workload_validation import PodTemplateStrategy, validate_pod_template
from stowplan.apis.kind.printing import TEMPLATE_COLUMNS, PrintedTable, containers_of, selector_text
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import StatusStrategy, restore_field, update_generation
from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.errors import Cause, invalid, not_supported, required
from stowplan.apis.machinery.names import label_problems
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.schema.internal_form import internal_form
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
CompletionMode PodFailurePolicyAction PodFailurePolicyOnExitCodesOperator = string
PodReplacementPolicy JobConditionType = string

Job -- runs pods to completion.
  +PartialObjectMetadata
  spec JobSpec -- desired state.
  status JobStatus -- last observed state.

JobSpec
  parallelism int32? -- maximum number of pods running at a time.
  completions int32? -- number of pods that must succeed.
  activeDeadlineSeconds int64? -- the job fails after this time.
  podFailurePolicy PodFailurePolicy? -- what a failed pod means, by exit code and condition.
  successPolicy SuccessPolicy? -- which indexes must succeed.
  backoffLimit int32? -- number of retries before the job fails.
  backoffLimitPerIndex int32? -- retries of one index, with Indexed.
  maxFailedIndexes int32? -- the job fails when more indexes have failed.
  selector LabelSelector? -- set by the server unless manualSelector is true.
  manualSelector bool? -- the selector is chosen by the user.
  template core.PodTemplateSpec! -- the pods to run.
  ttlSecondsAfterFinished int32? -- the job is deleted this long after its end.
  completionMode CompletionMode? -- NonIndexed or Indexed.
  suspend bool? -- no pods run while it is true.
  podReplacementPolicy PodReplacementPolicy? -- TerminatingOrFailed or Failed.
  managedBy string? -- controller of the job, if another than the built-in one.

PodFailurePolicy
  rules [PodFailurePolicyRule]! -- the first that matches decides.

PodFailurePolicyRule
  action PodFailurePolicyAction! -- FailJob, FailIndex, Ignore or Count.
  onExitCodes PodFailurePolicyOnExitCodesRequirement? -- exit codes that match.
  onPodConditions [PodFailurePolicyOnPodConditionsPattern] -- conditions of the pod that match.

PodFailurePolicyOnExitCodesRequirement
  containerName string? -- container; any where left out.
  operator PodFailurePolicyOnExitCodesOperator! -- In or NotIn.
  values [int32]! -- exit codes in ascending order.

PodFailurePolicyOnPodConditionsPattern
  type core.PodConditionType! -- condition of the pod.
  status core.ConditionStatus! -- its status.

SuccessPolicy
  rules [SuccessPolicyRule]! -- one that is met ends the job.

SuccessPolicyRule
  succeededIndexes string? -- indexes such as 0,2-4.
  succeededCount int32? -- how many must succeed.

JobStatus
  conditions [JobCondition] ~merge:type -- Complete, Failed, Suspended and others.
  startTime Time? -- when the controller began.
  completionTime Time? -- when it completed.
  active int32 -- pods that are pending or running.
  succeeded int32 -- pods that succeeded.
  failed int32 -- pods that failed.
  terminating int32? -- pods that are being deleted.
  completedIndexes string -- indexes such as 0,2-4.
  failedIndexes string? -- indexes such as 1,5.
  uncountedTerminatedPods UncountedTerminatedPods? -- ended pods that are not counted yet.
  ready int32? -- active pods that are ready.

UncountedTerminatedPods
  succeeded [UID]
  failed [UID]

JobCondition
  type JobConditionType! -- Complete, Failed, Suspended, FailureTarget, SuccessCriteriaMet.
  status core.ConditionStatus! -- True, False or Unknown.
  lastProbeTime Time -- when it was last looked at.
  +core.ConditionChange
"""
_JOB_DEFAULTS = (("manualSelector", False), ("completionMode", "NonIndexed"), ("suspend", False))
_UID = "batch.kubernetes.io/controller-uid"
_NAME = "batch.kubernetes.io/job-name"
_OLD_UID = "controller-uid"
_OLD_NAME = "job-name"
_COUNTS = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit",
    "ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip
_FIXED = (
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_RESTART_POLICIES = ("OnFailure", "Never")


def _set_defaults(one: Tree) -> None:
    """One completion; the job gets the labels of the template."""
    spec = one["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    for name, value in _JOB_DEFAULTS:
        spec.setdefault(name, value)
    per_index = "backoffLimitPerIndex" in spec
    spec.setdefault("backoffLimit", 2**31 - 1 if per_index else 6)
    failed = "podFailurePolicy" in spec
    spec.setdefault("podReplacementPolicy", "Failed" if failed else "TerminatingOrFailed")
    labels = spec["template"]["metadata"].get("labels")
    if labels and not one["metadata"].get("labels"):
        # The same object, as in the original: the job has what is added to it as well.
        one["metadata"]["labels"] = labels


def _set_condition_pattern_defaults(one: Tree) -> None:
    """A pattern without a status matches conditions that are True."""
    if not one["status"]:
        one["status"] = "True"


class JobStrategy(PodTemplateStrategy):
    """Job: selects its pods by its uid unless `manualSelector` is set."""

    orphans_by_default = True
    deletion_warning = (
        "child pods are preserved by default when jobs are deleted; set "
        "propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress "
        "this warning"
    )

    def __init__(self) -> None:
        super().__init__(status={}, counted=("spec",))

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        super().prepare_create(obj, call)
        if not obj["spec"].get("manualSelector"):
            generate_selector(obj)
        # The original defaults the labels of the job with every read.
        labels = obj["spec"]["template"]["metadata"].get("labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "status")
        update_generation(new, old, ("spec",))

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        yield from _validate_generated_selector(obj)
        yield from validate_job_spec(obj["spec"], "spec")
        yield from _validate_selector(obj["spec"])
        yield from _validate_pod_names(obj)

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        yield from self.validate(new, call)
        yield from _validate_update(new, old)

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        name = obj["metadata"].get("name", "")
        problems = label_problems(name) if old is None else []
        if problems:
            yield (
                "metadata.name: this is used in Pod names and hostnames, which can result in "
                "surprising behavior; a DNS label is recommended: "
                f"[{' '.join(problems)}]"
            )
        yield from super().warnings(obj, old, call)


def generate_selector(obj: Tree) -> None:
    """Give a Job the selector, and its pods the labels, that the API server makes of its uid."""
    name, uid = obj["metadata"].get("name", ""), obj["metadata"].get("uid", "")
    labels = obj["spec"]["template"]["metadata"].setdefault("labels", {})
    for key, value in ((_OLD_NAME, name), (_NAME, name), (_OLD_UID, uid), (_UID, uid)):
        labels.setdefault(key, value)
    selector = obj["spec"].setdefault("selector", {})
    selector.setdefault("matchLabels", {}).setdefault(_UID, uid)


def _validate_generated_selector(obj: Tree) -> Iterator[Cause]:
    spec, meta = obj["spec"], obj["metadata"]
    if spec.get("manualSelector") or spec.get("selector") is None:
        return
    uid, name = meta.get("uid", ""), meta.get("name", "")
    found = spec["template"]["metadata"].get("labels", {})
    expected = {_UID: uid, _NAME: name, _OLD_UID: uid, _OLD_NAME: name}
    path = "spec.template.metadata"
    for key in (_OLD_UID, _OLD_NAME, _UID, _NAME):
        value = found.get(key)
        if value is None:
            yield required(f"{path}.labels[{key}]", f"must be '{expected[key]}'")
        elif value != expected[key]:
            yield invalid(f"{path}.labels[{key}]", found, f"must be '{expected[key]}'")
    if not field_checks.matches(spec["selector"], expected):
        yield invalid("spec.selector", spec["selector"], "`selector` not auto-generated")


def _validate_selector(spec: Tree) -> Iterator[Cause]:
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
    yield from field_checks.selector(selector, "spec.selector")
    found = spec["template"]["metadata"].get("labels", {})
    if not field_checks.matches(selector, found):
        text = "`selector` does not match template `labels`"
        printed = dict(sorted(found.items())) or None
        yield invalid("spec.template.metadata.labels", printed, text)


def _validate_pod_names(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    if spec.get("completionMode") == "Indexed" and spec.get("completions", 0) > 0:
        name = obj["metadata"].get("name", "")
        last = f"{name}-{spec['completions'] - 1}"
        if label_problems(last):
            text = f"will not able to create pod with invalid DNS label: {last}"
            yield invalid("metadata.name", name, text)


def validate_job_spec(spec: Tree, path: str) -> Iterator[Cause]:
    """The spec of a job, or of the jobs of a cron job."""
    yield from field_checks.not_negative_fields(spec, _COUNTS, path)
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    mode = spec.get("completionMode", "NonIndexed")
    yield from field_checks.one_of(mode, ("NonIndexed", "Indexed"), f"{path}.completionMode")
    if mode == "Indexed":
        yield from _validate_indexed(spec, path)
    elif mode == "NonIndexed":
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if name in spec:
                yield invalid(f"{path}.{name}", spec[name], "requires indexed completion mode")
    yield from _validate_managed_by(spec, path)
    yield from _validate_policies(spec, mode, path)
    yield from _validate_replacement_policy(spec, f"{path}.podReplacementPolicy")
    yield from validate_pod_template(spec["template"], f"{path}.template")
    yield from _validate_restart_policy(spec, f"{path}.template.spec.restartPolicy")


def _validate_policies(spec: Tree, mode: str, path: str) -> Iterator[Cause]:
    if spec.get("podFailurePolicy") is not None:
        yield from validate_failure_policy(spec, f"{path}.podFailurePolicy")
    if spec.get("successPolicy") is not None:
        if mode == "Indexed":
            yield from validate_success_policy(spec, f"{path}.successPolicy")
        else:
            printed = internal_form("batch/v1.SuccessPolicy", spec["successPolicy"])
            yield invalid(f"{path}.successPolicy", printed, "requires indexed completion mode")


def _validate_managed_by(spec: Tree, path: str) -> Iterator[Cause]:
    manager = spec.get("managedBy")
    if manager is not None:
        host, _, rest = manager.partition("/")
        if not host or not rest:
            text = 'must be a domain-prefixed path (such as "acme.io/foo")'
            yield invalid(f"{path}.managedBy", manager, text)
        else:
            yield from field_checks.dns_subdomain(host, f"{path}.managedBy")


def _validate_indexed(spec: Tree, path: str) -> Iterator[Cause]:
    completions, failed = spec.get("completions"), spec.get("maxFailedIndexes")
    if completions is None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    if spec.get("parallelism", 0) > 100_000:
        text = "must be less than or equal to 100000 when completion mode is Indexed"
        yield invalid(f"{path}.parallelism", spec["parallelism"], text)
    if completions is not None and failed is not None and failed > completions:
        text = "must be less than or equal to completions"
        yield invalid(f"{path}.maxFailedIndexes", failed, text)
    if failed is not None and failed > 100_000:
        yield invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to 100000")


def _validate_replacement_policy(spec: Tree, path: str) -> Iterator[Cause]:
    policy = spec.get("podReplacementPolicy")
    if policy is None:
        return
    allowed = ["Failed"] if "podFailurePolicy" in spec else ["Failed", "TerminatingOrFailed"]
    yield from field_checks.one_of(policy, allowed, path)


def _validate_restart_policy(spec: Tree, path: str) -> Iterator[Cause]:
    policy = spec["template"]["spec"]["restartPolicy"]
    if policy == "Always":
        yield required(path, 'valid values: "OnFailure", "Never"')
    elif policy not in _RESTART_POLICIES:
        yield not_supported(path, policy, _RESTART_POLICIES)
    elif "podFailurePolicy" in spec and policy != "Never":
        yield invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _validate_update(job: Tree, was_job: Tree) -> Iterator[Cause]:
    new, old = job["spec"], was_job["spec"]
    # The original checks the new spec a second time, and lists its causes twice.
    yield from validate_job_spec(new, "spec")
    yield from _validate_selector(new)
    completions, was = new.get("completions"), old.get("completions")
    if new.get("completionMode") != "Indexed":
        yield from field_checks.immutable(completions, was, "spec.completions")
    elif completions not in (was, None, new.get("parallelism")):
        text = "can only be modified in tandem with spec.parallelism"
        yield invalid("spec.completions", completions, text)
    yield from field_checks.immutable(new.get("selector"), old.get("selector"), "spec.selector")
    yield from _validate_template_update(job, was_job)
    for name in _FIXED:
        yield from field_checks.immutable(new.get(name), old.get(name), f"spec.{name}")


def _validate_template_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """The template is immutable, except scheduling fields and resources of a suspended job."""
    template, before = new["spec"]["template"], copy.deepcopy(old["spec"]["template"])
    status = old["status"]
    idle = "startTime" not in status or is_condition_true(status, "Suspended")
    if old["spec"].get("suspend") and idle and not status.get("active"):
        _restore_mutable_scheduling(template, before)
        _restore_mutable_resources(template["spec"], before["spec"])
        if template["spec"] != before["spec"]:
            printed = internal_form("core/v1.PodSpec", template["spec"])
            yield invalid("spec.template.spec", printed, field_checks.IMMUTABLE)
    elif template != before:
        printed = internal_form("core/v1.PodTemplateSpec", template)
        yield invalid("spec.template", printed, field_checks.IMMUTABLE)


def _restore_mutable_scheduling(template: Tree, before: Tree) -> None:
    for name in ("labels", "annotations"):
        restore_field(before["metadata"], template["metadata"], name)
    for name in ("nodeSelector", "tolerations", "schedulingGates"):
        restore_field(before["spec"], template["spec"], name)
    affinity = dict(before["spec"].get("affinity", {}))
    restore_field(affinity, template["spec"].get("affinity", {}), "nodeAffinity")
    if affinity or "affinity" in template["spec"]:
        before["spec"]["affinity"] = affinity
    else:
        before["spec"].pop("affinity", None)


def _restore_mutable_resources(spec: Tree, before: Tree) -> None:
    for kind in ("containers", "initContainers"):
        ours, theirs = spec.get(kind) or [], before.get(kind) or []
        if len(ours) == len(theirs):
            for one, other in zip(ours, theirs, strict=True):
                if one["name"] == other["name"]:
                    other["resources"] = one["resources"]


def successful_field(job: Tree) -> str:
    """The selectable field `status.successful`."""
    return str(job["status"].get("succeeded", 0))


def _cells(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    done = status.get("succeeded", 0)
    completions = f"{done}/1"
    if "completions" in spec:
        completions = f"{done}/{spec['completions']}"
    elif spec.get("parallelism", 0) > 1:
        completions = f"{done}/1 of {spec['parallelism']}"
    took = ""
    if status.get("startTime"):
        ended = status.get("completionTime")
        until = timestamps.parse_time(ended) if ended else now
        took = timestamps.human_duration(until - timestamps.parse_time(status["startTime"]))
    return [
        _job_status(obj),
        completions,
        took,
        *containers_of(spec["template"]),
        selector_text(spec.get("selector")),
    ]


def _job_status(obj: Tree) -> str:
    true: dict[str, str] = {}
    for one in obj["status"].get("conditions", ()):
        true.setdefault(one["type"], one["status"])
    is_true = {name for name, status in true.items() if status == "True"}
    for name in ("Complete", "Failed"):
        if name in is_true:
            return name
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for name in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if name in is_true:
            return name
    return "Running"


KIND = KindRegistration(
    group="batch",
    kind="Job",
    types=TYPES,
    defaults={
        "batch/v1.Job": _set_defaults,
        "batch/v1.PodFailurePolicyOnPodConditionsPattern": _set_condition_pattern_defaults,
    },
    strategy=JobStrategy(),
    status=StatusStrategy(validate_job_status_update),
    categories=("all",),
    table=PrintedTable(
        f"Name, Status, Completions, Duration, Age, {TEMPLATE_COLUMNS}, Selector+", _cells
    ),
    fields={"status.successful": successful_field},
)
