"""Calling plugin methods by parameter name, and telling whose fault a failure is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from stowplan.framework.points import OFFERED
from stowplan.framework.problems import ContractError, did_you_mean

Call = Callable[..., Any]

NEEDS_SCALAR = {"filter_column": "filter", "score_column": "score"}
NEEDS_PARTNER = {"add_pod": "remove_pod", "remove_pod": "add_pod", "unreserve": "reserve"}


def check_signatures(plugin: type[Any], where: str) -> None:
    """Raise ContractError where a plugin class has methods that the runtime could not call."""
    for method, offered in OFFERED.items():
        function = getattr(plugin, method, None)
        if not callable(function):
            continue
        for name in _parameters(function)[1:]:
            if name not in offered:
                hint = did_you_mean(name, offered)
                raise ContractError(
                    f"{where}: {method}() asks for {name!r}; on offer are "
                    f"{', '.join(offered) or 'none'}{' (' + hint + ')' if hint else ''}"
                )
    for method, needed in {**NEEDS_SCALAR, **NEEDS_PARTNER}.items():
        if hasattr(plugin, method) and not hasattr(plugin, needed):
            raise ContractError(f"{where}: has {method}() without {needed}(); wanted both")


def _parameters(function: Call) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind not in kinds]


def asks_for(plugin: object, method: str, parameter: str) -> bool:
    """True when the method names the parameter."""
    return parameter in _parameters(getattr(plugin, method))


def bound(plugin: object, method: str, *, in_tree: bool) -> Call | None:
    """The method as a function of everything on offer, in that order; None when absent.

    An exception in a plugin that is not part of Stowplan becomes a ContractError that names it.
    """
    function = getattr(plugin, method, None)
    if not callable(function):
        return None
    offered = OFFERED[method]
    wanted = tuple(_parameters(function))
    call = function if wanted == offered else _narrowed(function, offered, wanted)
    return call if in_tree else _blamed(call, plugin, method, offered)


def _narrowed(function: Call, offered: tuple[str, ...], wanted: tuple[str, ...]) -> Call:
    places = tuple(offered.index(name) for name in wanted)
    if len(places) == 1:
        (only,) = places
        return lambda *values: function(values[only])
    return lambda *values: function(*[values[place] for place in places])


def _blamed(function: Call, plugin: object, method: str, offered: tuple[str, ...]) -> Call:
    name = getattr(plugin, "name", type(plugin).__name__)

    def call(*values: Any) -> Any:
        try:
            return function(*values)
        except Exception as failure:
            given = dict(zip(offered, values, strict=True))
            on = "".join(
                f" of {what} {getattr(given[what], 'key', None) or given[what].name!r}"
                for what in ("pod", "node")
                if hasattr(given.get(what), "name")
            )
            raise ContractError(
                f"plugin {name!r}: {method}{on} raised {type(failure).__name__}: {failure}"
            ) from failure

    return call
