"""Which queue model a file of actions and tiers means, and whose pods a queue model decides."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import yaml

from stowplan.config import volcano_settings
from stowplan.config.strict_decoder import (
    Problems,
    child_path,
    format_alternatives,
    format_value,
)
from stowplan.framework.problems import did_you_mean

KUBE_BATCH = "kube-batch"
VOLCANO = "volcano"
"""The queue model of Volcano, and the scheduler name of its pods."""
KAI, KAI_SCHEDULER = "kai", "kai-scheduler"
"""The queue model of KAI-Scheduler, and the scheduler name of its pods."""
KUEUE = "kueue"
"""Value of `scheduler` and of `--compat` with which Kueue admits jobs in front of the profiles."""
KUEUE_KIND = "Configuration"
"""Kind of the file that Kueue's manager reads."""
SCHEDULER = "scheduler"
"""Key that names whose sessions decide: `volcano`, `kai`, or `kube-batch` for Stowplan's own;
`kueue` admits jobs in front of them."""


class QueueModelSettings(msgspec.Struct, frozen=True):
    """The queue model that decides instead of Stowplan's own sessions.

    model: its name, a key of MODEL_SCHEDULER_NAMES. tree: its configuration, as its scheduler reads
    it, without the fields that are Stowplan's. It is valid.
    """

    model: str
    tree: dict[str, Any] = {}


MODEL_SCHEDULER_NAMES: Mapping[str, tuple[str, ...]] = {
    VOLCANO: (VOLCANO,),
    KAI: (KAI_SCHEDULER,),
}
"""Queue model -> scheduler names of the pods that it decides by default."""
MODEL_DEFAULT_QUEUES: Mapping[str, str] = {VOLCANO: "default", KAI: "default-queue"}
"""Queue model -> queue of the pods that name none."""


def chosen_queue_model(
    tree: Any,
    problems: Problems,
    chosen: str = "",
    others: Collection[str] = (),
    path: str = "",
) -> str | None:
    """The queue model that decides by a file; "" for Stowplan's own sessions, None where the file
    names an unknown one.

    The file names it, or has actions or plugins that only Volcano has. chosen: by `--compat`.
    others: actions and plugins of Stowplan's own sessions. path: of the tree in its file.
    """
    stated = tree.get(SCHEDULER) if isinstance(tree, dict) else None
    names = (KUBE_BATCH, *MODEL_SCHEDULER_NAMES)
    if stated is not None and stated not in names:
        # Kueue has no sessions: its files are found before, by themselves.
        known = names if path else (*names, KUEUE)
        hint = did_you_mean(stated, known) if isinstance(stated, str) else ""
        where = child_path(path, SCHEDULER) if path else SCHEDULER
        problems.add(where, format_value(stated), format_alternatives(known), hint)
        return None
    if chosen:
        return chosen
    if stated is not None:
        return "" if stated == KUBE_BATCH else str(stated)
    return VOLCANO if has_parts_of_volcano(tree, others) else ""


def has_parts_of_volcano(tree: Any, others: Collection[str] = ()) -> bool:
    """True if a file has actions or plugins that only Volcano has. others: those of
    Stowplan's own sessions."""
    if not isinstance(tree, dict):
        return False
    actions = tree.get("actions")
    tiers = tree.get("tiers")
    named = {name.strip() for name in actions.split(",")} if isinstance(actions, str) else set()
    plugins = {
        str(entry.get("name"))
        for tier in (tiers if isinstance(tiers, list) else ())
        if isinstance(tier, dict) and isinstance(tier.get("plugins"), list)
        for entry in tier["plugins"]
        if isinstance(entry, dict)
    }
    only_volcano = (named & volcano_settings.ACTIONS.keys()) | (
        plugins & volcano_settings.PLUGINS.keys()
    )
    return bool(only_volcano - set(others))


def plain_tree(root: yaml.Node | None) -> Any:
    """Plain values of a document; None where it has others."""
    try:
        return None if root is None else yaml.SafeLoader("").construct_document(root)
    except (yaml.YAMLError, ValueError):
        return None


def check_one_document(text: str | bytes, problems: Problems) -> None:
    """Add a problem for a text of several documents: only the first would be read. The text is
    valid YAML in its first document."""
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        problems.add("document", str(error).splitlines()[0], "YAML")
        return
    n = sum(not (isinstance(node, yaml.ScalarNode) and node.value == "") for node in nodes)
    if n > 1:
        problems.add("document", f"{n} documents", "one document")


def check_keys(node: yaml.Node | None, problems: Problems, path: str = "") -> None:
    """Add a problem for each key that a mapping has again: only the last would be read."""
    if isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            check_keys(item, problems, f"{path}[{i}]")
    if not isinstance(node, yaml.MappingNode):
        return
    seen = set()
    for key, value in node.value:
        name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
        place = child_path(path, name)
        if name in seen:
            problems.add(place, "the key again", "each key once")
        seen.add(name)
        check_keys(value, problems, place)
