"""Calls of plugin methods by parameter name, and attribution of their errors."""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MethodType
from typing import Any

from stowplan.framework.extension_points import METHOD_PARAMETERS, RENAMED_METHODS
from stowplan.framework.plugin import PermitWait, PostFilterResult, PreBindWait, RestrictTo
from stowplan.framework.problems import ContractError, did_you_mean
from stowplan.framework.status import Status

Call = Callable[..., Any]

SIGNATURES_KEPT = 1000
"""Number of functions whose parameters are cached; a configuration has a few hundred."""

NEEDS_SCALAR = {"filter_column": "filter", "score_column": "score"}
NEEDS_PARTNER = {
    "add_pod": "remove_pod",
    "remove_pod": "add_pod",
    "unreserve": "reserve",
    "pre_bind_pre_flight": "pre_bind",
    "pre_bind_progress": "pre_bind",
}
REJECTED_MEANS = (
    "the Status of nodes that the plugin refuses, such as "
    'REJECTED = unschedulable("node(s) had too few GPUs")'
)
_STOWPLAN = __file__.rpartition("framework/")[0]
_PYTHON = inspect.__file__.rpartition("/")[0] + "/"
FUNCTION = "_stowplan_function"
"""Attribute of a function plugin's class that holds the decorated function."""
ANSWER_TYPES: dict[str, tuple[type[Any], ...]] = {
    "pre_enqueue": (Status,),
    "pre_filter": (Status, RestrictTo),
    "add_pod": (Status,),
    "remove_pod": (Status,),
    "filter": (Status,),
    "filter_status": (Status,),
    "post_filter": (PostFilterResult,),
    "pre_score": (Status,),
    "reserve": (Status,),
    "permit": (Status, PermitWait),
    "pre_bind_pre_flight": (Status,),
    "pre_bind": (Status, PreBindWait),
    "pre_bind_progress": (Status,),
    "bind": (Status,),
}
"""Return type of each method; arrays and scores are checked where their size is known."""


def check_signatures(plugin: type[Any], where: str) -> None:
    """Raise ContractError where a plugin class has methods that the runtime cannot call."""
    for new_name, offered in METHOD_PARAMETERS.items():
        method = method_name(plugin, new_name)
        if not method:
            continue
        if method != new_name:
            message = f"{where}: method `{method}` is deprecated, use `{new_name}`"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
        function = getattr(plugin, method)
        static = isinstance(inspect.getattr_static(plugin, method), staticmethod | classmethod)
        for name in parameters_of(function)[0 if static else 1 :]:
            if name not in offered:
                hint = did_you_mean(name, offered)
                raise ContractError(
                    f"{where}: {method}() has an unknown parameter {name!r}; available: "
                    f"{', '.join(offered) or 'none'}{' (' + hint + ')' if hint else ''}"
                )
    for method, needed in {**NEEDS_SCALAR, **NEEDS_PARTNER}.items():
        if hasattr(plugin, method) and not hasattr(plugin, needed):
            raise ContractError(f"{where}: has {method}() without {needed}(); expected both")
    rejected = getattr(plugin, "REJECTED", None)
    if rejected is not None and not (isinstance(rejected, Status) and rejected.is_rejected):
        raise ContractError(
            f"{where}: `REJECTED` is {rejected!r}; expected "
            f"{REJECTED_MEANS}{class_location(plugin)}"
        )


def method_name(plugin: object, method: str) -> str:
    """The name by which a plugin, or its class, has a method: also the old one of a renamed method;
    "" where it has none."""
    names = (method, RENAMED_METHODS.get(method, method))
    return next((name for name in names if callable(getattr(plugin, name, None))), "")


def parameters_of(function: Call) -> tuple[str, ...]:
    """Parameter names of a function, or of a class's constructor."""
    return _requested_parameters(function)[0]


def _requested_parameters(function: Call) -> tuple[tuple[str, ...], bool]:
    """Parameter names of a callable, and whether any of them is keyword-only."""
    # Frameworks are created by the thousand in fault runs; the functions stay the same.
    if isinstance(function, MethodType) and inspect.isfunction(function.__func__):
        return _requested_by_function(function.__func__, is_bound=True)
    makes = _init_of(function)
    if makes is object.__init__:
        return (), False
    if inspect.isfunction(makes):
        return _requested_by_function(makes, is_bound=True)
    return _requested_in(inspect.signature(function).parameters.values())


def _init_of(function: Any) -> Any:
    """`__init__` of a class that is constructed by nothing else."""
    is_plain = function.__new__ is object.__new__ and type(function) is type
    return function.__init__ if is_plain else None


@lru_cache(SIGNATURES_KEPT)
def _requested_by_function(function: Call, *, is_bound: bool) -> tuple[tuple[str, ...], bool]:
    parameters = tuple(inspect.signature(function).parameters.values())
    return _requested_in(parameters[1:] if is_bound else parameters)


def _requested_in(parameters: Iterable[inspect.Parameter]) -> tuple[tuple[str, ...], bool]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [parameter for parameter in parameters if parameter.kind not in kinds]
    by_keyword = any(one.kind is inspect.Parameter.KEYWORD_ONLY for one in named)
    return tuple(one.name for one in named), by_keyword


def takes_parameter(plugin: object, method: str, parameter: str) -> bool:
    """True when the method has the parameter."""
    return parameter in parameters_of(getattr(plugin, method))


def bind_method(plugin: object, method: str, *, in_tree: bool) -> Call | None:
    """The method with all parameters by position; None when absent.

    An exception of a plugin that is not part of Stowplan becomes a ContractError that names it.
    """
    offered = METHOD_PARAMETERS[method]
    method = method_name(plugin, method)
    if not method:
        return None
    function = getattr(plugin, method)
    wanted = parameters_of(function)
    call = narrow_parameters(function, offered, wanted)
    return call if in_tree else _wrap_errors(call, plugin, method, offered)


def narrow_parameters(function: Call, offered: tuple[str, ...], wanted: tuple[str, ...]) -> Call:
    """`function` with all offered parameters by position; wanted: the names that it takes."""
    places = tuple(offered.index(name) for name in wanted)
    _, by_keyword = _requested_parameters(function)
    if by_keyword:
        return lambda *values: function(**{offered[place]: values[place] for place in places})
    if wanted == offered:
        return function
    if len(places) == 1:
        (only,) = places
        return lambda *values: function(values[only])
    return lambda *values: function(*[values[place] for place in places])


def wrap_hint(hint: Call, plugin: str) -> Call:
    """A hint of an out-of-tree plugin; its exceptions become ContractErrors that name the plugin
    and the pod."""

    def call(pod: Any, old: Any, new: Any) -> Any:
        try:
            return hint(pod, old, new)
        except (Exception, SystemExit) as failure:
            raise ContractError(
                f"plugin {plugin!r}: a hint of pod {pod.key!r} raised "
                f"{type(failure).__name__}: {failure}{failure_location(failure)}"
            ) from failure

    return call


def _wrap_errors(function: Call, plugin: object, method: str, offered: tuple[str, ...]) -> Call:
    name = getattr(plugin, "name", type(plugin).__name__)
    wanted = ANSWER_TYPES.get(method)

    def call(*values: Any) -> Any:
        try:
            answer = function(*values)
        except ContractError:
            raise
        # A plugin that calls exit() fails like any other.
        except (Exception, SystemExit) as failure:
            raise ContractError(
                f"plugin {name!r}: {method}{_call_subject(offered, values)} raised "
                f"{type(failure).__name__}: {failure}{failure_location(failure)}"
            ) from failure
        if wanted is not None and not isinstance(answer, wanted):
            raise ContractError(
                f"plugin {name!r}: {method}{_call_subject(offered, values)} gave {answer!r}; "
                f"expected a {' or '.join(kind.__name__ for kind in wanted)}"
                f"{definition_location(plugin, method)}"
            )
        return answer

    return call


def _call_subject(offered: tuple[str, ...], values: tuple[Any, ...]) -> str:
    """The pod and node of a call, where it has any."""
    given = dict(zip(offered, values, strict=True))
    pod, node = given.get("pod"), given.get("node")
    name = node.name if node is not None else given.get("node_name")
    return (f" of pod {pod.key!r}" if pod is not None else "") + (
        f" on node {name!r}" if name is not None else ""
    )


def construct_plugin(plugin: type[Any], given: Mapping[str, Any], *, in_tree: bool) -> Any:
    """Construct a plugin object with the parameters of `given` that it takes; raises
    ContractError."""
    names = parameters_of(plugin)
    unknown = [name for name in names if name not in given]
    if unknown:
        raise ContractError(
            f"plugin {plugin.name!r}: the constructor has an unknown parameter {unknown[0]!r}; "
            f"available: {', '.join(given)}"
        )
    try:
        return plugin(**{name: given[name] for name in names})
    except Exception as failure:
        if in_tree or isinstance(failure, ContractError):
            raise
        raise ContractError(
            f"plugin {plugin.name!r}: the constructor raised "
            f"{type(failure).__name__}: {failure}{failure_location(failure)}"
        ) from failure


def class_location(plugin: type[Any]) -> str:
    """ " (packed.py:14)": location of the first method of a plugin class, as Python records no line
    of a class; "" when unknown."""
    functions = [value for value in vars(plugin).values() if inspect.isfunction(value)]
    if not functions:
        return ""
    code = min((one.__code__ for one in functions), key=lambda code: code.co_firstlineno)
    return f" ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"


def definition_location(plugin: object, *methods: str) -> str:
    """ " (packed.py:14)": location of the first of these methods of a plugin or its class, "" when
    unknown. Of a function plugin, the location of the function."""
    names = (FUNCTION, *methods)
    found = (getattr(plugin, name) for name in names if callable(getattr(plugin, name, None)))
    function = next(found, None)
    code = getattr(inspect.unwrap(function), "__code__", None) if function else None
    if code is None:
        return ""
    return f" ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"


def duplicate_name(first: type[Any], second: type[Any], kind: str = "plugin class") -> str:
    """The error text for two plugins of one name, with the location of both."""
    titles = [
        f"{kind} {one.__module__}.{one.__qualname__}"
        + (definition_location(one) or class_location(one))
        for one in (second, first)
    ]
    return f"{titles[0]}: a plugin named {second.name!r} already exists: {titles[1]}"


def failure_location(failure: BaseException) -> str:
    """ " (packed.py:14 in score)": where an exception was raised: the innermost frame outside
    libraries and Stowplan, if any."""
    frames = traceback.extract_tb(failure.__traceback__)
    if not frames:
        return ""
    last = next((one for one in reversed(frames) if not _is_library(one.filename)), frames[-1])
    return f" ({last.filename.rpartition('/')[2]}:{last.lineno} in {last.name})"


def _is_library(file: str) -> bool:
    installed = "/site-packages/" in file or "/dist-packages/" in file
    return installed or file.startswith(("<frozen", _STOWPLAN, _PYTHON))
