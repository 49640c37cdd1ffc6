"""The examples of docs/plugins.md: type-checked, and run as a user would run them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from stowplan.assembly.build import configuration_of, scheduler_for
from stowplan.assembly.plugin_files import plugins_of_file
from stowplan.messages.effects import Bind
from stowplan.messages.events import NodeAdded, PodAdded
from stowplan.testing import node, pod
from tests.cli.run import check_one_line, run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text()
PYTHON = re.findall(r"```python[^\n]*\n(.*?)```", PAGE, re.DOTALL)
YAML = re.findall(r"```yaml[^\n]*\n(.*?)```", PAGE, re.DOTALL)
TOML = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
TEAM, ARRAYS, PRIORITIES, NEAR_GPU, LOCAL_DISK, QUOTA, GANG, PAIRS, TESTS = PYTHON

EXAMPLES = {
    "rules.py": TEAM,
    "arrays.py": ARRAYS,
    "priorities.py": PRIORITIES,
    "near_gpu.py": NEAR_GPU,
    "local_disk.py": LOCAL_DISK,
    "quota.py": QUOTA,
    "gang.py": GANG,
    "rack_pairs.py": PAIRS,
}
"""The complete examples by a file name of their own."""

NODE = "kind: Node\napiVersion: v1\nmetadata: {name: %s}\nstatus: {allocatable: {%spods: '110'}}\n"
POD = (
    "---\nkind: Pod\napiVersion: v1\nmetadata: {name: p%d, labels: {team: a}}\n"
    "spec: {containers: [{name: c}]}\n"
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with all the examples, which is where commands are run."""
    for name, text in EXAMPLES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "test_rules.py").write_text(TESTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def simulated(here: Path, cluster: str, *more: str) -> dict[str, Any]:
    (here / "cluster.yaml").write_text(cluster)
    ran = run("simulate", "--cluster", "cluster.yaml", *more, "-o", "json", "--out", "out")
    assert ran.code == 0, ran.err
    result: dict[str, Any] = json.loads(ran.out)
    return result


def homes(here: Path) -> list[str]:
    lines = (here / "out" / "placements.jsonl").read_text().splitlines()
    return [json.loads(line).get("node", "") for line in lines]


@pytest.mark.slow
def test_every_example_passes_mypy(here: Path) -> None:
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")),
            *("--cache-dir", str(ROOT / ".mypy_cache"), *EXAMPLES, "test_rules.py"),
        ],
        capture_output=True,
        text=True,
        cwd=here,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_passes_its_check(name: str, here: Path) -> None:
    ran = run("plugin", "check", name)
    assert ran.code == 0, ran
    assert "checks passed" in ran.out


@pytest.mark.slow
def test_the_test_runs(here: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_rules.py"],
        capture_output=True,
        text=True,
        cwd=here,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert ran.returncode == 0, ran.stdout


def test_the_function_decides(here: Path) -> None:
    theirs = NODE % ("theirs", "")
    ours = theirs.replace("{name: theirs}", "{name: ours, labels: {team: a}}")
    simulated(here, theirs + "---\n" + ours + POD % 0 + POD % 1, "--plugin", "rules.py")
    assert homes(here) == ["ours", "ours"]
    explained = run(
        *("explain", "p0", "--cluster", "cluster.yaml", "--plugin", "rules.py", "-o", "json")
    )
    (best, other) = json.loads(explained.out)["scores"]
    assert best["plugins"]["team-first"] == {"raw": 100, "weight": 2, "final": 200}
    assert other["plugins"]["team-first"]["final"] == 0


def test_the_functions_over_arrays_decide(here: Path) -> None:
    nodes = NODE % ("gpu", "nvidia.com/gpu: '4', memory: 64Gi, ") + "---\n"
    nodes += NODE % ("small", "memory: 1Gi, ") + "---\n" + NODE % ("big", "memory: 4Gi, ")
    needy = POD.replace("{name: c}", "{name: c, resources: {requests: {memory: 512Mi}}}")
    # Off the GPU node; what is left of its memory, in percent, decides between the other two.
    simulated(here, nodes + needy % 0 + needy % 1 + needy % 2, "--plugin", "arrays.py")
    assert "gpu" not in homes(here)
    assert sorted(homes(here)) == ["big", "big", "small"]
    only = simulated(here, nodes.split("---")[0] + POD % 0, "--plugin", "arrays.py")
    assert only["failed"] == {"node(s) were kept for pods that need a GPU": 1}


def test_the_priorities_decide(here: Path) -> None:
    nodes = NODE % ("n1", "") + "---\n" + NODE % ("n2", "") + "---\n" + NODE % ("n3", "")
    pods = "".join(
        POD.replace("{name: c}", f"{{name: c, image: i{image}}}") % index
        for index, image in enumerate((1, 1, 1, 2, 2, 2))
    )
    simulated(here, nodes + pods, "--plugin", "priorities.py")
    placed = homes(here)
    assert sorted(placed[:3]) == sorted(placed[3:]) == ["n1", "n2", "n3"]


def test_the_class_decides(here: Path) -> None:
    cluster = NODE % ("n", "nvidia.com/gpu: '4', ") + POD % 0
    result = simulated(here, cluster, "--plugin", "near_gpu.py")
    assert result["failed"] == {"node(s) were kept for pods that need a GPU": 1}


def test_the_one_with_arguments_holds_its_quota(here: Path) -> None:
    (here / "quota.yaml").write_text(YAML[0])
    cluster = NODE % ("n", "") + "".join(POD % index for index in range(5))
    result = simulated(here, cluster, "--plugin", "quota.py", "--config", "quota.yaml")
    assert result["placed"] == 3
    assert result["failed"] == {"the team's quota is used up": 2}
    (here / "quota.yaml").write_text(YAML[0].replace("podsPerTeam: 3", "podsPerTeams: 3"))
    ran = run("simulate", "--plugin", "quota.py", "--config", "quota.yaml")
    check_one_line(ran, "pluginConfig[0].args.podsPerTeams", "did you mean 'podsPerTeam'?")


GROUP_GATES = (
    "--feature-gates",
    "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true",
)
GROUP = """---
kind: PodGroup
apiVersion: scheduling.k8s.io/v1alpha2
metadata: {name: g}
spec: {schedulingPolicy: {gang: {minCount: 3}}}
"""
MEMBER = POD.replace("containers", "schedulingGroup: {podGroupName: g}, containers").replace(
    "{name: c}", "{name: c, resources: {requests: {memory: 3Gi}}}"
)
OWN_PLACEMENTS = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
""" + re.findall(r"\n    (profiles:\n(?:    .*\n)+)", PAGE)[-1].replace("\n    ", "\n")


def in_racks(*racks: str) -> str:
    made = (
        NODE.replace("{name: %s}", f"{{name: %s, labels: {{example.com/rack: {rack}}}}}")
        for rack in racks
    )
    return "---\n".join(one % (f"n{i}", "memory: 4Gi, ") for i, one in enumerate(made))


def test_a_group_goes_to_two_racks(here: Path) -> None:
    (here / "own.yaml").write_text(OWN_PLACEMENTS)
    cluster = in_racks("a", "b", "c", "c") + GROUP + "".join(MEMBER % i for i in range(3))
    simulated(here, cluster, "--config", "own.yaml", "--plugin", "rack_pairs.py", *GROUP_GATES)
    assert sorted(homes(here)) == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("racks: dict", "raise KeyError('x'); racks: dict", "generate_placements raised KeyError"),
        ("np.array(racks[a] + racks[b])", "np.array([99])", "returned rows [99] in 'a and b'"),
        ("return 100 *", "return 500 *", "expected a score from 0 to 100"),
        ("return 100 *", "return None and 0 *", "returned None; expected a whole number"),
    ],
)
def test_wrong_placements_fail_the_group_alone(
    here: Path, right: str, wrong: str, message: str
) -> None:
    (here / "own.yaml").write_text(OWN_PLACEMENTS)
    assert right in PAIRS
    (here / "rack_pairs.py").write_text(PAIRS.replace(right, wrong))
    cluster = in_racks("a", "b", "b", "c") + GROUP + "".join(MEMBER % i for i in range(3))
    found = simulated(
        here,
        cluster + POD % 9,
        *("--config", "own.yaml", "--plugin", "rack_pairs.py", *GROUP_GATES),
    )
    (reason,) = found["failed"]
    assert message in reason
    assert [bool(node) for node in homes(here)] == [False, False, False, True]


def test_a_gang_starts_together(here: Path) -> None:
    (gang,) = plugins_of_file("gang.py")
    scheduler = scheduler_for(*configuration_of(None, "test", [gang]))
    labels = {"gang": "red", "gang-size": "2"}
    first, second = (pod(name, labels=labels) for name in ("a", "b"))
    alone = scheduler.handle([NodeAdded(node("n1")), PodAdded(first)], 0)
    assert not [effect for effect in alone if isinstance(effect, Bind)]
    both = scheduler.handle([PodAdded(second), PodAdded(pod("other"))], 1)
    bound = [effect.name for effect in both if isinstance(effect, Bind)]
    assert sorted(bound) == ["a", "b", "other"]
    scheduler.validate()


# A distribution: metadata as an installer leaves it, on the path for a while.


@pytest.fixture
def installed(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = here / "site"
    package, info = site / "mycompany", site / "acme_rules-1.0.dist-info"
    for folder in (package, info):
        folder.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "scheduling.py").write_text(NEAR_GPU + "\n\n" + TEAM)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.0\n")
    ((group, entries),) = tomllib.loads(TOML[0])["project"]["entry-points"].items()
    lines = [f"{name} = {value}" for name, value in entries.items()]
    lines += [
        "team-first = mycompany.scheduling:team_first",
        "Renamed = mycompany.scheduling:NearGPU",
    ]
    lines += ["Gone = mycompany.nowhere:Gone", "Number = mycompany.scheduling:np"]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "mycompany", raising=False)
    monkeypatch.delitem(sys.modules, "mycompany.scheduling", raising=False)
    assert importlib.metadata.version("acme-rules") == "1.0"
    return site


def enabling(name: str) -> str:
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: {name}, weight: 2}}]}}}}}}]\n"
    )


def test_an_installed_plugin_is_used_where_it_is_named(here: Path, installed: Path) -> None:
    cluster = NODE % ("n", "nvidia.com/gpu: '4', ") + POD % 0
    assert simulated(here, cluster)["placed"] == 1
    # Nobody has named it, so nobody has imported it.
    assert "mycompany" not in sys.modules
    (here / "c.yaml").write_text(enabling("NearGPU"))
    result = simulated(here, cluster, "--config", "c.yaml")
    assert result["failed"] == {"node(s) were kept for pods that need a GPU": 1}
    assert run("config", "check", "c.yaml").code == 0
    explained = run("explain", "p0", "--cluster", "cluster.yaml", "--config", "c.yaml")
    assert explained.code == 1
    (here / "c.yaml").write_text(enabling("team-first"))
    assert simulated(here, cluster, "--config", "c.yaml")["placed"] == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Renamed", "invalid plugin name: 'NearGPU': expected 'Renamed'"),
        ("Gone", "ModuleNotFoundError"),
        (
            "Number",
            "invalid object of type module: expected a plugin class, or a function under @score",
        ),
    ],
)
def test_an_installed_plugin_that_cannot_be_loaded(
    name: str, message: str, here: Path, installed: Path
) -> None:
    (here / "c.yaml").write_text(enabling(name))
    ran = run("config", "check", "c.yaml")
    check_one_line(ran, "distribution acme-rules 1.0", f"entry point {name} =", message)
