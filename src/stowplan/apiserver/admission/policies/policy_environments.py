"""CEL environments of policies: the variables that expressions may use, and compilation.

Source: apiserver v1.36, pkg/admission/plugin/cel/compile.go, composition.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from stowplan.apiserver.expressions.authorizer_library import AUTHORIZER, RESOURCE_CHECK
from stowplan.apiserver.expressions.environments import api_library
from stowplan.cel.cel_types import BOOL, DYN, INT, STRING, CelType, cel_type
from stowplan.cel.overloads import Library
from stowplan.cel.program import Environment, Program
from stowplan.cel.syntax_tree import CompileError
from stowplan.objects.encoding.tree import Tree

_TEXTS = cel_type("list(string)")
_TEXT_MAP = cel_type("map(string, string)")
_TIME = cel_type("timestamp")
# Types of variables that keep their type; the fields of others are not known.
_KEPT = frozenset({
    "any", "bool", "bytes", "double", "google.protobuf.Duration", "dyn", "int", "list", "map",
    "null_type", "string", "google.protobuf.Timestamp", "uint",
})  # fmt: skip
OBJECT, JSON_PATCH = "Object", "JSONPatch"


def _object(name: str, /, **fields: CelType) -> CelType:
    return CelType(f"kubernetes.{name}", (), fields)


def _request_type() -> CelType:
    kind = _object("GroupVersionKind", group=STRING, version=STRING, kind=STRING)
    resource = _object("GroupVersionResource", group=STRING, version=STRING, resource=STRING)
    extra = cel_type("map(string, list(string))")
    user = _object("UserInfo", username=STRING, uid=STRING, groups=_TEXTS, extra=extra)
    texts = dict.fromkeys(
        ("subResource", "requestSubResource", "name", "namespace", "operation"), STRING
    )
    return _object(
        "AdmissionRequest", kind=kind, resource=resource, requestKind=kind,
        requestResource=resource, userInfo=user, dryRun=BOOL, options=DYN, **texts,
    )  # fmt: skip


def _namespace_type() -> CelType:
    spec = _object("NamespaceSpec", finalizers=_TEXTS)
    condition = _object(
        "NamespaceCondition", status=STRING, type=STRING, lastTransitionTime=_TIME,
        message=STRING, reason=STRING,
    )  # fmt: skip
    status = _object("NamespaceStatus", conditions=CelType("list", (condition,)), phase=STRING)
    metadata = _object(
        "NamespaceMetadata", name=STRING, generateName=STRING, namespace=STRING,
        labels=_TEXT_MAP, annotations=_TEXT_MAP, UID=STRING, creationTimestamp=_TIME,
        deletionGracePeriodSeconds=INT, deletionTimestamp=_TIME, generation=INT,
        resourceVersion=STRING, finalizers=_TEXTS,
    )  # fmt: skip
    return _object("Namespace", metadata=metadata, spec=spec, status=status)


class _AnyFields(Mapping[str, CelType]):
    """Fields of every name, of unknown type."""

    def __getitem__(self, name: str) -> CelType:
        return DYN

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _PatchTypes(Mapping[str, CelType]):
    """What expressions of patches may construct: `JSONPatch{}`, `Object{}`, `Object.spec{}`..."""

    _json_patch = CelType(
        JSON_PATCH, (), {"op": STRING, "path": STRING, "from": STRING, "value": DYN}
    )

    def __getitem__(self, name: str) -> CelType:
        if name == JSON_PATCH:
            return self._json_patch
        if name == OBJECT or name.startswith(f"{OBJECT}."):
            return CelType(name, (), _AnyFields())
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter((JSON_PATCH, OBJECT))

    def __len__(self) -> int:
        return 2


PATCH_TYPES = _PatchTypes()


def _escaped_key(text: str) -> str:
    # One pass, as the original's replacer: what it makes is not read again.
    return "".join({"/": "~1", "~": "~0"}.get(letter, letter) for letter in text)


@cache
def _patch_library() -> Library:
    own = Library()
    own.add("string_jsonpatch_escapeKey_string", "jsonpatch.escapeKey(string) string", _escaped_key)
    return api_library().extended([own])


@cache
def _base_variables(has_params: bool, has_authorizer: bool) -> Mapping[str, CelType]:
    made = {
        "object": DYN,
        "oldObject": DYN,
        "namespaceObject": _namespace_type(),
        "request": _request_type(),
    }
    if has_params:
        made["params"] = DYN
    if has_authorizer:
        made["authorizer"] = CelType(AUTHORIZER)
        made["authorizer.requestResource"] = CelType(RESOURCE_CHECK)
    return made


@dataclass(frozen=True)
class CompiledExpression:
    """An expression. error: of compilation, "" for none."""

    text: str
    program: Program | None = None
    error: str = ""


@dataclass
class PolicyCompiler:
    """Compiles the expressions of one policy. variables: those compiled so far, by name; None for
    a policy that cannot have any."""

    has_params: bool
    variables: dict[str, CompiledExpression] | None = field(default_factory=dict)
    _types: dict[str, CelType] = field(default_factory=dict)

    def add_variable(self, name: str, text: str) -> CompiledExpression:
        """Compile a variable, which later expressions may use."""
        made = self.compile(text, ())
        assert self.variables is not None
        self.variables[name] = made
        found = DYN if made.program is None else made.program.result_type
        self._types[name] = found if found.name in _KEPT else DYN
        return made

    def compile(
        self,
        text: str,
        wanted: Sequence[CelType],
        *,
        has_authorizer: bool = True,
        patches: bool = False,
    ) -> CompiledExpression:
        """Compile an expression. wanted: types that it may have, empty for any. patches: it makes
        a patch."""
        environment = self._environment(has_authorizer, patches)
        try:
            program = environment.compile(text)
        except CompileError as error:
            return CompiledExpression(text, error=f"compilation failed: {error}")
        found = program.result_type
        if wanted and found not in wanted:
            listed = " ".join(one.name for one in wanted)
            allowed = str(wanted[0]) if len(wanted) == 1 else f"one of [{listed}]"
            return CompiledExpression(text, error=f"must evaluate to {allowed} but got {found}")
        if program.fault:
            return CompiledExpression(text, error=f"program instantiation failed: {program.fault}")
        return CompiledExpression(text, program)

    def _environment(self, has_authorizer: bool, patches: bool) -> Environment:
        base = _shared_environment(self.has_params, has_authorizer, patches)
        if self.variables is None:
            return base
        held = CelType("kubernetes.variables", (), dict(self._types))
        variables = {**base.variables, "variables": held}
        return Environment(variables, base.library, base.objects)


@cache
def _shared_environment(has_params: bool, has_authorizer: bool, patches: bool) -> Environment:
    make = partial(Environment, _base_variables(has_params, has_authorizer))
    return make(_patch_library(), PATCH_TYPES) if patches else make(api_library())


def policy_compiler(spec: Tree) -> PolicyCompiler:
    """A compiler for the expressions of a policy, its variables compiled."""
    made = PolicyCompiler(spec.get("paramKind") is not None)
    for one in spec.get("variables") or ():
        made.add_variable(one["name"], one["expression"])
    return made
