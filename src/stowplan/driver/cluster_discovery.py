"""The kubeconfig of `stowplan up`, by which commands in the same directory find its cluster."""

from __future__ import annotations

from pathlib import Path

IN_MEMORY_KUBECONFIG = "stowplan.kubeconfig"
"""File in the working directory that `stowplan up` writes, without --data and --kubeconfig."""


def local_cluster_kubeconfig() -> str | None:
    """The kubeconfig that `stowplan up` has written into this directory, None if there is none."""
    return IN_MEMORY_KUBECONFIG if Path(IN_MEMORY_KUBECONFIG).exists() else None
