"""DefaultBinder: binds through the API server.

Source: kube-scheduler v1.36, plugins/defaultbinder.
"""

from __future__ import annotations

from stowplan.framework import OK, Status
from stowplan.framework.plugin import Plugin


class DefaultBinder:
    """Takes every pod that no binder before it took."""

    name = "DefaultBinder"
    declaration = Plugin(name=name, reads=(), binds_all=True, repeatable=True)

    def bind(self) -> Status:
        """Success: the pod is this binder's. The engine asks for the binding itself."""
        return OK
