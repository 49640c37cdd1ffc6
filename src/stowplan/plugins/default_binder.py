"""DefaultBinder: binds through the API server.

Source: kube-scheduler v1.36, plugins/defaultbinder.
"""

from __future__ import annotations

from stowplan.framework import OK, Status
from stowplan.framework.plugin import Plugin


class DefaultBinder:
    """Bind: takes every pod that no earlier plugin bound."""

    name = "DefaultBinder"
    declaration = Plugin(name=name, reads=(), binds_all=True, repeatable=True)

    def bind(self) -> Status:
        """Success: the pod is bound through the API."""
        return OK
