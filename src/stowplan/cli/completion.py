"""Shell completion: the scripts, and candidates for pods.

A script calls the program again with the words of the command line; what it knows of commands and
options answers. Pods are read from the files that the command line names, where these are small, or
by kubectl.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from stowplan.cli.command import COMPLETE_VARIABLE, KUBECTL_PROGRAM

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem, ShellComplete

SHELLS = ("bash", "zsh", "fish")
FILE_BYTES_MAX = 1 << 20
"""Larger files take longer to read than a key press may."""
KUBECTL_TIMEOUT_S = 3
KINDS = {
    "Pod": "pod",
    "Deployment": "deploy",
    "ReplicaSet": "rs",
    "StatefulSet": "sts",
    "DaemonSet": "ds",
    "Job": "job",
    "CronJob": "cj",
    "ReplicationController": "rc",
    "PodGroup": "podgroup",
}
"""Kinds that `stowplan explain` accepts -> the name before the slash."""
_NO_FILES, _DIRECTORIES, _DEFAULT = 4, 16, 0
"""Directives of Cobra, the library of kubectl's commands, that follow the candidates."""


def completion_script(shell: str, program: str) -> str:
    """The script by which a shell completes `program`."""
    completer = _completer(shell, program)
    # Not source(), which starts a shell to learn its version.
    return completer.source_template % completer.source_vars()


def _completer(shell: str, program: str) -> ShellComplete:
    # Imported here: no other command needs it.
    from click.shell_completion import get_completion_class

    from stowplan.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(cli, {}, program, COMPLETE_VARIABLE)


def kubectl_complete() -> None:
    """The entry point of `kubectl_complete-stowplan`, which kubectl runs for completions.

    Its arguments are the words after `kubectl stowplan`, the last one incomplete; it prints a
    candidate per line and then a directive of Cobra.
    """
    *words, incomplete = sys.argv[1:] or [""]
    items = _completer("bash", KUBECTL_PROGRAM).get_completions(words, incomplete)
    types = {item.type for item in items}
    for item in items:
        if item.type == "plain":
            click.echo(item.value if item.help is None else f"{item.value}\t{item.help}")
    directive = _DEFAULT if "file" in types else _DIRECTORIES if "dir" in types else _NO_FILES
    click.echo(f":{directive}")


def complete_pods(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Candidates for POD: names of pods, and KIND/NAME for every kind that can be explained."""
    from click.shell_completion import CompletionItem

    paths = [*ctx.params.get("clusters", ()), *ctx.params.get("files", ())]
    namespace = None if ctx.params.get("all_namespaces") else ctx.params.get("namespace")
    names = _pods_of_files(paths, namespace) if paths else _pods_of_kubectl(ctx, namespace)
    found = sorted({name for name in names if name.startswith(incomplete)})
    return [CompletionItem(name) for name in found]


def complete_only(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Candidates for KEY=VALUE: names of the plan, where it is a small file."""
    from pathlib import Path

    from click.shell_completion import CompletionItem

    path = Path(ctx.params.get("plan") or "")
    trees = list(_trees(path)) if path.is_file() and path.stat().st_size <= FILE_BYTES_MAX else []
    found = sorted(word for tree in trees for word in _plan_words(tree))
    return [CompletionItem(word) for word in found if word.startswith(incomplete)]


def _plan_words(tree: dict[str, Any]) -> Iterator[str]:
    for key, field in (("workload", "workloads"), ("policy", "policies")):
        for entry in tree.get(field) or ():
            name = entry.get("name") if isinstance(entry, dict) else entry
            if name:
                yield f"{key}={name}"
    seeds = tree.get("seeds", 1)
    yield from (f"seed={one}" for one in (range(seeds) if isinstance(seeds, int) else seeds))
    for option, values in (tree.get("options") or {}).items():
        yield from (f"{option}={one}" for one in (values if isinstance(values, list) else [values]))


def _pods_of_files(paths: list[str], namespace: str | None) -> Iterator[str]:
    from pathlib import Path

    for path in map(Path, paths):
        if not path.is_file() or path.stat().st_size > FILE_BYTES_MAX:
            continue
        for tree in _trees(path):
            metadata = tree.get("metadata") or {}
            kind, name = KINDS.get(tree.get("kind", "")), metadata.get("name")
            own = metadata.get("namespace") or "default"
            if kind is None or not name or namespace not in (None, own):
                continue
            yield f"{kind}/{name}"
            if kind == "pod":
                yield name if namespace or own == "default" else f"{own}/{name}"


def _trees(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a YAML or JSON file, lists unfolded; nothing where it is malformed."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        documents = list(yaml.load_all(path.read_text(encoding="utf-8"), loader))
    except (yaml.YAMLError, UnicodeDecodeError, OSError):
        return
    for document in documents:
        if isinstance(document, dict):
            items = document.get("items")
            yield from items if isinstance(items, list) else [document]


def _pods_of_kubectl(ctx: click.Context, namespace: str | None) -> list[str]:
    """Names of the pods of the cluster that kubectl reads; none where it fails."""
    import subprocess

    from stowplan.driver.cluster_discovery import local_cluster_kubeconfig

    kubeconfig, context = ctx.params.get("kubeconfig"), ctx.params.get("context")
    if not (kubeconfig or context or ctx.find_root().info_name == KUBECTL_PROGRAM):
        kubeconfig = local_cluster_kubeconfig()
    command = ["kubectl", "get", "pods", "-o", "name", f"--request-timeout={KUBECTL_TIMEOUT_S}s"]
    for name, value in (
        ("kubeconfig", kubeconfig),
        ("context", context),
        ("namespace", namespace),
    ):
        if value:
            command.append(f"--{name}={value}")
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=KUBECTL_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    names = ran.stdout.split()
    return names + [name.removeprefix("pod/") for name in names]
