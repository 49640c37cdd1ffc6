"""Old public names work for one release, each with a DeprecationWarning that names the new one."""

import subprocess
import sys
import warnings
from importlib import import_module
from types import SimpleNamespace

import pytest

from stowplan import _deprecated
from stowplan._deprecated import deprecated_method, deprecated_property
from stowplan.batch.session import Session
from stowplan.batch.state.nodes import NodeLedger
from stowplan.columns import NodeTable
from stowplan.driver.blocking_queue import BlockingQueue, task
from stowplan.framework import ObjectStore, Snapshot
from stowplan.framework.handle_state import HandleState
from stowplan.inputs.cluster_reader import Cluster

# Modules with a table of old names; importing them fills `_deprecated.NAMES` and `MODULES`.
TABLES = [
    "stowplan.batch",
    "stowplan.framework",
    "stowplan.framework.clusterevents",
    "stowplan.framework.plugin",
    "stowplan.framework.runtime",
    "stowplan.queue",
    "stowplan.testing",
]
for module in TABLES:
    import_module(module)
# What the packages exported before the names changed, as far as it has another name now.
FORMERLY = {
    "stowplan.batch": {"Action", "Policy"},
    "stowplan.framework": {"World"},
    "stowplan.queue": {"Hints", "Place", "Worth", "in_ns"},
    "stowplan.testing": {
        "BatchCheck",
        "Scene",
        "batch_checks",
        "check_batch_policy",
        "scene",
    },
}
OLD_NAMES = [(module, old) for module, names in _deprecated.NAMES.items() for old in names]
OLD_PATHS = sorted(_deprecated.MODULES)


def test_every_table_is_walked() -> None:
    assert sorted(_deprecated.NAMES) == TABLES


@pytest.mark.parametrize("module", FORMERLY)
def test_what_was_exported_still_is(module: str) -> None:
    assert FORMERLY[module] <= set(_deprecated.NAMES[module])


@pytest.mark.parametrize(("module", "old"), OLD_NAMES)
def test_old_name(module: str, old: str) -> None:
    target, _, new = _deprecated.NAMES[module][old].rpartition(":")
    with pytest.warns(DeprecationWarning, match=rf"^{module}\.{old} .*; use .*\b{new}$"):
        value = getattr(import_module(module), old)
    assert value is getattr(import_module(target or module), new)


@pytest.mark.parametrize("path", OLD_PATHS)
def test_old_path(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = _deprecated.MODULES[path]
    parent, _, leaf = path.rpartition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_module(parent)
    monkeypatch.delitem(sys.modules, path, raising=False)
    with pytest.warns(DeprecationWarning, match=rf"^{path} .*; use {moved.target}$"):
        module = import_module(path)
    monkeypatch.delattr(sys.modules[parent], leaf)
    current = import_module(moved.target)
    assert module.__doc__ == f"Deprecated: use `{moved.target}`."
    for old, new in moved.names.items():
        assert getattr(module, old) is getattr(current, new)
    for name in getattr(current, "__all__", [n for n in vars(current) if n[0].isalpha()]):
        assert getattr(module, name) is getattr(current, name)


def test_statements_of_a_plugin_written_before() -> None:
    """In a process of its own, with the import statements that documentation showed."""
    text = """
from stowplan.batch import Action, Policy, Session
from stowplan.batch.jobs import Job, Task
from stowplan.framework import World
from stowplan.framework.clusterevents import POD, Action as Verb, EventWithHint, on
from stowplan.framework.runtime import Handle
from stowplan.testing import check_batch_policy, scene
from stowplan.testing.make import pod
import stowplan.batch.policies.gang
print(Policy.__name__, Task.__name__, World.__name__, stowplan.batch.policies.gang.Gang.__name__)
"""
    run = subprocess.run(
        [sys.executable, "-W", "always::DeprecationWarning", "-c", text],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "SessionPlugin TaskInfo ObjectStore GangPlugin\n"
    # Each warning points at the statement, not into Stowplan or importlib.
    lines = [line for line in run.stderr.splitlines() if "DeprecationWarning" in line]
    assert len(lines) >= 8
    assert all(line.startswith("<string>:") for line in lines), run.stderr


def test_unknown_names_and_paths_stay_errors() -> None:
    with pytest.raises(AttributeError, match=r"module 'stowplan\.framework' has no attribute 'W'"):
        import_module("stowplan.framework").W  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        import_module("stowplan.framework.worlds")


@pytest.mark.parametrize("holder", [HandleState(), Snapshot(NodeTable(), ObjectStore())])
def test_old_name_of_the_object_store_of_handle_and_snapshot(
    holder: HandleState | Snapshot,
) -> None:
    with pytest.warns(DeprecationWarning, match=r"world is deprecated .*; use object_store$"):
        assert holder.world is holder.object_store


def test_old_name_of_the_object_store_of_a_cluster() -> None:
    cluster = Cluster([], [])
    with pytest.warns(
        DeprecationWarning, match=r"Cluster\.world is deprecated .*; use object_store$"
    ):
        assert isinstance(cluster.world(), ObjectStore)


def test_working_of_a_session() -> None:
    session = Session.__new__(Session)
    session.state = object()
    with pytest.warns(DeprecationWarning, match=r"Session\.working is deprecated .*; use state$"):
        assert session.working is session.state


def test_names_of_the_node_ledger() -> None:
    nodes = NodeLedger.__new__(NodeLedger)
    nodes.revision = 7
    with pytest.warns(DeprecationWarning, match="use revision$"):
        assert nodes.state == 7
    with pytest.warns(DeprecationWarning, match="use has_ready_node$"):
        assert not nodes.is_there(-1)


def test_old_name_of_requeue() -> None:
    queue = BlockingQueue.of_tasks()
    queue.add(task("mail-7"))
    entry = queue.pop()
    with pytest.warns(DeprecationWarning, match="use add_unschedulable_if_not_present$"):
        assert queue.put_back(entry, refused_by={"quota"}) == ""
    assert queue.pop(timeout_s=0) is None


def test_property_and_method_name_the_class_and_the_caller() -> None:
    class Holder(SimpleNamespace):
        old = deprecated_property("old", "new")
        call = deprecated_method("call", "run")

        def run(self, number: int) -> int:
            return number + 1

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        answers = Holder(new=3).old, Holder().call(1)
    assert answers == (3, 2)
    assert [str(warning.message).partition(" ")[0] for warning in seen] == [
        "Holder.old",
        "Holder.call",
    ]
    assert [warning.filename for warning in seen] == [__file__, __file__]
