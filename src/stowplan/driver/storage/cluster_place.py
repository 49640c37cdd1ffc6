"""Where a cluster keeps its files, and whether another one that runs has them already.

This imports little, so that `stowplan up` refuses to start before it has loaded everything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stowplan.driver.cluster_discovery import IN_MEMORY_KUBECONFIG
from stowplan.driver.storage.kubeconfig_files import is_kubeconfig_of_stowplan, is_writer_alive
from stowplan.driver.storage.sqlite_store import raise_if_locked

KUBECONFIG = "kubeconfig"


class KubeconfigTaken(Exception):
    """A kubeconfig cannot be written; the text says which, why and what to do."""


def kubeconfig_paths(data: Path | None, kubeconfig: Path | None) -> tuple[Path, Path]:
    """The kubeconfig files of the administrator and the scheduler."""
    first = kubeconfig or (data / KUBECONFIG if data else Path(IN_MEMORY_KUBECONFIG))
    return first, first.with_name(f"scheduler.{first.name}")


def check_kubeconfigs(paths: Iterable[Path]) -> None:
    """Raises KubeconfigTaken for files of other programs and of a cluster that runs, OSError."""
    for path in paths:
        if not path.exists():
            continue
        if not is_kubeconfig_of_stowplan(path.read_text("utf-8", "replace")):
            raise KubeconfigTaken(
                f"{path} exists and was not written by Stowplan; use another --kubeconfig"
            )
        if is_writer_alive(path):
            raise KubeconfigTaken(
                f"{path} is in use by another `stowplan up`; use another --kubeconfig, or "
                "start in another directory"
            )


def check_place(data: Path | None, kubeconfig: Path | None) -> None:
    """Raises KubeconfigTaken and StoreError if another cluster runs there. What cannot be read is
    left to the start."""
    try:
        if data is not None:
            raise_if_locked(data)
        check_kubeconfigs(kubeconfig_paths(data, kubeconfig))
    except OSError:
        return
