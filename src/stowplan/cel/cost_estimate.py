"""Estimate of what an expression may cost at most, before it is run.

Source: cel-go v0.26, checker/cost.go; apiserver v1.36, pkg/cel/library/cost.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stowplan.cel.call_costs import CALL_COSTS, CallCost, CostArgument, equality_cost
from stowplan.cel.cel_types import CelType
from stowplan.cel.cost_range import FREE, ONE, UNKNOWN, CostRange, exactly
from stowplan.cel.interpreter import LIST_COST, MAP_COST, OBJECT_COST
from stowplan.cel.libraries.standard_library import REGEX_FACTOR, STRING_FACTOR
from stowplan.cel.macros import ACCUMULATOR
from stowplan.cel.program import Program
from stowplan.cel.syntax_tree import (
    Comprehension,
    Constant,
    Expression,
    FunctionCall,
    Identifier,
    ListLiteral,
    MapLiteral,
    ObjectLiteral,
    Selection,
)
from stowplan.cel.values import UINT_MAX

Path = tuple[str, ...]
SizeOfPath = Callable[[Path], CostRange | None]
"""Size of what a path of names leads to; the first is a variable, `@items`, `@keys` and `@values`
lead into lists and maps. None: unknown."""

_SCALARS = frozenset({
    "bool", "double", "google.protobuf.Duration", "int", "google.protobuf.Timestamp", "uint",
})  # fmt: skip
_NO_ENTRY = CostRange(UINT_MAX, 0)
_COMPARED = ("less", "greater")


def estimate_cost(program: Program, size_of_path: SizeOfPath) -> CostRange:
    """The lowest and highest cost of a program."""
    return _Estimator(program.types.by_node, size_of_path).cost(program.tree)


@dataclass(frozen=True)
class _EntrySize:
    """Sizes of the keys and values of a list or map that the expression makes itself."""

    is_list: bool
    key: CostRange
    value: CostRange


@dataclass(frozen=True)
class _LocalVariable:
    path: Path
    size: CostRange | None
    entry: _EntrySize | None = None


class _Estimator:
    def __init__(self, types: Mapping[int, CelType], size_of_path: SizeOfPath) -> None:
        self._types = types
        self._size_of_path = size_of_path
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, CostRange] = {}
        self._entries: dict[int, _EntrySize] = {}
        self._locals: dict[str, list[_LocalVariable]] = {}

    def cost(self, node: Expression) -> CostRange:
        """Cost of an expression and all below it."""
        match node:
            case Constant():
                return FREE
            case Identifier():
                return self._identifier(node)
            case Selection():
                return self._selection(node)
            case FunctionCall():
                return self._call(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case ObjectLiteral():
                total = exactly(OBJECT_COST)
                for _, value, _ in node.fields:
                    total = total.plus(self.cost(value))
                return total
            case Comprehension():
                return self._binding(node) if _is_binding(node) else self._loop(node)

    def _type(self, node: Expression) -> CelType:
        return self._types[id(node)]

    def _path(self, node: Expression) -> Path:
        local = self._local(node)
        return local.path if local is not None else self._paths.get(id(node), ())

    def _local(self, node: Expression) -> _LocalVariable | None:
        held = self._locals.get(node.name) if isinstance(node, Identifier) else None
        return held[-1] if held else None

    def _size(self, node: Expression) -> CostRange | None:
        known = self._sizes.get(id(node))
        if known is None:
            known = _literal_size(node)
        if known is not None:
            return known
        path = self._path(node)
        known = self._size_of_path(path) if path else None
        if known is not None:
            self._sizes[id(node)] = known
            return known
        if _is_scalar(self._type(node)):
            return ONE
        local = self._local(node)
        return local.size if local is not None else None

    def _extent(self, node: Expression) -> CostRange:
        found = self._size(node)
        return UNKNOWN if found is None else found

    def _entry(self, node: Expression) -> _EntrySize | None:
        found = self._entries.get(id(node))
        if found is None:
            local = self._local(node)
            found = local.entry if local is not None else None
        return found

    def _identifier(self, node: Identifier) -> CostRange:
        local = self._local(node)
        self._paths[id(node)] = (node.name,) if local is None else local.path
        return ONE

    def _selection(self, node: Selection) -> CostRange:
        total = self.cost(node.operand)
        if node.is_test:
            return total
        if node.is_optional:
            return total.plus(ONE)
        held = self._type(node.operand)
        if held.name == "map" or held.fields is not None or held.is_parameter:
            total = total.plus(ONE)
        self._paths[id(node)] = (*self._path(node.operand), node.field)
        return total

    def _list(self, node: ListLiteral) -> CostRange:
        total, items = exactly(LIST_COST), _NO_ENTRY if node.elements else FREE
        for one in node.elements:
            total = total.plus(self.cost(one))
            items = items.union(self._extent(one))
        self._entries[id(node)] = _EntrySize(True, ONE, items)
        return total

    def _map(self, node: MapLiteral) -> CostRange:
        total, start = exactly(MAP_COST), _NO_ENTRY if node.entries else FREE
        keys = values = start
        for key, value in node.entries:
            total = total.plus(self.cost(key)).plus(self.cost(value))
            keys, values = keys.union(self._extent(key)), values.union(self._extent(value))
        self._entries[id(node)] = _EntrySize(False, keys, values)
        return total

    # Loops

    def _push(self, name: str, local: _LocalVariable) -> None:
        self._locals.setdefault(name, []).append(local)

    def _pop(self, name: str) -> None:
        self._locals[name].pop()

    def _push_accumulator(self, loop: Comprehension) -> None:
        start = loop.initial
        local = _LocalVariable(self._path(start), self._size(start), self._entry(start))
        self._push(loop.accumulator, local)

    def _binding(self, loop: Comprehension) -> CostRange:
        total = self.cost(loop.range).plus(self.cost(loop.initial))
        self._push_accumulator(loop)
        total = total.plus(self.cost(loop.result))
        self._copy_sizes(loop, loop.result)
        self._pop(loop.accumulator)
        return total

    def _copy_sizes(self, node: Expression, source: Expression) -> None:
        size, entry = self._size(source), self._entry(source)
        if size is not None:
            self._sizes[id(node)] = size
        if entry is not None:
            self._entries[id(node)] = entry

    def _push_loop_variables(self, loop: Comprehension) -> list[str]:
        entry, path = self._entry(loop.range), self._path(loop.range)
        is_list = entry.is_list if entry is not None else self._type(loop.range).name == "list"
        keys, values = ("@indices" if loop.variable2 else "@keys"), "@values"
        if is_list:
            values = "@items"
        elif loop.variable2:
            keys = "@keys"
        key = _LocalVariable((*path, keys), entry.key if entry is not None else None)
        value = _LocalVariable((*path, values), entry.value if entry is not None else None)
        if loop.variable2:
            self._push(loop.variable, key)
            self._push(loop.variable2, value)
            return [loop.variable, loop.variable2]
        self._push(loop.variable, value if is_list else key)
        return [loop.variable]

    def _loop(self, loop: Comprehension) -> CostRange:
        total = self.cost(loop.range).plus(self.cost(loop.initial))
        self._push_accumulator(loop)
        names = self._push_loop_variables(loop)
        each = self.cost(loop.condition).plus(self.cost(loop.step))
        for name in names:
            self._pop(name)
        total = total.plus(self.cost(loop.result))
        self._pop(loop.accumulator)
        n_items = self._extent(loop.range)
        if isinstance(loop.initial, Constant):
            size = self._size(loop.initial)
            if size is not None:
                self._sizes[id(loop)] = size
        elif isinstance(loop.initial, ListLiteral | MapLiteral):
            self._sizes[id(loop)] = n_items
            entry = self._entry(loop.step)
            if entry is not None:
                self._entries[id(loop)] = entry
        return total.plus(n_items.times(each))

    # Calls

    def _call(self, call: FunctionCall) -> CostRange:
        if call.function == "dyn":
            (argument,) = call.arguments
            unwrapped = self.cost(argument).plus(ONE)
            self._copy_sizes(call, argument)
            return unwrapped
        costs = [self.cost(one) for one in call.arguments]
        target = FREE if call.target is None else self.cost(call.target)
        if not call.overloads:
            return FREE
        total: CostRange | None = None
        size = None
        for overload in call.overloads:
            found = self._overload_cost(call, overload.overload_id, costs)
            total = found.cost if total is None else total.union(found.cost)
            if found.result is not None:
                size = found.result if size is None else size.union(found.result)
            size = self._indexed(call, overload.overload_id, size)
            if size is None:
                size = self._size(call)
        if size is not None:
            self._sizes[id(call)] = size
        assert total is not None
        return target.plus(total)

    def _indexed(
        self, call: FunctionCall, overload: str, size: CostRange | None
    ) -> CostRange | None:
        """Size of an element; the path into a list or map is kept."""
        if overload not in ("index_list", "index_map"):
            return size
        held = call.arguments[0]
        entry = self._entry(held)
        step = "@items" if overload == "index_list" else "@values"
        self._paths[id(call)] = (*self._path(held), step)
        return None if entry is None else entry.value

    def _overload_cost(self, call: FunctionCall, overload: str, costs: list[CostRange]) -> CallCost:
        arguments = FREE
        for one in costs:
            arguments = arguments.plus(one)
        found = self._library_cost(call, overload)
        if found is None:
            special = _OPERATORS.get(call.function)
            if special is not None:
                return special(self, call, costs)
            found = self._standard_cost(call, overload)
        return CallCost(found.cost.plus(arguments), found.result)

    def _library_cost(self, call: FunctionCall, overload: str) -> CallCost | None:
        nodes = call.arguments if call.target is None else [call.target, *call.arguments]
        if call.function == "_==_":
            return equality_cost(*map(self._argument, nodes))
        estimate = CALL_COSTS.get(call.function)
        return None if estimate is None else estimate([*map(self._argument, nodes)], overload)

    def _argument(self, node: Expression) -> CostArgument:
        path = self._path(node)
        if path and path[0] == ACCUMULATOR:
            path = ()
        item = self._size_of_path((*path, "@items")) if path else None
        literal = node.value if isinstance(node, Constant) else None
        return CostArgument(self._type(node), self._size(node), literal, item)

    def _standard_cost(self, call: FunctionCall, overload: str) -> CallCost:
        nodes = call.arguments if call.target is None else [call.target, *call.arguments]
        sizes = [self._extent(one) for one in nodes]
        if overload == "string_format":
            return CallCost(sizes[0].scaled(STRING_FACTOR))
        if overload == "string_to_bytes":
            most = min(sizes[0].high * 4, UINT_MAX)
            return CallCost(sizes[0].scaled(STRING_FACTOR), CostRange(sizes[0].low, most))
        if overload == "bytes_to_string":
            made = CostRange(sizes[0].low // 4, sizes[0].high)
            return CallCost(sizes[0].scaled(STRING_FACTOR), made)
        if overload == "strings_quote":
            made = sizes[0].plus(CostRange(0, sizes[0].high)).plus(exactly(2))
            return CallCost(sizes[0].scaled(STRING_FACTOR), made)
        if overload in ("starts_with_string", "ends_with_string"):
            return CallCost(sizes[1].scaled(STRING_FACTOR))
        if overload == "in_list":
            return CallCost(sizes[1])
        if overload == "matches_string":
            text = sizes[0].plus(ONE).scaled(STRING_FACTOR)
            return CallCost(text.times(sizes[1].scaled(REGEX_FACTOR)))
        if overload == "contains_string":
            text = sizes[0].scaled(STRING_FACTOR)
            return CallCost(text.times(sizes[1].scaled(STRING_FACTOR)))
        if overload in ("add_string", "add_bytes", "add_list"):
            return self._sum(call, overload, sizes)
        if overload in ("equals", "not_equals") or (
            overload.startswith(_COMPARED) and overload.endswith(("_string", "_bytes"))
        ):
            most = min(sizes[0].high, sizes[1].high)
            return CallCost(CostRange(int(most > 0), most).scaled(STRING_FACTOR))
        return CallCost(ONE)

    def _sum(self, call: FunctionCall, overload: str, sizes: list[CostRange]) -> CallCost:
        made = sizes[0].plus(sizes[1])
        self._join_entries(call, *call.arguments)
        if overload == "add_list":
            return CallCost(ONE, made)
        return CallCost(made.scaled(STRING_FACTOR), made)

    def _join_entries(self, call: FunctionCall, first: Expression, second: Expression) -> None:
        one, two = self._entry(first), self._entry(second)
        if one is not None and two is not None:
            self._entries[id(call)] = _EntrySize(
                one.is_list, one.key.union(two.key), one.value.union(two.value)
            )

    def _logical(self, call: FunctionCall, costs: list[CostRange]) -> CallCost:
        return CallCost(CostRange(costs[0].low, costs[0].plus(costs[1]).high))

    def _conditional(self, call: FunctionCall, costs: list[CostRange]) -> CallCost:
        _, truthy, falsy = call.arguments
        self._join_entries(call, truthy, falsy)
        size = self._extent(truthy).union(self._extent(falsy))
        return CallCost(costs[0].plus(costs[1].union(costs[2])), size)


_OPERATORS: dict[str, Callable[[_Estimator, FunctionCall, list[CostRange]], CallCost]] = {
    "_&&_": _Estimator._logical,
    "_||_": _Estimator._logical,
    "_?_:_": _Estimator._conditional,
}


def _is_binding(loop: Comprehension) -> bool:
    is_empty = isinstance(loop.range, ListLiteral) and not loop.range.elements
    ends = isinstance(loop.condition, Constant) and loop.condition.value is False
    return is_empty and ends


def _literal_size(node: Expression) -> CostRange | None:
    if isinstance(node, Constant):
        return exactly(len(node.value) if isinstance(node.value, str | bytes) else 1)
    if isinstance(node, ListLiteral):
        return exactly(len(node.elements))
    return exactly(len(node.entries)) if isinstance(node, MapLiteral) else None


def _is_scalar(held: CelType) -> bool:
    if held.name == "optional_type":
        return _is_scalar(held.parameters[0])
    return held.name in _SCALARS
