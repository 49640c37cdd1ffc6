"""Registered plugins, and the framework that calls them at the extension points."""

from typing import TYPE_CHECKING

from stowplan._deprecated import deprecated_names

# This package was one module; its names are in `framework` now.
_OLD_NAMES = {
    "Framework": "stowplan.framework.runtime.framework:Framework",
    "Handle": "stowplan.framework.runtime.framework:Handle",
    "PERMIT_TIMEOUT_S_MAX": "stowplan.framework.runtime.framework:PERMIT_TIMEOUT_S_MAX",
    "PreFilterOutcome": "stowplan.framework.runtime.outcomes:PreFilterOutcome",
    "Scores": "stowplan.framework.runtime.framework:Scores",
    "frameworks": "stowplan.framework.runtime.framework_building:build_frameworks",
}
if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, _OLD_NAMES)
