"""The libraries of CEL that rules and policies of the API server may use.

Source: apiserver v1.36, pkg/cel/environment/base.go, pkg/cel/library/format.go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from stowplan.apis.machinery.names import (
    label_1035_problems,
    label_problems,
    label_value_problems,
    qualified_name_problems,
    subdomain_problems,
)
from stowplan.apiserver.crd.string_formats import matches_format
from stowplan.apiserver.expressions.authorizer_library import authorizer_library
from stowplan.cel.libraries.named_formats import NamedFormat, format_library
from stowplan.cel.libraries.urls import request_url_problem
from stowplan.cel.overloads import Library
from stowplan.cel.program import kubernetes_library


def _named(name: str, text: str) -> Callable[[str], list[str]]:
    return lambda value: [] if matches_format(name, value) else [text]


def _uri(text: str) -> list[str]:
    problem = request_url_problem(text)
    return [problem] if problem else []


_Problems = Callable[[str], list[str]]
_NAMES: tuple[tuple[str, str, _Problems, int], ...] = (
    ("dns1123Label", "DNS1123Label", label_problems, 30),
    ("dns1123Subdomain", "DNS1123Subdomain", subdomain_problems, 60),
    ("dns1035Label", "DNS1035Label", label_1035_problems, 30),
    ("qualifiedName", "QualifiedName", qualified_name_problems, 60),
    ("dns1123LabelPrefix", "DNS1123LabelPrefix", partial(label_problems, prefix=True), 30),
    ("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix",
     partial(subdomain_problems, prefix=True), 60),
    ("dns1035LabelPrefix", "DNS1035LabelPrefix", partial(label_1035_problems, prefix=True), 30),
    ("labelValue", "LabelValue", label_value_problems, 40),
    ("uri", "URI", _uri, 1103),
    ("uuid", "uuid", _named("uuid", "does not match the UUID format"), 81),
    ("byte", "byte", _named("byte", "invalid base64"), 84),
    ("date", "date", _named("date", "invalid date"), 160),
    ("datetime", "datetime", _named("datetime", "invalid datetime"), 160),
)  # fmt: skip
_FORMATS = {name: NamedFormat(formatted, check, size) for name, formatted, check, size in _NAMES}


@cache
def api_library() -> Library:
    """The functions of every environment of the API server."""
    return kubernetes_library().extended([format_library(_FORMATS), authorizer_library()])
