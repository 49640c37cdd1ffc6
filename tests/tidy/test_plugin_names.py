"""No module outside the plugins names an in-tree plugin, neither its class nor its registered name.

What a module has to know of a plugin is a field of the plugin's declaration.
"""

import ast

from stowplan.assembly.in_tree import IN_TREE
from tests.tidy import tree

CLASSES = {plugin.__name__ for plugin in IN_TREE.values()}

MAY_NAME_PLUGINS = {
    "src/stowplan/plugins/": "the plugins themselves",
    "src/stowplan/assembly/in_tree.py": "the registry list",
    "src/stowplan/assembly/v1_13.py": "the registry list of the rules of Kubernetes 1.13",
    "src/stowplan/assembly/sessions/kai_volumes.py": "the plugin that KAI asks about volumes",
    "src/stowplan/assembly/sessions/volcano_rules.py": "plugins that Volcano's arguments concern",
    "src/stowplan/config/": "defaults, and the names that Policy files use",
    "src/stowplan/conformance/": "recorded answers contain the state of single plugins",
    "src/stowplan/insight/changes/node_problems.py": "what helps is particular to the rule",
    "src/stowplan/kubelet/pod_admit_handler.py": "the kubelet's reasons for rejecting a pod",
    "src/stowplan/benchmarks/cases/device_cases.py": "a benchmark of one plugin",
    "src/stowplan/driver/kernel_warming.py": "kernels that are compiled for one plugin",
    "src/stowplan/experiments/gpu_sharing/experiment.py": "an experiment with one plugin",
    "src/stowplan/benchmarks/cases/scheduler_perf_cases.py": "a feature gate is named so, too",
}


def named_plugins(source: str) -> list[str]:
    """The in-tree plugins that a module names: imported classes, and strings that are names."""
    found = []
    for item in tree.nodes(source, ast.ImportFrom, ast.Constant):
        if isinstance(item, ast.ImportFrom) and (item.module or "").startswith("stowplan.plugins"):
            found += [alias.name for alias in item.names if alias.name in CLASSES]
        elif isinstance(item, ast.Constant) and item.value in IN_TREE:
            found.append(str(item.value))
    return found


def may_name_plugins(path: str) -> str:
    """The entry of the table that a file falls under, "" for none."""
    return next((entry for entry in MAY_NAME_PLUGINS if path.startswith(entry)), "")


def test_only_listed_modules_name_plugins() -> None:
    problems = [
        f"{tree.name(path)}: names {', '.join(found)}; declare a field of the plugin instead"
        for path in tree.python("src")
        if not may_name_plugins(tree.name(path)) and (found := named_plugins(tree.read(path)))
    ]
    assert not problems, tree.report(problems)


def test_the_list_has_no_entry_too_many() -> None:
    used = {
        may_name_plugins(tree.name(path))
        for path in tree.python("src")
        if named_plugins(tree.read(path))
    }
    assert not MAY_NAME_PLUGINS.keys() - used


def test_a_module_that_names_a_plugin_is_found() -> None:
    imports = "from stowplan.plugins.node_name import NodeName\n"
    assert named_plugins(imports) == ["NodeName"]
    assert named_plugins('CROSS = "PodTopologySpread"\n') == ["PodTopologySpread"]
    assert named_plugins("from stowplan.objects.pod import NodeAffinity\n") == []
