"""Reads configuration files into one model; errors name the place of every mistake."""

from stowplan.config.effective_configuration import digest, effective
from stowplan.config.formats import DEFAULT_SOURCE, default, from_tree, merged, parse
from stowplan.config.model import Configuration, Extender

__all__ = [
    "DEFAULT_SOURCE", "Configuration", "Extender", "default", "digest", "effective", "from_tree",
    "merged", "parse",
]  # fmt: skip
