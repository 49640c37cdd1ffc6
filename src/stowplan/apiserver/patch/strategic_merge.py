"""Strategic merge patch: lists of objects merge by a key; directives control it.

A list in a patch either replaces the old one or, where the type says so, merges into it: objects by
the value of their merge key, scalars as a set. The order of the result is that of the patch (or of
`$setElementOrder`) for its elements; other elements keep their place before the first patched
element that followed them.

Differs: the original returns 500 for a contradictory patch; here it is 400.
Source: apimachinery v0.36, util/strategicpatch; the walk is our own.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from stowplan.apis.machinery.errors import ApiError, bad_request
from stowplan.apis.machinery.go_format import go_type, go_value
from stowplan.apis.machinery.resource import MergeShape, MergeStrategy
from stowplan.apiserver.patch.json_patch import patch_rejected
from stowplan.objects.encoding.tree import Tree

PATCH_DIRECTIVE = "$patch"
RETAIN_KEYS_DIRECTIVE = "$retainKeys"
DELETE_FROM_PRIMITIVE_LIST = "$deleteFromPrimitiveList"
SET_ELEMENT_ORDER = "$setElementOrder"
Items = list[Any]
DEFAULT_MERGE = MergeStrategy()


def bad_patch(text: str) -> ApiError:
    """400 with the original's text for a patch that does not apply."""
    return bad_request(text)


def strategic_merge_patched(original: Tree, patch: Tree, shape: MergeShape | None) -> Tree:
    """`original` with `patch` merged into it; changes both. Raises ApiError 400, 422."""
    if PATCH_DIRECTIVE in patch:
        return _without_directive_key(patch)
    _retain_keys(original, patch)
    for key in [key for key in patch if key.startswith(SET_ELEMENT_ORDER)]:
        _merge_in_order(original, patch, key, shape)
    for key, value in patch.items():
        if key.startswith(DELETE_FROM_PRIMITIVE_LIST):
            _delete_from(original, _after_slash(key, "primitive"), value)
        elif value is None:
            original.pop(key, None)
        elif not _same_json_type(original.get(key), value):
            _set(original, key, value)
        elif isinstance(value, dict):
            how = _merging(shape, key)
            if "replace" in how.strategies:
                original[key] = value
            else:
                original[key] = strategic_merge_patched(original[key], value, how.shape)
        elif isinstance(value, list):
            how = _merging(shape, key)
            if "merge" in how.strategies:
                original[key] = _merged_lists(original[key], value, how)
            else:
                original[key] = value
        else:
            original[key] = value
    return original


def _merging(shape: MergeShape | None, key: str) -> MergeStrategy:
    return (shape.merging(key) if shape is not None else None) or DEFAULT_MERGE


def _same_json_type(old: Any, new: Any) -> bool:
    """True if both are maps, both lists, or both scalars."""
    if old is None:
        return False
    return isinstance(old, dict) == isinstance(new, dict) and isinstance(old, list) == isinstance(
        new, list
    )


def _set(original: Tree, key: str, value: Any) -> None:
    """Set a value that is new, without nulls and directives."""
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
    """The value without maps that have `$patch`; False if it is one itself."""
    if isinstance(value, dict):
        if PATCH_DIRECTIVE in value:
            return None, False
        parts = {key: _without_directives(each) for key, each in value.items()}
        return {key: kept for key, (kept, keep) in parts.items() if keep}, True
    if isinstance(value, list):
        return [kept for kept, keep in map(_without_directives, value) if keep], True
    return value, True


def _without_directive_key(patch: Tree) -> Tree:
    directive = patch.pop(PATCH_DIRECTIVE)
    if directive == "replace":
        return patch
    if directive == "delete":
        return {}
    patch[PATCH_DIRECTIVE] = directive
    raise _unknown_directive(directive, patch)


def _unknown_directive(directive: Any, patch: Tree) -> ApiError:
    return bad_patch(f"unknown patch type: {go_value(directive)} in map: {go_value(patch)}")


def _retain_keys(original: Tree, patch: Tree) -> None:
    """Drop every key of the original that `$retainKeys` does not list."""
    if RETAIN_KEYS_DIRECTIVE not in patch:
        return
    retained = patch.pop(RETAIN_KEYS_DIRECTIVE)
    wrong = bad_request("invalid patch format of retainKeys")
    if not isinstance(retained, list):
        raise wrong
    kept = {each for each in retained if isinstance(each, str)}
    for key, value in patch.items():
        directive = key.startswith((DELETE_FROM_PRIMITIVE_LIST, SET_ELEMENT_ORDER))
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
    deleted = {_hashable(each) for each in values}
    original[key] = [each for each in original[key] if _hashable(each) not in deleted]


def _merge_in_order(original: Tree, patch: Tree, directive: str, shape: MergeShape | None) -> None:
    """`$setElementOrder/key`: merge the list, then put it into that order."""
    order = patch.pop(directive)
    if not isinstance(order, list):
        raise bad_patch(_wrong_type([], order))
    key = _after_slash(directive, "order")
    old, new = original.get(key), patch.get(key)
    for value in (old, new):
        if value is not None and not isinstance(value, list):
            raise bad_patch(_wrong_type([], value))
    how = _merging(shape, key)
    for at, each in enumerate(order if how.key else ()):
        if not isinstance(each, dict):
            raise bad_patch(f"value for key {at} is not a map")
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
    """Raises ApiError 400 if the patch is not in the order of its `$setElementOrder`."""
    if not order:
        return
    named = [each for each in new if not (key and _has_directive(each))]
    places = iter(order)
    for each in named:
        if not any(_merge_identity(place, key) == _merge_identity(each, key) for place in places):
            raise bad_patch(
                f"The order in patch list:\n{go_value(new)}\n doesn't match "
                f"{SET_ELEMENT_ORDER} list:\n"
                f"{go_value(order)}\n"
            )


def _has_directive(element: Any) -> bool:
    return isinstance(element, dict) and PATCH_DIRECTIVE in element


def _merge_identity(element: Any, key: str) -> Any:
    """The identity of an element: the value of the merge key, or the scalar."""
    if not key:
        return _hashable(element)
    if not isinstance(element, dict):
        raise bad_patch(_wrong_type({}, element))
    if key not in element:
        raise bad_patch(f"map: {go_value(element)} does not contain declared merge key: {key}")
    return _hashable(element[key])


def _hashable(value: Any) -> Any:
    # 1, 1.0 and True are equal keys in Python, and different ones in Go.
    return (type(value).__name__, value if isinstance(value, str | int | float) else str(value))


def _merged_lists(old: Items, new: Items, how: MergeStrategy) -> Items:
    if not old and not new:
        return old
    kinds = {_element_kind(each) for each in (*old, *new)}
    if len(kinds) > 1:
        raise bad_patch(f"list element types are not identical: {go_value([old, new])}")
    if kinds == {"list"}:
        raise patch_rejected()
    if kinds == {"plain"}:
        unique = {_hashable(each): each for each in reversed([*old, *new])}
        together = _first_of([*old, *new], unique)
        return _ordered(together, new, old, "")
    if not how.key:
        raise bad_patch("cannot merge lists without merge key")
    together = _merged_objects(list(old), new, how)
    named = [each for each in new if not _has_directive(each)]
    if any(each.get(PATCH_DIRECTIVE) == "replace" for each in new):
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


def _merged_objects(old: Items, new: Items, how: MergeStrategy) -> Items:
    """Old elements, merged with patched ones of the same key, then the new ones."""
    old = _without(old, new, how.key)
    places = {_merge_identity(each, how.key): at for at, each in reversed(list(enumerate(old)))}
    for element in new:
        if PATCH_DIRECTIVE in element:
            continue
        identity = _merge_identity(element, how.key)
        if identity in places:
            at = places[identity]
            old[at] = strategic_merge_patched(old[at], element, how.shape)
        else:
            _discard_nulls(element)
            places[identity] = len(old)
            old.append(_without_directives(element)[0])
    return old


def _without(old: Items, new: Items, key: str) -> Items:
    """The old elements that the directives do not delete."""
    deleted: set[Any] = set()
    identities: list[Any] | None = None
    for element in new:
        if PATCH_DIRECTIVE not in element:
            continue
        directive = element[PATCH_DIRECTIVE]
        if directive == "delete":
            deleted.add(_merge_identity(element, key))
            if identities is None:
                identities = [_merge_identity(each, key) for each in old]
        elif directive == "replace":
            old, identities = [], []
        elif directive == "merge":
            raise bad_patch("merging lists cannot yet be specified in the patch")
        else:
            raise _unknown_directive(directive, element)
    if identities is None:
        return old
    return [each for each, identity in zip(old, identities, strict=True) if identity not in deleted]


def _ordered(together: Items, order: Items, server_order: Items, key: str) -> Items:
    """Elements in `order`; others before the first one of `order` that followed them."""
    wanted = {_merge_identity(each, key): at for at, each in reversed(list(enumerate(order)))}
    stood = {_merge_identity(each, key): at for at, each in reversed(list(enumerate(server_order)))}
    named = [each for each in together if _merge_identity(each, key) in wanted]
    named.sort(key=lambda each: wanted[_merge_identity(each, key)])
    others = deque(each for each in together if _merge_identity(each, key) not in wanted)
    outcome: Items = []
    for each in named:
        right = stood.get(_merge_identity(each, key))
        while others and right is not None:
            left = stood.get(_merge_identity(others[0], key))
            if left is None or left >= right:
                break
            outcome.append(others.popleft())
        outcome.append(each)
    return [*outcome, *others]
