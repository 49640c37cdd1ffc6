"""The configuration of Volcano's scheduler or of Kueue in a ConfigMap, as clusters have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

CONFIG_MAP = "ConfigMap"
KUEUE_FILE = "controller_manager_config.yaml"
"""Key of the file that Kueue's manager reads."""
FILE, ENDING = "volcano-scheduler", ".conf"
"""Beginning and end of the key, which is the name of the file."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def configuration_of_config_map(text: str, source: str) -> tuple[str, str]:
    """The file that Volcano's scheduler or Kueue reads, and where it is, if a text has its
    ConfigMap; else the text itself. The ConfigMap may stand among other objects, or in a List."""
    if CONFIG_MAP not in text or (FILE not in text and KUEUE_FILE not in text):
        return text, source
    try:
        documents = list(yaml.load_all(text, _LOADER))
    except (yaml.YAMLError, RecursionError):
        return text, source
    for document in documents:
        for one in _objects(document):
            found = scheduler_file_of(one) or _kueue_file_of(one)
            if found is not None:
                key, content = found
                return content, f"{source}: ConfigMap {one['metadata'].get('name')}: {key}"
    return text, source


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if isinstance(items, list):
        yield from (one for one in items if isinstance(one, dict))
    else:
        yield document


def _kueue_file_of(tree: dict[str, Any]) -> tuple[str, str] | None:
    """The same of Kueue."""
    meta, data = tree.get("metadata"), tree.get("data")
    if tree.get("kind") != CONFIG_MAP or not isinstance(meta, dict) or not isinstance(data, dict):
        return None
    return (KUEUE_FILE, str(data[KUEUE_FILE])) if KUEUE_FILE in data else None


def scheduler_file_of(tree: dict[str, Any]) -> tuple[str, str] | None:
    """Key and text of the scheduler's file in a ConfigMap of Volcano; None for other objects."""
    meta, data = tree.get("metadata"), tree.get("data")
    if tree.get("kind") != CONFIG_MAP or not isinstance(meta, dict) or not isinstance(data, dict):
        return None
    for key, content in data.items():
        if str(key).startswith(FILE) and str(key).endswith(ENDING):
            return str(key), str(content)
    return None
