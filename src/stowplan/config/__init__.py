"""Configuration files to one model, with errors that name the place."""

from stowplan.config.effective_configuration import digest, effective
from stowplan.config.formats import default, from_tree, merged, parse
from stowplan.config.model import Configuration, Extender

__all__ = [
    "Configuration",
    "Extender",
    "default",
    "digest",
    "effective",
    "from_tree",
    "merged",
    "parse",
]
