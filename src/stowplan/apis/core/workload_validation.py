"""What kinds with a pod template share: validation of template and selector, their strategy.

Source: kubernetes v1.36, pkg/apis/apps/validation/validation.go, pkg/apis/core/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from stowplan.apis.core.pod_spec import pod_annotations, pod_spec, trimmed_images
from stowplan.apis.core.pod_warnings import pod_warnings
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import (
    INVALID,
    Cause,
    forbidden_field,
    invalid,
    not_supported,
    required,
    value_text,
)
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.machinery.strconv import saturated_int
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

_PERCENT = re.compile(r"[0-9]+%")
_PERCENT_TEXT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
TEMPLATE_PATH = "spec.template"
_REPLICA_COUNTS = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")


class PodTemplateStrategy(BuiltinStrategy):
    """A workload with a pod template at `spec.template`; gives the warnings of pods."""

    def warnings(self, obj: Tree, old: Tree | None, call: ApiCall) -> Iterable[str]:
        template = obj["spec"].get("template")
        if template is None or (old is not None and old["spec"].get("template") == template):
            return ()
        return pod_warnings(template["spec"], template["metadata"], f"{TEMPLATE_PATH}.")


def validate_pod_template(template: Tree, path: str) -> Iterator[Cause]:
    """Metadata and spec of a pod template."""
    meta = template["metadata"]
    yield from field_checks.labels(meta.get("labels", {}), f"{path}.labels")
    for key in meta.get("annotations", {}):
        yield from field_checks.qualified_name(key.lower(), f"{path}.annotations")
    yield from pod_annotations(meta, f"{path}.annotations")
    yield from pod_spec(template["spec"], None, f"{path}.spec", is_pod=False)
    yield from trimmed_images(template["spec"], f"{path}.spec")
    if template["spec"].get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        yield forbidden_field(f"{path}.spec.ephemeralContainers", text)


def validate_selected_template(
    spec: Tree, text: str, kind: str = "ReplicaSet", run: Tree | None = None, *, checks: bool = True
) -> Iterator[Cause]:
    """The template, if the selector is valid: the selector matches its labels, its restart policy
    is Always. text: of the cause for an invalid selector. kind: as messages name it. run: the
    template as the controller completes it, if that is another. checks: False leaves out the rest
    of the template."""
    if any(field_checks.selector(spec["selector"], "spec.selector")):
        message = f"Invalid value: {value_text(spec['selector'])}"
        yield Cause("spec.selector", INVALID, f"{message}: {text}" if text else message)
        return
    template = spec["template"]
    found = template["metadata"].get("labels", {})
    # A missing selector selects nothing, an empty one everything.
    selects_some = spec["selector"] is None or not field_checks.is_empty_selector(spec["selector"])
    if selects_some and not field_checks.matches(spec["selector"], found):
        text = "`selector` does not match template `labels`"
        yield invalid(f"{TEMPLATE_PATH}.metadata.labels", found or None, text)
    if checks:
        yield from validate_pod_template(run or template, TEMPLATE_PATH)
    path = f"{TEMPLATE_PATH}.spec"
    if template["spec"]["restartPolicy"] != "Always":
        yield not_supported(f"{path}.restartPolicy", template["spec"]["restartPolicy"], ["Always"])
    if "activeDeadlineSeconds" in template["spec"]:
        text = f"activeDeadlineSeconds in {kind} is not Supported"
        yield forbidden_field(f"{path}.activeDeadlineSeconds", text)


def validate_workload_selector(selector: Tree | None, kind: str) -> Iterator[Cause]:
    """The selector of a workload, which must not be empty. kind: as messages name it."""
    if selector is None:
        yield required("spec.selector")
        return
    yield from field_checks.selector(selector, "spec.selector")
    if field_checks.is_empty_selector(selector):
        yield invalid("spec.selector", selector, f"empty selector is invalid for {kind}")


def validate_int_or_percent(value: int | str, path: str) -> Iterator[Cause]:
    """A non-negative number or a percentage."""
    if isinstance(value, str):
        if not _PERCENT.fullmatch(value):
            yield invalid(path, value, _PERCENT_TEXT)
    else:
        yield from field_checks.not_negative(value, path)


def validate_percent_at_most_100(value: int | str, path: str) -> Iterator[Cause]:
    """A percentage is at most 100%."""
    if isinstance(value, str) and _PERCENT.fullmatch(value) and saturated_int(value[:-1]) > 100:
        yield invalid(path, value, "must not be greater than 100%")


def is_zero_int_or_percent(value: int | str | None) -> bool:
    """True for 0, 0% and a value that is not set."""
    if isinstance(value, str):
        return bool(_PERCENT.fullmatch(value)) and saturated_int(value[:-1]) == 0
    return not value


def internal_update_strategy(strategy: Tree) -> Tree:
    """A strategy of unknown type as the original prints it, with the names of Go fields."""
    return {"Type": strategy["type"], "RollingUpdate": strategy.get("rollingUpdate")}


def validate_replica_status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """The replica counts are not negative and consistent."""
    yield from field_checks.not_negative_fields(
        new["status"], ("replicas", *_REPLICA_COUNTS, "observedGeneration"), "status"
    )
    yield from validate_replica_counts(new["status"], _REPLICA_COUNTS)


def validate_replica_counts(
    status: Tree, names: Iterable[str], of_ready: str = "readyReplicas"
) -> Iterator[Cause]:
    """The counts are at most `replicas`, and the available ones at most `of_ready`, as printed."""
    for name in names:
        if status.get(name, 0) > status.get("replicas", 0):
            text = "cannot be greater than status.replicas"
            yield invalid(f"status.{name}", status.get(name, 0), text)
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        yield invalid("status.availableReplicas", available, f"cannot be greater than {of_ready}")
