"""What a start with the default profile imports: nothing that only other profiles, sessions or
devices with selectors need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stowplan.assembly import IN_TREE, configuration_of, registry
from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.assembly.plugin_classes import PluginClasses
from stowplan.framework import ConfigError, ContractError, Registry

LATER = (
    "stowplan.plugins.v1_13",
    "stowplan.plugins.yoda",
    "stowplan.plugins.gpu_share",
    "stowplan.plugins.pod_groups",
    "stowplan.cel",
    "stowplan.apis.schema",
    "importlib.metadata",
    "importlib.resources",
    "numba",
)
OF_SESSIONS = (
    "stowplan.batch.queue_models",
    "stowplan.batch.actions",
    "stowplan.kube_batch_v05",
    "stowplan.assembly.sessions",
)
BUILD = (
    "from stowplan.assembly.deciders import ConfigText, deciders_of\n"
    "from stowplan.assembly.watched_kinds import kinds_read\n"
    "deciders = deciders_of({files})\n"
    "scheduler = deciders.scheduler()\n"
    "assert kinds_read(deciders)\n"
)
ONE_POD = (
    "from stowplan.messages.effects import Bind\n"
    "from stowplan.messages.events import NodeAdded, PodAdded\n"
    "from stowplan.objects.meta import ObjectMeta\n"
    "from stowplan.objects.node import Node, NodeStatus\n"
    "from stowplan.objects.pod import Container, Pod, PodSpec\n"
    "node = Node(ObjectMeta('n'), status=NodeStatus(allocatable={{'pods': '1'}}))\n"
    "pod = Pod(ObjectMeta('p', 'default', 'u'), PodSpec((Container('c'),)))\n"
    "effects = scheduler.handle([NodeAdded(node), PodAdded(pod)], 0)\n"
    "assert any(isinstance(effect, Bind) for effect in effects)\n"
)
LOADED = "import sys\nprint(*sorted(sys.modules), sep='\\n')\n"
PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: %s}]}}
"""


def imported(program: str, files: str = "()") -> list[str]:
    """The modules that a new process has imported after a program. files: configuration files."""
    ran = subprocess.run(
        [sys.executable, "-c", program.format(files=files) + LOADED],
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.split()


def below(found: list[str], packages: tuple[str, ...]) -> list[str]:
    """The modules of these packages."""
    return [one for one in found for name in packages if f"{one}.".startswith(f"{name}.")]


def test_the_first_decision_imports_nothing_of_other_profiles() -> None:
    found = imported(BUILD + ONE_POD)
    assert below(found, (*LATER, *OF_SESSIONS)) == []


def test_the_live_scheduler_imports_nothing_of_them_either() -> None:
    found = imported("import stowplan.driver.live.scheduler_server\n" + BUILD)
    # The HTTP client reads the metadata of installed packages.
    ours = tuple(name for name in (*LATER, *OF_SESSIONS) if name.startswith("stowplan."))
    assert below(found, ours) == []


def test_a_process_that_serves_nothing_imports_no_http_library() -> None:
    assert below(imported("import stowplan.driver.process\n"), ("aiohttp", "yarl")) == []
    served = imported("import stowplan.driver.http.status_server\n")
    assert "aiohttp.web" in served


def test_control_a_profile_that_names_a_plugin_imports_it() -> None:
    text = PROFILE % "GpuShare"
    found = imported(BUILD, f"[ConfigText({text!r}, 'file')]")
    assert below(found, ("stowplan.plugins.gpu_share",))
    others = ("stowplan.plugins.v1_13", "stowplan.plugins.yoda", "stowplan.cel")
    assert below(found, others) == []


def test_every_listed_plugin_exists_under_its_name() -> None:
    shipped = registry()
    assert list(shipped) == list(IN_TREE)
    assert len(shipped) == len(IN_TREE) > 60
    for name, plugin in IN_TREE.items():
        entry = shipped[name]
        assert (entry.name, entry.plugin, entry.in_tree) == (name, plugin, True)


def test_a_plugin_listed_under_a_wrong_name_is_refused() -> None:
    classes = PluginClasses({}, {"Yoda": "yoda.yoda"}, "stowplan.plugins")
    with pytest.raises(ContractError, match="expected 'Yoda', as it is listed"):
        Registry(shipped=classes)["Yoda"]


def test_names_are_known_without_an_import() -> None:
    classes = PluginClasses({}, {"Missing": "no.such_module"}, "stowplan.plugins")
    full = Registry(shipped=classes)
    assert "Missing" in full
    assert "Other" not in full
    assert (list(full), len(full), full.third_party()) == (["Missing"], 1, ())
    assert full.get("Other") is None
    with pytest.raises(ModuleNotFoundError):
        full["Missing"]


def test_a_plugin_of_ones_own_may_not_take_the_name_of_one_that_is_not_imported() -> None:
    class Mine:
        name = "GpuTopology"

        def score(self, state: object, pod: object, nodes: object, rows: object) -> int:
            return 0

    with pytest.raises(ContractError, match="GpuTopology"):
        registry().register(Mine)


def test_an_unknown_plugin_is_refused_with_names_that_are_near() -> None:
    with pytest.raises(ConfigError, match="near it: GpuShare"):
        configuration_of(PROFILE % "GpuShara", "file")


def test_a_file_of_1_13_finds_its_rules() -> None:
    text = '{"apiVersion": "v1", "kind": "Policy", "predicates": [{"name": "HostName"}]}'
    configuration = deciders_of([ConfigText(text, "file")]).configuration
    (profile,) = configuration.profiles.values()
    assert "HostName" in profile.plugin_names()
