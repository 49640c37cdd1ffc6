"""Old public names work for one release, each with a DeprecationWarning that names the new one."""

import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from stowplan import _deprecated
from stowplan._deprecated import deprecated_method, deprecated_property
from stowplan.batch.session import Session, SessionOptions
from stowplan.batch.session_plugins.gang import GangPlugin
from stowplan.batch.state.jobs import JobInfo
from stowplan.batch.state.nodes import SessionNodes
from stowplan.batch.tiers import Hooks, SessionPluginUse
from stowplan.columns import NodeTable
from stowplan.driver.blocking_queue import BlockingQueue, task
from stowplan.framework import (
    OK,
    CycleState,
    Framework,
    ObjectStore,
    Pod,
    Registry,
    Snapshot,
    Status,
)
from stowplan.framework.handle_state import HandleState
from stowplan.framework.plugin import AppliesToPlugin, KernelTermsPlugin
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.input_error import InputError
from stowplan.queue import QueueOptions
from stowplan.testing import generate_cluster, pod

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
# Modules of the public packages before they were renamed, and what pages told authors to import.
PATHS_BEFORE = [
    "stowplan.batch",
    "stowplan.batch.jobs",
    "stowplan.driver.blocking_queue",
    "stowplan.framework.binding",
    "stowplan.framework.clusterevents",
    "stowplan.framework.decider",
    "stowplan.framework.diagnosis",
    "stowplan.framework.gates",
    "stowplan.framework.joined",
    "stowplan.framework.member",
    "stowplan.framework.metrics",
    "stowplan.framework.nominated",
    "stowplan.framework.parts",
    "stowplan.framework.plugin",
    "stowplan.framework.points",
    "stowplan.framework.priorities",
    "stowplan.framework.prioritize",
    "stowplan.framework.problems",
    "stowplan.framework.profile",
    "stowplan.framework.registry",
    "stowplan.framework.review",
    "stowplan.framework.rules",
    "stowplan.framework.runtime",
    "stowplan.framework.sessions",
    "stowplan.framework.shared",
    "stowplan.framework.snapshot",
    "stowplan.framework.state",
    "stowplan.framework.status",
    "stowplan.framework.timed",
    "stowplan.framework.touched",
    "stowplan.framework.verdicts",
    "stowplan.framework.world",
    "stowplan.testing.after_choice",
    "stowplan.testing.changes",
    "stowplan.testing.check_batch_policy",
    "stowplan.testing.check_plugin",
    "stowplan.testing.contents",
    "stowplan.testing.dice",
    "stowplan.testing.draw",
    "stowplan.testing.generate",
    "stowplan.testing.generate_batch",
    "stowplan.testing.generate_world",
    "stowplan.testing.heard_events",
    "stowplan.testing.history",
    "stowplan.testing.make",
    "stowplan.testing.session_judge",
    "stowplan.testing.strategies",
    "stowplan.testing.trial",
]


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
    # A module of the same name as a function would hide that.
    delattr(sys.modules[parent], leaf)
    del sys.modules[path]
    current = import_module(moved.target)
    assert module.__doc__ == f"Deprecated: use `{moved.target}`."
    for old, new in moved.names.items():
        target, _, name = new.rpartition(":")
        assert getattr(module, old) is getattr(import_module(target or moved.target), name)
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


def test_every_module_of_the_public_packages_is_importable() -> None:
    paths = {path for path in PATHS_BEFORE if not find_spec_quietly(path)}
    assert not paths


def find_spec_quietly(path: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return find_spec(path) is not None


def test_a_module_named_like_its_function() -> None:
    """In a process of its own: the package exported the function under the module's name."""
    text = """
from stowplan.testing.check_batch_policy import BatchCheck, check_batch_policy as inner
from stowplan.testing import check_batch_policy
from stowplan.batch.session_plugins.gang import GangPlugin
check_batch_policy(GangPlugin, seeds=range(1))
print(BatchCheck.__name__, inner.__name__)
"""
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert run.stdout == "SessionPluginCheck check_session_plugin\n"


KEYWORD_CALLS: dict[str, tuple[Callable[..., object], dict[str, object]]] = {
    "stowplan.batch.session.SessionOptions": (SessionOptions, {"tiers": (), "actions": ()}),
    "stowplan.batch.tiers.Hooks.register": (
        Hooks(((SessionPluginUse("gang"),),)).register,
        {"kind": "job_order", "function": lambda first, second: 0},
    ),
    "stowplan.framework.snapshot.Snapshot": (Snapshot, {"nodes": NodeTable()}),
    "stowplan.inputs.input_error.InputError": (
        InputError,
        {"source": "a.yaml", "place": "", "got": "5"},
    ),
    "stowplan.queue.options.QueueOptions": (QueueOptions, {}),
    "stowplan.testing.generators.scenes.generate_cluster": (generate_cluster, {}),
}
KEYWORD_VALUES: dict[str, Callable[[], object]] = {
    "dice": lambda: np.random.default_rng(1),
    "flush_leftover_s": lambda: 7,
    "max_parked_s": lambda: 90,
    "policies": lambda: {"gang": GangPlugin},
    "policy": lambda: "gang",
    "wanted": lambda: "a string",
    "world": ObjectStore,
}
OLD_KEYWORDS = [(title, old) for title, names in _deprecated.KEYWORDS.items() for old in names]


def test_every_old_keyword_is_tried() -> None:
    assert sorted(_deprecated.KEYWORDS) == sorted(KEYWORD_CALLS)
    assert {old for _, old in OLD_KEYWORDS} == set(KEYWORD_VALUES)


@pytest.mark.parametrize(("title", "old"), OLD_KEYWORDS)
def test_old_keyword(title: str, old: str) -> None:
    function, others = KEYWORD_CALLS[title]
    new = _deprecated.KEYWORDS[title][old]
    value = KEYWORD_VALUES[old]()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        answer = function(**others, **{old: value})
    (warning,) = seen
    assert issubclass(warning.category, DeprecationWarning)
    assert warning.filename == __file__
    assert re.search(rf"\({old}=\) is deprecated .*; use {new}$", str(warning.message))
    expected = function(**others, **{new: KEYWORD_VALUES[old]() if old == "dice" else value})
    if isinstance(answer, InputError):
        assert str(answer) == str(expected) == "a.yaml: Invalid value: 5: expected a string"
    elif hasattr(answer, new):
        assert getattr(answer, new) is value
    else:
        assert answer == expected
    with (
        pytest.raises(TypeError, match="multiple values"),
        pytest.warns(DeprecationWarning, match="="),
    ):
        function(**others, **{old: value, new: value})


def test_structs_of_renamed_fields_are_decoded_by_the_new_names() -> None:
    decoded = msgspec.json.decode(b'{"flush_unschedulable_s": 5}', type=QueueOptions)
    assert decoded == QueueOptions(flush_unschedulable_s=5)
    with pytest.raises(msgspec.ValidationError, match="unknown field `max_parked_s`"):
        msgspec.json.decode(b'{"max_parked_s": 5}', type=QueueOptions)
    with pytest.raises(TypeError, match="nonsense"):
        QueueOptions(nonsense=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("holder", "old", "new"),
    [
        (Session, "dice", "rng"),
        (Session, "choices", "best_nodes"),
        (Session, "complaints", "fit_error_texts"),
        (Session, "stuck", "failed_turns"),
        (Session, "working", "state"),
        (Session, "policies", "plugins"),
        (JobInfo, "complaint", "fit_errors"),
    ],
)
def test_old_attribute(holder: type, old: str, new: str) -> None:
    one = holder.__new__(holder)
    match = rf"^{holder.__name__}\.{old} is deprecated .*; use {new}$"
    with pytest.warns(DeprecationWarning, match=match):
        setattr(one, old, "first")
    assert getattr(one, new) == "first"
    setattr(one, new, "second")
    with pytest.warns(DeprecationWarning, match=match):
        assert getattr(one, old) == "second"


def test_old_attributes_of_options() -> None:
    queue = QueueOptions(max_in_unschedulable_pods_s=90, flush_unschedulable_s=7)
    with pytest.warns(DeprecationWarning, match="use max_in_unschedulable_pods_s$"):
        assert queue.max_parked_s == 90
    with pytest.warns(DeprecationWarning, match="use flush_unschedulable_s$"):
        assert queue.flush_leftover_s == 7
    with pytest.warns(DeprecationWarning, match="use plugins$"):
        assert SessionOptions((), (), {}).policies == {}


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


def test_old_names_of_the_nodes_of_a_session() -> None:
    nodes = SessionNodes.__new__(SessionNodes)
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


def test_goes_straight() -> None:
    framework = Framework.__new__(Framework)
    framework._idle_when_skipped = frozenset({"a"})
    state = CycleState()
    with pytest.warns(DeprecationWarning, match="use binds_directly$"):
        assert not framework.goes_straight(state)
    state.skip_filter.add("a")
    assert framework.binds_directly(state)


class WithOldMethods:
    name = "WithOldMethods"

    def filter(self, pod: Pod) -> Status:
        return OK

    def concerns(self, pod: Pod) -> bool:
        return pod.name == "mine"

    def parts(self, pod: Pod) -> None:
        return None


class WithNewMethods:
    name = "WithNewMethods"

    def filter(self, pod: Pod) -> Status:
        return OK

    def applies_to(self, pod: Pod) -> bool:
        return pod.name == "mine"

    def kernel_terms(self, pod: Pod) -> None:
        return None


@pytest.mark.parametrize("plugin", [WithOldMethods, WithNewMethods])
def test_renamed_methods_of_plugins(plugin: type) -> None:
    registry = Registry()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        registry.register(plugin)
    where = f"plugin class {__name__}.WithOldMethods"
    expected = [
        f"{where}: method `concerns` is deprecated, use `applies_to`",
        f"{where}: method `parts` is deprecated, use `kernel_terms`",
    ]
    assert [str(one.message) for one in seen] == (expected if plugin is WithOldMethods else [])
    member = RegisteredPlugin(plugin.__name__, plugin(), 1, in_tree=False)
    assert member.call("applies_to", pod("mine"))
    assert not member.call("applies_to", pod("other"))
    assert member.call("kernel_terms", pod("mine"), None, None) is None
    assert isinstance(WithNewMethods(), AppliesToPlugin)
    assert isinstance(WithNewMethods(), KernelTermsPlugin)


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
