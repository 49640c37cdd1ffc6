"""Validation that the kinds of resource.k8s.io share.

Source: kubernetes v1.36, pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from stowplan.apis.machinery.names import label_value_problems, regex_text, subdomain_problems
from stowplan.apis.machinery.stored_form import encode
from stowplan.apis.resource.device_environment import (
    DeviceSelectorError,
    compile_selector,
    device_environment,
)
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

DRIVER_NAME_MAX, ID_MAX, POOL_NAME_MAX = 63, 32, 253
SELECTORS_MAX, CONFIG_MAX = 32, 32
EXPRESSION_BYTES_MAX = PARAMETERS_BYTES_MAX = 10 * 1024
TAINT_EFFECTS = ("NoExecute", "NoSchedule", "None")
_BINDING_CONDITIONS_MAX = 4
_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
_identifier = re.compile(_IDENTIFIER)
_IDENTIFIER_TEXT = regex_text(
    "a valid C identifier must start with alphabetic character or '_', followed by a string of"
    " alphanumeric characters or '_'",
    _IDENTIFIER,
    "my_name",
    "MY_NAME",
    "MyName",
)
_ENVIRONMENT = device_environment()

ItemCheck = Callable[[Any, str], Iterator[Cause]]


def validate_list(given: list[Any], count_max: int, check: ItemCheck, path: str) -> Iterator[Cause]:
    """Each item, unless there are too many."""
    if len(given) > count_max:
        yield too_many(path, len(given), count_max)
        return
    for at, one in enumerate(given):
        yield from check(one, f"{path}[{at}]")


def validate_set(
    given: list[Any], count_max: int, check: ItemCheck, path: str, key: str = "name"
) -> Iterator[Cause]:
    """As `validate_list`, then duplicates. key: of items that are objects."""
    yield from validate_list(given, count_max, check, path)
    if len(given) > count_max:
        return
    seen: set[str] = set()
    for at, one in enumerate(given):
        name = one if isinstance(one, str) else one[key]
        if name in seen:
            yield duplicate(f"{path}[{at}]", name)
        seen.add(name)


def validate_driver_name(name: str, path: str) -> Iterator[Cause]:
    """A DNS subdomain of at most 63 characters."""
    if not name:
        yield required(path)
        return
    if len(name) > DRIVER_NAME_MAX:
        yield too_long(path, DRIVER_NAME_MAX)
    for text in subdomain_problems(name.lower()):
        yield invalid(path, name, text)


def validate_pool_name(name: str, path: str) -> Iterator[Cause]:
    """DNS subdomains, separated by slashes."""
    if not name:
        yield required(path)
        return
    if len(name) > POOL_NAME_MAX:
        yield too_long(path, POOL_NAME_MAX)
    for part in name.split("/"):
        yield from field_checks.dns_subdomain(part, path)


def validate_attribute_name(name: str, path: str) -> Iterator[Cause]:
    """The name of an attribute or a capacity: a C identifier, with or without a domain."""
    domain, slash, last = name.partition("/")
    if not slash:
        yield from _identifier_problems(name, path)
    elif "/" not in last:
        if not domain:
            yield invalid(path, "", "the domain must not be empty")
        else:
            yield from validate_driver_name(domain, path)
        if not last:
            yield invalid(path, "", "the name must not be empty")
        else:
            yield from _identifier_problems(last, path)


def _identifier_problems(name: str, path: str) -> Iterator[Cause]:
    if len(name) > ID_MAX:
        yield too_long(path, ID_MAX)
    if not _identifier.fullmatch(name):
        yield invalid(path, name, _IDENTIFIER_TEXT)


def validate_full_attribute_name(name: str, path: str) -> Iterator[Cause]:
    """As `validate_attribute_name`, with a domain."""
    yield from validate_attribute_name(name, path)
    if "/" not in name:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        yield invalid(path, name, text)


def validate_device_selectors(given: list[Tree], path: str) -> Iterator[Cause]:
    """Each selector has a CEL expression that compiles."""
    return validate_list(given, SELECTORS_MAX, _selector, path)


def _selector(one: Tree, path: str) -> Iterator[Cause]:
    cel, here = one.get("cel"), f"{path}.cel"
    if cel is None:
        yield required(here)
        return
    expression = cel["expression"]
    if len(expression.encode("utf-8", "surrogatepass")) > EXPRESSION_BYTES_MAX:
        yield too_long(f"{here}.expression", EXPRESSION_BYTES_MAX)
        return
    try:
        compile_selector(_ENVIRONMENT, expression)
    except DeviceSelectorError as error:
        yield invalid(f"{here}.expression", expression, str(error))


def validate_device_config(one: Tree, path: str) -> Iterator[Cause]:
    """Opaque parameters of a driver."""
    opaque = one.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from validate_driver_name(opaque["driver"], f"{path}.opaque.driver")
    parameters, here = opaque["parameters"], f"{path}.opaque.parameters"
    if parameters is not None and len(encode({"": parameters})) - 5 > PARAMETERS_BYTES_MAX:
        yield too_long(here, PARAMETERS_BYTES_MAX)
    else:
        yield from validate_json_object(parameters, here)


def validate_json_object(value: Any, path: str) -> Iterator[Cause]:
    """A value that is a JSON object."""
    if value is None:
        yield required(path)
    elif not isinstance(value, dict):
        yield invalid(path, "<value omitted>", "must be a valid JSON object")


def validate_taint(taint: Tree, path: str) -> Iterator[Cause]:
    """A taint of a device."""
    yield from field_checks.label_name(taint["key"], f"{path}.key")
    if taint.get("value"):
        yield from validate_label_value(taint["value"], f"{path}.value")
    effect = taint["effect"]
    if not effect:
        yield required(f"{path}.effect")
    elif effect not in TAINT_EFFECTS:
        yield not_supported(f"{path}.effect", effect, TAINT_EFFECTS)


def validate_toleration(one: Tree, path: str) -> Iterator[Cause]:
    """A toleration of device taints."""
    if one.get("key"):
        yield from field_checks.label_name(one["key"], f"{path}.key")
    operator, value = one["operator"], one.get("value", "")
    if operator == "Exists":
        if value:
            yield invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        yield from validate_label_value(value, f"{path}.value")
    else:
        yield not_supported(f"{path}.operator", operator, ["Equal", "Exists"])
    effect = one.get("effect")
    if effect and effect not in TAINT_EFFECTS:
        yield not_supported(f"{path}.effect", effect, TAINT_EFFECTS)


def validate_label_value(value: str, path: str) -> Iterator[Cause]:
    """A value of a label."""
    for text in label_value_problems(value):
        yield invalid(path, value, text)


def validate_binding_conditions(one: Tree, path: str) -> Iterator[Cause]:
    """Conditions that a binding waits for, and those that fail it: both or none."""
    names = ("bindingConditions", "bindingFailureConditions")
    wanted, failing = (one.get(name) or [] for name in names)
    for name, given in zip(names, (wanted, failing), strict=True):
        check = field_checks.label_name
        yield from validate_list(given, _BINDING_CONDITIONS_MAX, check, f"{path}.{name}")
    yield from _repeated(wanted, (), f"{path}.bindingConditions")
    yield from _repeated(failing, wanted, f"{path}.bindingFailureConditions")
    if bool(wanted) != bool(failing):
        missing, present = names if failing else reversed(names)
        yield invalid(f"{path}.{missing}", None, f"{missing} are required to use {present}")


def _repeated(given: list[str], others: list[str] | tuple[()], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for at, name in enumerate(given):
        if name in seen:
            yield duplicate(f"{path}[{at}]", name)
        seen.add(name)
        if name in others:
            text = "bindingFailureConditions must not overlap with bindingConditions"
            yield invalid(f"{path}[{at}]", name, text)
