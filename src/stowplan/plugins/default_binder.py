"""DefaultBinder: binds through the API server.

Source: kube-scheduler v1.36, plugins/defaultbinder.
"""

from __future__ import annotations

from stowplan.framework import OK, Status


class DefaultBinder:
    """Takes every pod that no binder before it took."""

    name = "DefaultBinder"
    binds_all = True

    def bind(self) -> Status:
        """Success: the pod is this binder's. The engine asks for the binding itself."""
        return OK
