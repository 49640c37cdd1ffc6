"""The file that chooses Kueue: `scheduler: kueue`, and the configuration of Kueue that decides.

Kueue admits jobs; their pods are scheduled by profiles. So the file has no part in the
configuration of profiles and sessions.
"""

from __future__ import annotations

from typing import Any

import yaml

from stowplan.batch.queue_models.kueue.kueue_options import (
    GATES,
    STRATEGIES,
    KueueOptions,
    kueue_options_of,
)
from stowplan.config.queue_models.queue_model_choice import SCHEDULER
from stowplan.config.strict_decoder import Problems, format_alternatives, format_value
from stowplan.framework.problems import did_you_mean

KUEUE = "kueue"
"""Value of `scheduler` and of `--compat`."""

_FIELDS = (SCHEDULER, "fairSharing", "featureGates")
_FAIR_SHARING = "fairSharing"
_STRATEGIES = "preemptionStrategies"


def is_for_kueue(text: str | bytes) -> bool:
    """True for a text that names Kueue as the scheduler."""
    # Most files do not name it, and need not be read twice.
    is_named = KUEUE.encode() in text if isinstance(text, bytes) else KUEUE in text
    return is_named and _tree(text).get(SCHEDULER) == KUEUE


def read_kueue_options(text: str | bytes, source: str, *, is_fixed: bool) -> KueueOptions:
    """The options of a text; raises ConfigError with every mistake."""
    tree, problems = _tree(text), Problems()
    for key in tree:
        if key not in _FIELDS:
            hint = did_you_mean(str(key), _FIELDS)
            problems.add(str(key), "an unknown field", format_alternatives(_FIELDS), hint)
    _check_gates(tree.get("featureGates"), problems)
    _check_fair_sharing(tree.get(_FAIR_SHARING), problems)
    if problems.found:
        raise problems.error(source)
    return kueue_options_of(tree, is_fixed=is_fixed)


def _tree(text: str | bytes) -> dict[str, Any]:
    try:
        found = next(iter(yaml.safe_load_all(text)), None)
    except (yaml.YAMLError, ValueError):
        # The reader of the configuration reports it.
        return {}
    return found if isinstance(found, dict) else {}


def _check_gates(gates: Any, problems: Problems) -> None:
    path = "featureGates"
    if gates is not None and not isinstance(gates, dict):
        problems.add(path, format_value(gates), "a mapping of gates to true or false")
        return
    for name, is_on in (gates or {}).items():
        if name not in GATES:
            hint = did_you_mean(str(name), GATES)
            problems.add(f"{path}.{name}", "an unknown gate", format_alternatives(GATES), hint)
        elif not isinstance(is_on, bool):
            problems.add(f"{path}.{name}", format_value(is_on), "true or false")


def _check_fair_sharing(tree: Any, problems: Problems) -> None:
    path = _FAIR_SHARING
    if tree is None:
        return
    if not isinstance(tree, dict):
        problems.add(path, format_value(tree), f"a mapping with {_STRATEGIES}")
        return
    for key in tree:
        if key != _STRATEGIES:
            problems.add(f"{path}.{key}", "an unknown field", _STRATEGIES)
    names = tree.get(_STRATEGIES) or []
    if not isinstance(names, list):
        problems.add(f"{path}.{_STRATEGIES}", format_value(names), "a list")
        return
    for name in names:
        if name not in STRATEGIES:
            wanted = format_alternatives(STRATEGIES)
            problems.add(f"{path}.{_STRATEGIES}", format_value(name), wanted)
