"""Files that commands of the documentation read: a reader can have every one of them."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy import tree

COMMAND = re.compile(r"^ *(?:\$ )?(stowplan (?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
FILE = re.compile(
    r"(?<![\w./<-])([A-Za-z][\w./-]*\.(?:ya?ml|csv|json|jsonl|py|swf|conf)(?:\.gz)?)\b"
)
FOLDER = re.compile(r"examples/[\w/-]*")
WRITTEN = re.compile(r"(?:>|--out|--record|--report|-o) (\S+)")
READERS_OWN = {
    "dump.yaml": "kubectl get -o yaml",
    "dump.json": "kubectl get -o json",
    "cases.jsonl": "recorded cases",
    "cases.jsonl.gz": "recorded cases",
    "CASES.jsonl": "recorded cases",
    "trace.swf": "a trace of the reader",
    "trace.csv": "a trace of the reader",
    "pai_machine_spec.csv": "a published trace",
    "pai_task_table.csv": "a published trace",
    "pai_job_table.csv": "a published trace",
    "openb_node_list_gpu_node.csv": "a published trace",
    "openb_pod_list_default.csv": "a published trace",
}
"""Files that the reader has -> where from."""
NOT_GIVEN = {
    "docs/changes.md": {"cluster.yaml"},
    "docs/devices.md": {"app.yaml"},
    "docs/live.md": {"gangs.yaml", "rules.yaml"},
    "docs/plugins.md": {"cluster.yaml", "quota.py", "quota.yaml"},
    "docs/policy.md": {"cluster.yaml", "policy.yaml"},
    "docs/simulate.md": {"nodes.csv", "pods.csv", "workloads.yaml"},
    "docs/what-if.md": {"cluster.yaml", "job.yaml", "plan.yaml"},
}
"""Page -> files that it should give, and does not yet."""


def files_not_given(page: Path, text: str) -> Iterator[str]:
    """Files of commands that neither exist, nor stand in the text, nor in an example's folder that
    the text names, nor are the reader's own."""
    commands = COMMAND.findall(text)
    rest = text
    for command in commands:
        rest = rest.replace(command, "")
    folders = [tree.ROOT / name for name in FOLDER.findall(rest)]
    for command in commands:
        command = command.partition(" # ")[0]
        written = set(WRITTEN.findall(command))
        for name in FILE.findall(command):
            if name in READERS_OWN or name in written or (tree.ROOT / name).is_file():
                continue
            is_in_text = re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w-])", rest)
            if not is_in_text and not any((folder / name).is_file() for folder in folders):
                yield f"{page.name}: {name} is not given"


def test_files_of_commands_are_given() -> None:
    pages = [tree.ROOT / "README.md", *sorted((tree.ROOT / "docs").rglob("*.md"))]
    found = {}
    for page in pages:
        names = {line.split()[1] for line in files_not_given(page, tree.read(page))}
        if names:
            found[tree.name(page)] = names
    assert found == NOT_GIVEN


def test_control_files() -> None:
    page = tree.ROOT / "docs" / "page.md"

    def check(text: str) -> list[str]:
        return list(files_not_given(page, text))

    command = "    stowplan simulate --config kai.yaml -f manifests\n"
    assert check(command) == ["page.md: kai.yaml is not given"]
    assert check(f"In `examples/queues/kueue/`:\n\n{command}") == ["page.md: kai.yaml is not given"]
    assert not check(f"In `examples/queues/kai/`:\n\n{command}")
    assert not check(f"```yaml\n# kai.yaml\nscheduler: kai\n```\n{command}")
    assert not check("    stowplan simulate -f dump.yaml\n")
    assert check("    stowplan simulate \\\n        -f a.yaml\n") == [
        "page.md: a.yaml is not given"
    ]
