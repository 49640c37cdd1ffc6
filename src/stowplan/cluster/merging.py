"""Strategic merge patch: lists of objects merge by a key, and directives steer it.

A list in a patch either replaces the old one or, where the type says so, merges into it: objects by
the value of their merge key, plain values as a set. The order of the outcome is that of the patch
(or of `$setElementOrder`) for what it names; what only the server has keeps its place before the
first named element that stood behind it.

Differs: the original answers 500 to a patch that contradicts itself, as it has no word for the
error; here it is the 400 that a client's mistake is.
Source: apimachinery v0.36, util/strategicpatch; the walk is our own.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from stowplan.cluster.errors import ApiError, Tree, bad_request
from stowplan.cluster.gotext import go_type, go_value
from stowplan.cluster.patching import rejected
from stowplan.cluster.resource import Merging, Shape

PATCH = "$patch"
RETAIN = "$retainKeys"
DELETE_LIST = "$deleteFromPrimitiveList"
ORDER_LIST = "$setElementOrder"
Items = list[Any]
PLAIN = Merging()


def broken(text: str) -> ApiError:
    """400 with the original's text for a patch that cannot be applied."""
    return bad_request(text)


def merged(original: Tree, patch: Tree, shape: Shape | None) -> Tree:
    """`original` with `patch` merged into it; changes both. Raises ApiError 400, 422."""
    if PATCH in patch:
        return _directed(patch)
    _retain(original, patch)
    for key in [key for key in patch if key.startswith(ORDER_LIST)]:
        _merge_in_order(original, patch, key, shape)
    for key, value in patch.items():
        if key.startswith(DELETE_LIST):
            _delete_from(original, _after_slash(key, "primitive"), value)
        elif value is None:
            original.pop(key, None)
        elif not _alike(original.get(key), value):
            _set(original, key, value)
        elif isinstance(value, dict):
            how = _merging(shape, key)
            if "replace" in how.strategies:
                original[key] = value
            else:
                original[key] = merged(original[key], value, how.shape)
        elif isinstance(value, list):
            how = _merging(shape, key)
            if "merge" in how.strategies:
                original[key] = _merged_lists(original[key], value, how)
            else:
                original[key] = value
        else:
            original[key] = value
    return original


def _merging(shape: Shape | None, key: str) -> Merging:
    return (shape.merging(key) if shape is not None else None) or PLAIN


def _alike(old: Any, new: Any) -> bool:
    """True when both are maps, both lists, or both plain."""
    if old is None:
        return False
    return isinstance(old, dict) == isinstance(new, dict) and isinstance(old, list) == isinstance(
        new, list
    )


def _set(original: Tree, key: str, value: Any) -> None:
    """Take a value that the original has no counterpart for, without nulls and directives."""
    _discard_nulls(value)
    kept, keep = _without_directives(value)
    if keep:
        original[key] = kept
    else:
        original.pop(key, None)


def _discard_nulls(value: Any) -> None:
    if isinstance(value, dict):
        for key in [key for key, each in value.items() if each is None]:
            del value[key]
    children = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for each in children:
            _discard_nulls(each)


def _without_directives(value: Any) -> tuple[Any, bool]:
    """The value without maps that carry `$patch`; False when it is one itself."""
    if isinstance(value, dict):
        if PATCH in value:
            return None, False
        parts = {key: _without_directives(each) for key, each in value.items()}
        return {key: kept for key, (kept, keep) in parts.items() if keep}, True
    if isinstance(value, list):
        return [kept for kept, keep in map(_without_directives, value) if keep], True
    return value, True


def _directed(patch: Tree) -> Tree:
    directive = patch.pop(PATCH)
    if directive == "replace":
        return patch
    if directive == "delete":
        return {}
    patch[PATCH] = directive
    raise _unknown(directive, patch)


def _unknown(directive: Any, patch: Tree) -> ApiError:
    return broken(f"unknown patch type: {go_value(directive)} in map: {go_value(patch)}")


def _retain(original: Tree, patch: Tree) -> None:
    """Drop every key of the original that `$retainKeys` does not list."""
    if RETAIN not in patch:
        return
    retained = patch.pop(RETAIN)
    wrong = bad_request("invalid patch format of retainKeys")
    if not isinstance(retained, list):
        raise wrong
    kept = {each for each in retained if isinstance(each, str)}
    for key, value in patch.items():
        directive = key.startswith((DELETE_LIST, ORDER_LIST))
        if value is not None and not directive and key not in kept:
            raise wrong
    for key in [key for key in original if key not in kept]:
        del original[key]


def _after_slash(key: str, what: str) -> str:
    _, slash, name = key.partition("/")
    if not slash:
        name = "primitive list" if what == "primitive" else "setElementOrder list"
        raise bad_request(f"invalid patch format of {name}")
    return name


def _delete_from(original: Tree, key: str, values: Any) -> None:
    """`$deleteFromPrimitiveList/key`."""
    if key not in original or values is None:
        if values is None:
            original.pop(key, None)
        return
    if not isinstance(values, list):
        return
    gone = {_hashable(each) for each in values}
    original[key] = [each for each in original[key] if _hashable(each) not in gone]


def _merge_in_order(original: Tree, patch: Tree, directive: str, shape: Shape | None) -> None:
    """`$setElementOrder/key`: merge the list, then put it into that order."""
    order = patch.pop(directive)
    if not isinstance(order, list):
        raise broken(_wrong_type([], order))
    key = _after_slash(directive, "order")
    old, new = original.get(key), patch.get(key)
    for value in (old, new):
        if value is not None and not isinstance(value, list):
            raise broken(_wrong_type([], value))
    how = _merging(shape, key)
    for at, each in enumerate(order if how.key else ()):
        if not isinstance(each, dict):
            raise broken(f"value for key {at} is not a map")
    if new:
        _check_order(new, order, how.key)
    if old is None and new is None:
        return
    if old is None:
        kept, _ = _without_directives(new)
        together: Items = kept
    elif new is None:
        together = old
    elif "merge" in how.strategies:
        together = _merged_lists(list(old), new, how)
    else:
        together = new
    original[key] = _ordered(together, order, old or [], how.key)
    patch.pop(key, None)


def _wrong_type(wanted: Any, got: Any) -> str:
    return f"expected a {go_type(wanted)}, but received a {go_type(got)}"


def _check_order(new: Items, order: Items, key: str) -> None:
    """Raises ApiError 400 when the patch has its elements in another order than it asks for."""
    if not order:
        return
    named = [each for each in new if not (key and _is_directed(each))]
    places = iter(order)
    for each in named:
        if not any(_identity(place, key) == _identity(each, key) for place in places):
            raise broken(
                f"The order in patch list:\n{go_value(new)}\n doesn't match {ORDER_LIST} list:\n"
                f"{go_value(order)}\n"
            )


def _is_directed(element: Any) -> bool:
    return isinstance(element, dict) and PATCH in element


def _identity(element: Any, key: str) -> Any:
    """What makes two elements the same: the value of the merge key, or the plain value."""
    if not key:
        return _hashable(element)
    if not isinstance(element, dict):
        raise broken(_wrong_type({}, element))
    if key not in element:
        raise broken(f"map: {go_value(element)} does not contain declared merge key: {key}")
    return _hashable(element[key])


def _hashable(value: Any) -> Any:
    # 1, 1.0 and True are the same key in Python, and different ones in Go.
    return (type(value).__name__, value if isinstance(value, str | int | float) else str(value))


def _merged_lists(old: Items, new: Items, how: Merging) -> Items:
    if not old and not new:
        return old
    kinds = {_element_kind(each) for each in (*old, *new)}
    if len(kinds) > 1:
        raise broken(f"list element types are not identical: {go_value([old, new])}")
    if kinds == {"list"}:
        raise rejected()
    if kinds == {"plain"}:
        unique = {_hashable(each): each for each in reversed([*old, *new])}
        together = _first_of([*old, *new], unique)
        return _ordered(together, new, old, "")
    if not how.key:
        raise broken("cannot merge lists without merge key")
    together = _merged_objects(list(old), new, how)
    named = [each for each in new if not _is_directed(each)]
    if any(each.get(PATCH) == "replace" for each in new):
        return named
    return _ordered(together, named, old, how.key)


def _first_of(items: Items, unique: dict[Any, Any]) -> Items:
    kept = []
    for each in items:
        identity = _hashable(each)
        if identity in unique:
            del unique[identity]
            kept.append(each)
    return kept


def _element_kind(element: Any) -> str:
    return "map" if isinstance(element, dict) else "list" if isinstance(element, list) else "plain"


def _merged_objects(old: Items, new: Items, how: Merging) -> Items:
    """Old elements with the new ones of the same key merged in, then the new ones."""
    old = _without(old, new, how.key)
    places = {_identity(each, how.key): at for at, each in reversed(list(enumerate(old)))}
    for element in new:
        if PATCH in element:
            continue
        identity = _identity(element, how.key)
        if identity in places:
            at = places[identity]
            old[at] = merged(old[at], element, how.shape)
        else:
            _discard_nulls(element)
            places[identity] = len(old)
            old.append(_without_directives(element)[0])
    return old


def _without(old: Items, new: Items, key: str) -> Items:
    """The old elements that are left by the directives among the new ones."""
    gone: set[Any] = set()
    identities: list[Any] | None = None
    for element in new:
        if PATCH not in element:
            continue
        directive = element[PATCH]
        if directive == "delete":
            gone.add(_identity(element, key))
            if identities is None:
                identities = [_identity(each, key) for each in old]
        elif directive == "replace":
            old, identities = [], []
        elif directive == "merge":
            raise broken("merging lists cannot yet be specified in the patch")
        else:
            raise _unknown(directive, element)
    if identities is None:
        return old
    return [each for each, identity in zip(old, identities, strict=True) if identity not in gone]


def _ordered(together: Items, order: Items, server_order: Items, key: str) -> Items:
    """What `order` names in its order; what it does not, before the named that stood behind it."""
    wanted = {_identity(each, key): at for at, each in reversed(list(enumerate(order)))}
    stood = {_identity(each, key): at for at, each in reversed(list(enumerate(server_order)))}
    named = [each for each in together if _identity(each, key) in wanted]
    named.sort(key=lambda each: wanted[_identity(each, key)])
    others = deque(each for each in together if _identity(each, key) not in wanted)
    outcome: Items = []
    for each in named:
        right = stood.get(_identity(each, key))
        while others and right is not None:
            left = stood.get(_identity(others[0], key))
            if left is None or left >= right:
                break
            outcome.append(others.popleft())
        outcome.append(each)
    return [*outcome, *others]
