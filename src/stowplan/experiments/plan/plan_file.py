"""The file of an experiment: workloads, policies, options and seeds, decoded strictly.

apiVersion: stowplan.dev/experiment/v1
kind: Experiment
mode: replay
workloads: [trace.csv, {name: small, generated: {nodes: 100, pods: 500}}]
policies: [default, {name: packing, config: packing.yaml}]
options: {nodeCount: [80, 100]}
seeds: 10
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal

import msgspec

from stowplan.config.document_trees import documents
from stowplan.config.session_configuration import COMPATS
from stowplan.config.strict_decoder import INVALID, Problems, child_path, decode, format_value
from stowplan.experiments.gpu_sharing.openb_workload import WORKLOADS
from stowplan.experiments.plan.option_values import OPTIONS, OptionValue
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.traces.trace_formats import FORMATS
from stowplan.plugins.gpu_share.policies import GpuPolicy

API_VERSION, KIND = "stowplan.dev/experiment/v1", "Experiment"
FILL, REPLAY, GPU_SHARING = "fill", "replay", "gpu-sharing"
DEFAULT_POLICY = "default"
"""kube-scheduler's default profile."""
SEED_MAX = 2**32 - 1
SUFFIXES = (".yaml", ".yml", ".json", ".conf")
"""Of scheduler configuration files that are policies by themselves."""
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.+]*[A-Za-z0-9+])?")
_NAME_WANTED = "letters, digits, '-', '_', '.' and '+', without blanks"
_GPU_POLICIES = tuple(one.value for one in GpuPolicy)

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=SEED_MAX)]


class GeneratedSize(msgspec.Struct, frozen=True, rename="camel"):
    """Size of a generated workload; its content follows from the seed of a run."""

    nodes: Count = 1000
    pods: Count = 5000


class PlanWorkload(msgspec.Struct, frozen=True, rename="camel"):
    """A cluster with its pods. Exactly one of files, openb (a workload of the OpenB trace) and
    generated. trace_format: of files, "" to recognise it; see `trace_formats.FORMATS`."""

    name: str = ""
    files: tuple[str, ...] | str = ()
    openb: str = ""
    generated: GeneratedSize | None = None
    trace_format: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Files as the plan names them."""
        return (self.files,) if isinstance(self.files, str) else tuple(self.files)


class ShortWorkload(PlanWorkload, frozen=True):
    """A workload written as the name of its file, in place of a mapping."""


class PlanPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """A scheduler configuration: files, a mapping inside the plan, or neither for the default
    profile; with plugin files. gpu_share: a policy of the published experiment, in its mode."""

    name: str = ""
    config: tuple[str, ...] | str = ()
    configuration: dict[str, Any] | None = None
    plugins: tuple[str, ...] | str = ()
    extenders: tuple[str, ...] | str = ()
    profile: str | None = None
    compat: str = ""
    gpu_share: str = ""

    def files(self, field: str) -> tuple[str, ...]:
        """Files of `config`, `plugins` or `extenders` as the plan names them."""
        named: tuple[str, ...] | str = getattr(self, field)
        return (named,) if isinstance(named, str) else tuple(named)


class ShortPolicy(PlanPolicy, frozen=True):
    """A policy written as the name of its file, in place of a mapping."""


class PlanComparison(msgspec.Struct, frozen=True, rename="camel"):
    """Settings of the comparison of policies. baseline: a policy, "" for the first. measures:
    names, none for the usual ones. confidence: of intervals."""

    baseline: str = ""
    measures: tuple[str, ...] = ()
    confidence: Annotated[float, msgspec.Meta(gt=0.5, lt=1)] = 0.95


class PlanDocument(msgspec.Struct, frozen=True, rename="camel"):
    """The file as it is written; entries that may have a short form are decoded afterwards."""

    workloads: list[Any]
    policies: list[Any]
    seeds: Any = 1
    api_version: str = API_VERSION
    kind: str = KIND
    title: str = ""
    mode: Literal["fill", "replay", "gpu-sharing"] = "fill"
    options: dict[str, Any] = {}
    measures: tuple[str, ...] = ()
    compare: PlanComparison = PlanComparison()


class ExperimentPlan(msgspec.Struct, frozen=True):
    """A checked plan. options: name -> values. source: the file, for errors. measures: further
    ones, `FILE.py:FUNCTION`."""

    source: str
    title: str
    mode: str
    workloads: tuple[PlanWorkload, ...]
    policies: tuple[PlanPolicy, ...]
    options: dict[str, tuple[OptionValue, ...]]
    seeds: tuple[int, ...]
    measures: tuple[str, ...] = ()
    compare: PlanComparison = PlanComparison()


def read_plan(text: str | bytes, source: str) -> ExperimentPlan:
    """Decode the text of a plan; raises ConfigError with every mistake and its path."""
    problems = Problems()
    trees = documents(text, problems)
    if len(trees) != 1 and not problems.found:
        problems.add("document", f"{len(trees)} documents", f"one of kind {KIND}")
    if problems.found:
        raise problems.error(source)
    return plan_of_tree(trees[0], source)


def plan_of_tree(tree: Any, source: str) -> ExperimentPlan:
    """A plan of a tree of dicts and lists; raises ConfigError with every mistake and its path."""
    problems = Problems()
    found = decode(tree, PlanDocument, "", problems)
    if found is INVALID:
        raise problems.error(source)
    if found.api_version != API_VERSION:
        problems.add("apiVersion", repr(found.api_version), API_VERSION)
    if found.kind != KIND:
        problems.add("kind", repr(found.kind), KIND)
    entries = _Entries(found.mode, problems)
    plan = ExperimentPlan(
        source,
        found.title,
        found.mode,
        tuple(_listed(found.workloads, "workloads", entries.workload, problems)),
        tuple(_listed(found.policies, "policies", entries.policy, problems)),
        _options(found.options, found.mode, problems),
        _seeds(found.seeds, problems),
        found.measures,
        found.compare,
    )
    _check_comparison(plan, problems)
    if problems.found:
        raise problems.error(source)
    return plan


def _check_comparison(plan: ExperimentPlan, problems: Problems) -> None:
    names = [one.name for one in plan.policies]
    baseline = plan.compare.baseline
    if baseline and baseline not in names:
        hint = did_you_mean(baseline, names)
        problems.add("compare.baseline", repr(baseline), f"one of {', '.join(names)}", hint)
    if plan.measures and plan.mode == GPU_SHARING:
        problems.add("measures", "own measures", "none: they measure simulations")


def _listed(
    trees: Sequence[Any], field: str, entry_of: Callable[[Any, str], Any], problems: Problems
) -> list[Any]:
    """The entries of a list, whose names must differ."""
    if not trees:
        problems.add(field, "an empty list", "at least one")
    found: list[Any] = []
    for number, tree in enumerate(trees):
        path = f"{field}[{number}]"
        entry = entry_of(tree, path)
        if entry is None:
            continue
        if not _NAME.fullmatch(entry.name):
            problems.add(f"{path}.name", format_value(entry.name), _NAME_WANTED)
        elif any(one.name == entry.name for one in found):
            problems.add(f"{path}.name", repr(entry.name), "each name once")
        found.append(entry)
    return found


class _Entries:
    """Decodes workloads and policies, which may be strings or mappings."""

    def __init__(self, mode: str, problems: Problems) -> None:
        self.mode = mode
        self.problems = problems

    def workload(self, tree: Any, path: str) -> PlanWorkload | None:
        """A workload; None where a problem was added."""
        if isinstance(tree, str):
            if tree in WORKLOADS:
                return PlanWorkload(tree, openb=tree)
            if self.mode == GPU_SHARING:
                self._refuse(path, tree, WORKLOADS)
                return None
            return ShortWorkload(_stem(tree), files=(tree,))
        entry = decode(tree, PlanWorkload, path, self.problems)
        if entry is INVALID:
            return None
        given = [bool(entry.paths), bool(entry.openb), entry.generated is not None]
        if sum(given) != 1:
            self.problems.add(path, f"{sum(given)} of them", "one of files, openb and generated")
            return None
        if entry.trace_format and not entry.paths:
            got = repr(entry.trace_format)
            self.problems.add(f"{path}.traceFormat", got, "nothing: it is for files")
            return None
        if entry.trace_format and entry.trace_format not in FORMATS:
            self._refuse(f"{path}.traceFormat", entry.trace_format, tuple(FORMATS))
            return None
        if entry.openb and entry.openb not in WORKLOADS:
            self._refuse(f"{path}.openb", entry.openb, WORKLOADS)
            return None
        if self.mode == GPU_SHARING and not entry.openb:
            self.problems.add(path, "", f"openb: the mode {GPU_SHARING} fills the OpenB cluster")
            return None
        first = entry.openb or (_stem(entry.paths[0]) if entry.paths else "generated")
        return msgspec.structs.replace(entry, name=entry.name or first)

    def policy(self, tree: Any, path: str) -> PlanPolicy | None:
        """A policy; None where a problem was added."""
        if isinstance(tree, str):
            return self._named_policy(tree, path)
        entry = decode(tree, PlanPolicy, path, self.problems)
        if entry is INVALID:
            return None
        if self.mode == GPU_SHARING or entry.gpu_share:
            return self._gpu_policy(entry, path)
        if entry.config and entry.configuration is not None:
            self.problems.add(path, "both", "config or configuration, not both")
            return None
        if entry.compat and entry.compat not in COMPATS:
            self._refuse(f"{path}.compat", entry.compat, COMPATS)
            return None
        files = (*entry.files("config"), *entry.files("plugins"))
        first = _stem(files[0]) if files else DEFAULT_POLICY
        if not entry.name and entry.configuration is not None:
            self.problems.add(f"{path}.name", "", "a name of the configuration")
            return None
        return msgspec.structs.replace(entry, name=entry.name or first)

    def _named_policy(self, name: str, path: str) -> PlanPolicy | None:
        if self.mode == GPU_SHARING:
            return self._gpu_policy(PlanPolicy(name, gpu_share=name), path)
        if name == DEFAULT_POLICY:
            return PlanPolicy(name)
        if PurePath(name.removesuffix(".gz")).suffix in SUFFIXES:
            return ShortPolicy(_stem(name), config=(name,))
        patterns = ", ".join("*" + suffix for suffix in SUFFIXES)
        wanted = f"{DEFAULT_POLICY!r}, a configuration file ({patterns}) or a mapping"
        hint = did_you_mean(name, (DEFAULT_POLICY,))
        self.problems.add(path, format_value(name), wanted, hint)
        return None

    def _gpu_policy(self, entry: PlanPolicy, path: str) -> PlanPolicy | None:
        if self.mode != GPU_SHARING:
            self.problems.add(f"{path}.gpuShare", repr(entry.gpu_share), f"mode {GPU_SHARING}")
            return None
        if entry.gpu_share not in _GPU_POLICIES:
            at = path if entry.name == entry.gpu_share else f"{path}.gpuShare"
            self._refuse(at, entry.gpu_share, _GPU_POLICIES)
            return None
        name = entry.name or entry.gpu_share
        if entry != PlanPolicy(entry.name, gpu_share=entry.gpu_share):
            self.problems.add(path, "more fields", "name and gpuShare, in this mode")
            return None
        return PlanPolicy(name, gpu_share=entry.gpu_share)

    def _refuse(self, path: str, got: str, known: Sequence[str]) -> None:
        wanted = f"one of {', '.join(known)}"
        self.problems.add(path, repr(got) if got else "", wanted, did_you_mean(got, known))


def _stem(file: str) -> str:
    name = PurePath(file.rstrip("/")).name.removesuffix(".gz")
    return re.sub(r"[^-A-Za-z0-9_.+]+", "-", PurePath(name).stem).strip("-_.") or "-"


def _options(
    tree: Mapping[str, Any], mode: str, problems: Problems
) -> dict[str, tuple[OptionValue, ...]]:
    """Option -> its values, in the order of `OPTIONS`."""
    found: dict[str, tuple[OptionValue, ...]] = {}
    for name, given in tree.items():
        path = child_path("options", name)
        option = OPTIONS.get(name)
        if option is None:
            known = [one for one, option in OPTIONS.items() if mode in option.modes]
            hint = did_you_mean(name, known)
            problems.add(path, "an unknown field", ", ".join(known) or "no fields", hint)
            continue
        if mode not in option.modes:
            problems.add(path, f"the mode {mode}", f"mode {' or '.join(option.modes)}")
            continue
        values = given if isinstance(given, list) else [given]
        checked = [
            option.checked(value, path if values is not given else f"{path}[{i}]", problems)
            for i, value in enumerate(values)
        ]
        if not values:
            problems.add(path, "an empty list", "at least one value")
        if len({repr(one) for one in checked}) < len(checked):
            problems.add(path, format_value(given), "each value once")
        found[name] = tuple(checked)
    return {name: found[name] for name in OPTIONS if name in found}


def _seeds(tree: Any, problems: Problems) -> tuple[int, ...]:
    """Seeds of a list, or 0 to N - 1 of a count N."""
    if isinstance(tree, list):
        found = decode(tree, list[Seed], "seeds", problems)
        seeds = () if found is INVALID else tuple(found)
        if not seeds:
            problems.add("seeds", "an empty list", "at least one seed")
        elif len(set(seeds)) < len(seeds):
            problems.add("seeds", "a seed twice", "each seed once")
        return seeds
    count = decode(tree, Count, "seeds", problems)
    return () if count is INVALID else tuple(range(count))
