"""Extension points: their names in configuration files, and their methods."""

from __future__ import annotations

import difflib

EXTENSION_POINTS: dict[str, str] = {
    "preEnqueue": "pre_enqueue",
    "queueSort": "less",
    "preFilter": "pre_filter",
    "filter": "filter",
    "postFilter": "post_filter",
    "preScore": "pre_score",
    "score": "score",
    "reserve": "reserve",
    "permit": "permit",
    "preBind": "pre_bind",
    "bind": "bind",
    "postBind": "post_bind",
    "placementGenerate": "generate_placements",
    "placementScore": "score_placement",
}
"""Configuration name -> method, in the order in which a pod passes them; those of groups last."""

METHOD_PARAMETERS: dict[str, tuple[str, ...]] = {
    "pre_enqueue": ("pod",),
    "less": ("first", "second"),
    "sort_key": ("queued",),
    "pre_filter": ("pod", "snapshot", "state"),
    "add_pod": ("pod", "info", "node", "state"),
    "remove_pod": ("pod", "info", "node", "state"),
    "filter": ("pod", "node", "state"),
    "filter_column": ("pod", "nodes", "rows", "state"),
    "filter_status": ("code", "pod", "nodes", "state"),
    "post_filter": ("pod", "snapshot", "diagnosis", "state"),
    "may_help": ("pod", "snapshot"),
    "pre_score": ("pod", "snapshot", "rows", "state"),
    "score": ("pod", "node", "state", "nodes"),
    "score_column": ("pod", "nodes", "rows", "state"),
    "normalize_score": ("scores", "pod", "nodes", "rows", "state"),
    "reserve": ("pod", "node_name", "state"),
    "unreserve": ("pod", "node_name", "state"),
    "permit": ("pod", "node_name", "state"),
    "pre_bind_pre_flight": ("pod", "node_name", "state"),
    "pre_bind": ("pod", "node_name", "state"),
    "pre_bind_conflict": ("pod", "node_name", "state"),
    "pre_bind_progress": ("pod", "node_name", "snapshot", "state"),
    "bind": ("pod", "node_name", "state"),
    "post_bind": ("pod", "node_name", "state"),
    "pod_group_post_filter": ("group", "trial"),
    "generate_placements": ("group", "rows", "cycle"),
    "score_placement": ("placement", "cycle"),
    "normalize_placement_scores": ("scores",),
    "events_to_register": (),
    "applies_to": ("pod",),
    "kernel_terms": ("pod", "snapshot", "peers"),
    "resource_kind": ("resource",),
    "answers_by_outline": ("pod", "snapshot", "peers"),
    "signature": ("pod",),
    "claims_signature": ("pod", "object_store"),
    "explain": ("pod", "node", "state"),
    "node_updated": ("before", "after", "pods"),
    "unused_pods": ("pods",),
    "explain_column": ("pod", "nodes", "rows", "state"),
}
"""Method -> parameters, in the order in which the runtime passes them."""
RENAMED_METHODS = {"applies_to": "concerns", "kernel_terms": "parts"}
"""Method -> old name; plugins that have the old one are accepted for one release."""


def public_methods(plugin: type) -> tuple[str, ...]:
    """Names of the public methods that a class defines."""
    return tuple(
        name for name in dir(plugin) if not name.startswith("_") and callable(getattr(plugin, name))
    )


def suggest_method(method: str) -> str:
    """ " (did you mean 'filter'?)" for a name close to a method of METHOD_PARAMETERS, else ""."""
    if method in METHOD_PARAMETERS:
        return ""
    bare = {name.replace("_", ""): name for name in METHOD_PARAMETERS}
    plain = method.replace("_", "").lower()
    close = (
        [bare[plain]]
        if plain in bare
        else difflib.get_close_matches(method, METHOD_PARAMETERS, 1, 0.8)
    )
    return f" (method {method!r}: did you mean {close[0]!r}?)" if close else ""


def points_of(plugin: type) -> tuple[str, ...]:
    """Extension points that a plugin class implements, by configuration name."""
    return tuple(
        point for point, method in EXTENSION_POINTS.items() if callable(getattr(plugin, method, 0))
    )
