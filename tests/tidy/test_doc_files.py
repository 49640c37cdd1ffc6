"""Files that commands of the documentation read: a reader can have every one of them.

A file or folder that a command names is in the page as a code block that is introduced with its
name, or in `examples/`, or written by an earlier command of the page, or the reader's own.
"""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.tidy import tree

COMMAND = re.compile(
    r"^ *(?:\$ )?((?:\.venv/bin/)?(?:stowplan|kubectl) (?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE
)
FENCE = re.compile(r"^```\w*([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOLDER = re.compile(r"`(examples/[\w/-]*)`")
SUFFIX = re.compile(r"\.(?:ya?ml|csv|json|jsonl|py|swf|conf|rec)(?:\.gz)?$")
READS = {
    *("-f", "--filename", "--cluster", "--config", "--base-config", "--plugin", "--changes"),
    *("--submit", "--autoscale", "--extender", "--patch-file", "--kubeconfig", "--traces"),
}
"""Options whose value is a file or a folder that the command reads."""
WRITES = {"--out", "--report", "--save", "-o", "--output", "--record"}
"""Options whose value the command writes (`--record` where the command is none of READ_RECORDS)."""
READ_RECORDS = {"explain", "what-if", "preempt-preview", "eta"}
FLAGS = {("explain", "--changes")}
"""(command, option of READS) where the option takes no value."""
READERS_OWN = {
    "dump.yaml": "of the reader's cluster, by kubectl get -o yaml",
    "dump.json": "of the reader's cluster, by kubectl get -o json",
    "cases.jsonl": "cases that the reader records",
    "cases.jsonl.gz": "cases that the reader records",
    "CASES.jsonl": "cases that the reader records",
    "trace.swf": "a trace of the reader",
    "trace.csv": "a trace of the reader",
    "/shared/traces": "traces of the reader",
    "FOLDER_OF_OPENB": "a published trace",
    "pai_machine_spec.csv": "a published trace",
    "pai_task_table.csv": "a published trace",
    "pai_job_table.csv": "a published trace",
    "openb_node_list_gpu_node.csv": "a published trace",
    "openb_pod_list_default.csv": "a published trace",
    "run.rec": "a recording of the reader",
    "~/.kube/config": "the reader's kubeconfig",
    "KUBECONFIG": "the reader's kubeconfig",
    "stowplan.kubeconfig": "written by `stowplan up`",
}
"""Files that the reader has -> where from."""
OWN = re.compile(r"# .*\byour own\b")
"""The remark of a command whose files are the reader's."""


def words(command: str) -> list[str]:
    """The command by the rules of the shell, without the remark at its end."""
    return shlex.split(command.replace("\\\n", " "), comments=True)


def files_read(command: str) -> Iterator[str]:
    """Files and folders that a command reads."""
    if OWN.search(command):
        return
    verb, *rest = words(command)[1:]
    last = ""
    for word in rest:
        reads = last in READS and (verb, last) not in FLAGS
        reads |= last == "--record" and verb in READ_RECORDS
        if last not in WRITES | {">"} and not word.startswith("-"):
            reads |= SUFFIX.search(word) is not None
        if reads and word != "-":
            yield word
        last = word


def files_written(command: str) -> Iterator[str]:
    """Files and folders that a command writes."""
    parts = words(command)
    for option, word in pairwise(parts):
        if option == ">" or (option in WRITES and parts[1] not in READ_RECORDS):
            yield word


def files_of_blocks(text: str) -> Iterator[tuple[str, str]]:
    """(Name, content) of fenced blocks that are introduced with one: in their title, in the remark
    that they begin with, or in the paragraph before them, if that ends in a colon."""
    for block in FENCE.finditer(text):
        paragraph = text[: block.start()].rstrip().rpartition("\n\n")[2]
        first = block[2].partition("\n")[0]
        names = re.findall(r'title="([^"]+)"', block[1])
        names += re.findall(r"^#\s*([\w./-]+)", first)
        if not names and paragraph.endswith(":") and not COMMAND.search(paragraph):
            names = re.findall(r"`([\w./-]+)`", paragraph)
        for name in names:
            if SUFFIX.search(name):
                yield name, block[2]


def folders_named(text: str) -> list[Path]:
    """Folders of examples that the last paragraph with any names."""
    named = [part for part in text.split("\n\n") if FOLDER.search(part)]
    return [tree.ROOT / name for part in named[-1:] for name in FOLDER.findall(part)]


def is_written_by_script(name: str, blocks: dict[str, str], before: str) -> bool:
    """Whether a script of the page, that was run before, names this file."""
    return any(
        script.endswith(".py") and f"python {script}" in before and name in content
        for script, content in blocks.items()
    )


def files_not_given(page: Path, text: str) -> Iterator[str]:
    """Files of the commands of a page that nothing gives to its readers."""
    blocks = dict(files_of_blocks(text))
    written: set[str] = set()
    for found in COMMAND.finditer(text):
        before = text[: found.start()]
        folders = folders_named(before)
        for name in files_read(found[1]):
            name = name.rstrip("/")
            is_given = name in READERS_OWN or name in written or name in blocks
            is_given |= name.startswith("examples/") and (tree.ROOT / name).exists()
            is_given |= any((folder / name).exists() for folder in folders)
            if not is_given and not is_written_by_script(name, blocks, before):
                yield f"{page.name}: {name} is not given"
        written.update(name.rstrip("/") for name in files_written(found[1]))


def test_files_of_commands_are_given() -> None:
    pages = [tree.ROOT / "README.md", *sorted((tree.ROOT / "docs").rglob("*.md"))]
    assert not [line for page in pages for line in files_not_given(page, tree.read(page))]


def check(text: str) -> list[str]:
    """Files that a page of this text does not give."""
    found = files_not_given(tree.ROOT / "docs" / "page.md", text)
    return [line.removeprefix("page.md: ").removesuffix(" is not given") for line in found]


READ = "    stowplan simulate --config kai.yaml -f manifests\n"
BLOCK = "scheduler: kai\n```\n"


def test_files_of_an_examples_folder_are_given() -> None:
    assert check(READ) == ["kai.yaml", "manifests"]
    assert not check(f"In `examples/queues/kai/`:\n\n{READ}")
    assert not check("    stowplan simulate examples/simulate/nodes.csv\n")
    # Of another folder, of one that is named afterwards, and of one with other files.
    assert check(f"In `examples/queues/kai/`.\n\nIn `examples/queues/kueue/`:\n\n{READ}")
    assert check(f"{READ}\nThey are in `examples/queues/kai/`.\n") == ["kai.yaml", "manifests"]
    assert check(f"In `examples/queues/kueue/`:\n\n{READ}") == ["kai.yaml", "manifests"]
    assert check("    stowplan simulate examples/gone.yaml\n") == ["examples/gone.yaml"]


def test_files_of_blocks_are_given() -> None:
    command = "    stowplan config check kai.yaml\n"
    for block in ('```yaml title="kai.yaml"\n', "```yaml\n# kai.yaml\n"):
        assert not check(f"{block}{BLOCK}\n{command}")
    assert not check(f"This is `kai.yaml`:\n\n```yaml\n{BLOCK}\n{command}")
    # A block without a name, one of another, and a name without a block.
    assert check(f"```yaml\n{BLOCK}\n{command}") == ["kai.yaml"]
    assert check(f'```yaml title="kay.yaml"\n{BLOCK}\n{command}') == ["kai.yaml"]
    assert check(f"You need a file `kai.yaml`, see elsewhere.\n\n{command}") == ["kai.yaml"]
    assert check(f"Save it as `kai.yaml`:\n\n{command}") == ["kai.yaml"]
    assert check(f"{command}\n`kai.yaml` has this.\n\n```yaml\n{BLOCK}") == ["kai.yaml"]


def test_files_that_commands_have_written_are_given() -> None:
    reads = "    stowplan simulate -f prod --record a.rec\n"
    writes = "    stowplan import volcano --save prod\n"
    assert check(reads) == ["prod"]
    assert not check(writes + reads)
    assert check(reads + writes) == ["prod"]
    assert not check(f"{writes}{reads}    stowplan replay a.rec\n")
    assert check("    stowplan replay a.rec\n") == ["a.rec"]
    assert check("    stowplan explain p --record a.rec --at 5m\n") == ["a.rec"]
    assert not check("    kubectl get pods -o yaml > a.yaml\n    stowplan simulate a.yaml\n")


def test_every_kind_of_file_is_looked_for() -> None:
    options = {
        "simulate": ("-f", "--cluster", "--config", "--plugin", "--extender", "--autoscale"),
        "what-if": ("--changes", "--submit", "--base-config"),
        "experiment": ("--traces",),
    }
    for verb, names in options.items():
        for option in names:
            assert check(f"    stowplan {verb} {option} given\n") == ["given"], option
    assert check("    kubectl apply -f a.yaml -f b.yaml     # both\n") == ["a.yaml", "b.yaml"]
    assert check("$ stowplan simulate \\\n        -f a.yaml\n") == ["a.yaml"]
    assert check("    .venv/bin/stowplan simulate a.csv.gz -o wide\n") == ["a.csv.gz"]
    assert not check("    stowplan explain web --changes -o json\n    kubectl apply -f -\n")
    assert not check("    stowplan simulate dump.yaml --kubeconfig ~/.kube/config\n")
    assert not check("    stowplan simulate a.yaml   # your own manifests\n")


def test_every_file_of_the_reader_is_named_somewhere() -> None:
    pages = [tree.ROOT / "README.md", *sorted((tree.ROOT / "docs").rglob("*.md"))]
    commands = [found[1] for page in pages for found in COMMAND.finditer(tree.read(page))]
    assert not {*READERS_OWN} - {name for one in commands for name in files_read(one)}
