"""Object metadata: system fields, validation, updates.

Source: apimachinery v0.36, api/validation/objectmeta.go; apiserver v0.36, registry/rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from stowplan.apis.machinery.errors import Cause, bad_request, forbidden_field, invalid, required
from stowplan.apis.machinery.errors import too_long as too_long_field
from stowplan.apis.machinery.names import (
    label_problems,
    label_value_problems,
    path_segment_problems,
    qualified_name_problems,
)
from stowplan.apis.machinery.timestamps import format_time
from stowplan.objects.encoding.tree import Tree

ANNOTATIONS_BYTES_MAX = 256 << 10
MANAGER_BYTES_MAX, SUBRESOURCE_BYTES_MAX = 128, 256
UID_BATCH_SIZE = 64
NAME_MAX, SUFFIX_LENGTH = 63, 5
SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The alphabet of generated names: no vowels, no characters that look alike."""
META_GROUP = "meta.k8s.io"
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
STANDARD_FINALIZERS = ("kubernetes", ORPHAN, FOREGROUND)
IMMUTABLE_TEXT = "field is immutable"
IMMUTABLE_FIELDS = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp")
SYSTEM_FIELDS = (
    "creationTimestamp",
    "uid",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)

_VALID_LABELS: set[tuple[tuple[str, str], ...]] = set()
_VALID_LABELS_MAX, _CACHED_LABELS_MAX = 4096, 64

NameProblems = Callable[[str, bool], list[str]]


class UidGenerator:
    """Random UUIDs of version 4, drawn in batches."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._thrown: list[str] = []

    def new(self) -> str:
        """The next uid."""
        if not self._thrown:
            digits = self._rng.bytes(16 * UID_BATCH_SIZE).hex()
            self._thrown = [digits[at : at + 32] for at in range(0, len(digits), 32)]
        text = self._thrown.pop()
        variant = "89ab"[int(text[16], 16) & 3]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


def generated_name(prefix: str, rng: np.random.Generator) -> str:
    """`prefix`, truncated if needed, and five random characters."""
    picked = rng.integers(0, len(SUFFIX_LETTERS), SUFFIX_LENGTH)
    return prefix[: NAME_MAX - SUFFIX_LENGTH] + "".join(SUFFIX_LETTERS[at] for at in picked)


def random_suffix(rng: np.random.Generator) -> str:
    """Five random characters as those of `generated_name`, in a tenth of the time."""
    number = int(rng.random() * len(SUFFIX_LETTERS) ** SUFFIX_LENGTH)
    picked = []
    for _ in range(SUFFIX_LENGTH):
        number, at = divmod(number, len(SUFFIX_LETTERS))
        picked.append(SUFFIX_LETTERS[at])
    return "".join(picked)


def wipe_system_fields(meta: Tree) -> None:
    """Drop the fields that a client cannot set in a new object."""
    for key in SYSTEM_FIELDS:
        meta.pop(key, None)


def fill_system_fields(
    meta: Tree, now: float, uids: UidGenerator, rng: np.random.Generator
) -> None:
    """Set creationTimestamp, uid, and the name if there is only a generateName."""
    meta["creationTimestamp"] = format_time(now)
    meta["uid"] = uids.new()
    prefix = meta.get("generateName")
    if prefix and not meta.get("name"):
        meta["name"] = generated_name(prefix, rng)


def set_namespace(meta: Tree, namespace: str) -> None:
    """Set the namespace of the path; raises ApiError 400 if the object has another."""
    got = meta.get("namespace", "")
    if got and namespace and got != namespace:
        text = "the namespace of the provided object does not match the namespace sent on the"
        raise bad_request(f"{text} request")
    if namespace:
        meta["namespace"] = namespace
    else:
        meta.pop("namespace", None)


def drop_duplicate_owners(meta: Tree, patched: bool = False) -> list[str]:
    """Drop duplicate owner references; returns the texts of warnings.

    patched: the object is the result of a patch; the text differs.
    """
    references = meta.get("ownerReferences")
    if not references or len(references) < 2:
        return []
    kept: dict[frozenset[tuple[str, Any]], Tree] = {}
    # The values of a reference are texts and flags.
    repeated = [
        reference.get("uid", "")
        for reference in references
        if kept.setdefault(frozenset(reference.items()), reference) is not reference
    ]
    if not repeated:
        return []
    meta["ownerReferences"] = list(kept.values())
    when = " after mutating admission happens" if patched else ""
    return [
        f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner"
        " references in 1.20+, and may reject such requests as early as 1.24; please fix your"
        f" requests; duplicate UID(s) observed: {', '.join(repeated)}"
    ]


def metadata_problems(meta: Tree, namespaced: bool, names: NameProblems) -> Iterator[Cause]:
    """Causes of the metadata of an object."""
    yield from _identity_problems(meta, namespaced, names)
    yield from _labels_and_annotations_problems(meta)
    yield from _finalizer_problems(meta.get("finalizers") or ())
    if "managedFields" in meta:
        yield from _managed_fields_problems(meta["managedFields"])


def _identity_problems(meta: Tree, namespaced: bool, names: NameProblems) -> list[Cause]:
    found: list[Cause] = []
    prefix, name = meta.get("generateName", ""), meta.get("name", "")
    if prefix:
        found += [invalid("metadata.generateName", prefix, text) for text in names(prefix, True)]
    if name:
        found += [invalid("metadata.name", name, text) for text in names(name, False)]
    else:
        found.append(required("metadata.name", "name or generateName is required"))
    namespace = meta.get("namespace", "")
    if namespaced:
        if not namespace:
            found.append(required("metadata.namespace"))
        for text in label_problems(namespace) if namespace else ():
            found.append(invalid("metadata.namespace", namespace, text))
    elif namespace:
        found.append(forbidden_field("metadata.namespace", "not allowed on this type"))
    generation = meta.get("generation", 0)
    if generation < 0:
        found.append(
            invalid("metadata.generation", generation, "must be greater than or equal to 0")
        )
    return found


def _labels_and_annotations_problems(meta: Tree) -> Iterator[Cause]:
    yield from label_set_problems(meta.get("labels") or {}, "metadata.labels")
    annotations = meta.get("annotations")
    if annotations:
        yield from annotation_problems(annotations, "metadata.annotations")
    references = meta.get("ownerReferences")
    if references:
        yield from _owner_problems(references, "metadata.ownerReferences")


def label_set_problems(labels: dict[str, str], field: str) -> list[Cause]:
    """Causes of labels at `field`."""
    if len(labels) <= _CACHED_LABELS_MAX and _is_valid_label_set(tuple(labels.items())):
        return []
    found: list[Cause] = []
    for key in sorted(labels):
        found += [invalid(field, key, text) for text in qualified_name_problems(key)]
        value = labels[key]
        found += [invalid(field, value, text) for text in label_value_problems(value)]
    return found


def _is_valid_label_set(labels: tuple[tuple[str, str], ...]) -> bool:
    """True for valid labels; cached, since pods of a template have the same labels."""
    if labels in _VALID_LABELS:
        return True
    if any(qualified_name_problems(k) or label_value_problems(v) for k, v in labels):
        return False
    # Valid ones have few characters each.
    if len(_VALID_LABELS) >= _VALID_LABELS_MAX:
        _VALID_LABELS.clear()
    _VALID_LABELS.add(labels)
    return True


def annotation_problems(annotations: dict[str, str], field: str) -> list[Cause]:
    """Causes of annotations at `field`."""
    found: list[Cause] = []
    size = 0
    for key in sorted(annotations):
        found += [invalid(field, key, text) for text in qualified_name_problems(key.lower())]
        size += len(key.encode()) + len(annotations[key].encode())
    if size > ANNOTATIONS_BYTES_MAX:
        found.append(too_long_field(field, ANNOTATIONS_BYTES_MAX))
    return found


def _owner_problems(references: list[Tree], field: str) -> Iterator[Cause]:
    # One by one: the cause of each of several controllers prints the whole list.
    controller = ""
    for reference in references:
        version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
        if not version.rpartition("/")[2]:
            yield invalid(f"{field}.apiVersion", version, "version must not be empty")
        for key in ("kind", "name", "uid"):
            if not reference.get(key):
                yield invalid(f"{field}.{key}", "", "must not be empty")
        if (version, kind) == ("v1", "Event"):
            yield invalid(field, reference, "/v1, Kind=Event is disallowed from being an owner")
        if reference.get("controller"):
            this = f"{kind}/{reference.get('name', '')}"
            if controller:
                text = (
                    'Only one reference can have Controller set to true. Found "true" in'
                    f" references for {controller} and {this}"
                )
                yield invalid(field, references, text)
            else:
                controller = this


def _finalizer_problems(finalizers: Iterable[str]) -> list[Cause]:
    found: list[Cause] = []
    names = list(finalizers)
    for name in names:
        texts = qualified_name_problems(name)
        found += [invalid("metadata.finalizers", name, text) for text in texts]
    if ORPHAN in names and FOREGROUND in names:
        text = f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"
        found.append(invalid("metadata.finalizers", names, text))
    return found


def finalizer_name_problems(finalizers: Iterable[str]) -> list[Cause]:
    """Finalizers of built-in kinds have a domain or are one of the standard names."""
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid(f"metadata.finalizers[{at}]", name, text)
        for at, name in enumerate(finalizers)
        if "/" not in name and name not in STANDARD_FINALIZERS
    ]


def metadata_update_problems(new: Tree, old: Tree) -> Iterator[Cause]:
    """Causes of an update of metadata."""
    yield from _changed_problems(new, old)
    yield from _labels_and_annotations_problems(new)
    if "managedFields" in new:
        yield from _managed_fields_problems(new["managedFields"])


def _changed_problems(new: Tree, old: Tree) -> list[Cause]:
    found: list[Cause] = []
    if old.get("deletionTimestamp"):
        extra = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if extra:
            listed = ", ".join(f'"{name}"' for name in extra)
            text = (
                "no new finalizers can be added if the object is being deleted, found new"
                f" finalizers []string{{{listed}}}"
            )
            found.append(forbidden_field("metadata.finalizers", text))
    if not new.get("resourceVersion"):
        found.append(invalid("metadata.resourceVersion", "", "must be specified for an update"))
    if new.get("generation", 0) < old.get("generation", 0):
        text = "must not be decremented"
        found.append(invalid("metadata.generation", new.get("generation", 0), text))
    for key in IMMUTABLE_FIELDS:
        got = new.get(key)
        if got != old.get(key):
            empty = None if key.endswith("Timestamp") else ""
            bad = got if got is not None else empty
            found.append(invalid(f"metadata.{key}", bad, IMMUTABLE_TEXT))
    grace: Any = new.get("deletionGracePeriodSeconds")
    if grace != old.get("deletionGracePeriodSeconds"):
        found.append(invalid("metadata.deletionGracePeriodSeconds", grace, IMMUTABLE_TEXT))
    return found


def _managed_fields_problems(entries: Iterable[Tree]) -> Iterator[Cause]:
    for index, one in enumerate(entries):
        manager, subresource = one.get("manager", ""), one.get("subresource", "")
        # No character has more than four bytes.
        if len(manager) <= MANAGER_BYTES_MAX // 4 and len(subresource) <= MANAGER_BYTES_MAX // 4:
            continue
        field = f"metadata.managedFields[{index}]"
        if len(manager.encode()) > MANAGER_BYTES_MAX:
            yield too_long_field(f"{field}.manager", MANAGER_BYTES_MAX)
        if len(subresource.encode()) > SUBRESOURCE_BYTES_MAX:
            yield too_long_field(f"{field}.subresource", SUBRESOURCE_BYTES_MAX)


def carry_over_metadata(new: Tree, old: Tree) -> None:
    """Set the system fields of an update from the stored object."""
    if not new.get("uid"):
        new["uid"] = old["uid"]
    for key in ("creationTimestamp", "deletionTimestamp"):
        if old.get(key):
            new[key] = old[key]
    grace = old.get("deletionGracePeriodSeconds")
    if grace is not None and new.get("deletionGracePeriodSeconds") is None:
        new["deletionGracePeriodSeconds"] = grace


path_names: NameProblems = path_segment_problems
