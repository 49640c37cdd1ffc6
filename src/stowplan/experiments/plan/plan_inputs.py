"""The inputs of a plan: files found and hashed, configurations checked; the tasks of runs."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stowplan._version import __version__
from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.assembly.extenders import extenders_of
from stowplan.assembly.plugin_files import InstalledPlugin, installed_code
from stowplan.assembly.python_files import PythonCode, code_of
from stowplan.experiments.gpu_sharing.openb_workload import NODES_FILE, PODS_FILES
from stowplan.experiments.measures.own_measure import own_measure
from stowplan.experiments.plan.plan_file import (
    GPU_SHARING,
    REPLAY,
    ExperimentPlan,
    GeneratedSize,
    PlanPolicy,
    PlanWorkload,
    ShortPolicy,
    ShortWorkload,
)
from stowplan.experiments.plan.run_matrix import Cell
from stowplan.inputs.files import files_below, read_bytes, read_text
from stowplan.inputs.input_error import InputError
from stowplan.inputs.plugin_sources import plugin_classes
from stowplan.insight.autoscaling.autoscale_config import read_autoscale
from stowplan.simulation.cluster.simulated_extenders import SimulatedExtenderFactory
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.simulation.simulate import check_profile_of

KEY_LENGTH = 20
"""Hexadecimal digits of a run's key: 80 bits of a SHA-256."""
OPENB_FOLDER = "openb"
TRACES_WANTED = f"the folder of the OpenB files, with {NODES_FILE}"


class NamedFile(msgspec.Struct, frozen=True):
    """A file. label: as the plan names it, which results show. path: on this machine."""

    label: str
    path: str
    sha256: str


class WorkloadSource(msgspec.Struct, frozen=True):
    """Source of a worker's workload. openb: the workload of that trace, "" for other files.
    trace_format: "" to recognise it."""

    name: str
    files: tuple[NamedFile, ...] = ()
    paths: tuple[str, ...] = ()
    openb: str = ""
    generated: GeneratedSize | None = None
    trace_format: str = ""


class PolicySource(msgspec.Struct, frozen=True):
    """Source of a worker's policy. inline: JSON text of a configuration inside the plan.

    helpers: modules that its Python files import. distributions: installed ones that they import ->
    version. installed: plugins that its configuration names.
    """

    name: str
    config: tuple[NamedFile, ...] = ()
    inline: str = ""
    plugins: tuple[NamedFile, ...] = ()
    extenders: tuple[NamedFile, ...] = ()
    profile: str | None = None
    compat: str = ""
    gpu_share: str = ""
    helpers: tuple[NamedFile, ...] = ()
    distributions: dict[str, str] = {}
    installed: tuple[InstalledPlugin, ...] = ()

    @property
    def files(self) -> tuple[NamedFile, ...]:
        """All files that it is made of."""
        return (*self.config, *self.plugins, *self.extenders, *self.helpers)

    @property
    def config_texts(self) -> list[str]:
        """Its configurations; raises InputError."""
        return [self.inline] if self.inline else [read_text(one.path) for one in self.config]

    def deciders(self) -> Deciders:
        """The configuration; raises InputError, ConfigError and ContractError."""
        plugins = [one.path for one in self.plugins]
        if not self.inline:
            return read_deciders([one.path for one in self.config], plugins, self.compat)
        text = ConfigText(self.inline, f"policy {self.name}: configuration")
        return deciders_of([text], plugin_classes(plugins), self.compat)


class RunTask(msgspec.Struct, frozen=True):
    """All that a worker needs for a run. key: names its folder. identity: what the key is made of;
    nothing in it depends on the machine. measures, measure_files: own measures, and their files
    with the modules that these import."""

    key: str
    cell: Cell
    mode: str
    workload: WorkloadSource
    policy: PolicySource
    identity: dict[str, Any]
    command: str
    autoscale: NamedFile | None = None
    measures: tuple[str, ...] = ()
    measure_files: tuple[NamedFile, ...] = ()
    measure_distributions: dict[str, str] = {}


class PlanInputs:
    """Finds the files of a plan, relative to its folder or to that of the traces."""

    def __init__(self, plan: ExperimentPlan, folder: Path, traces: Path | None) -> None:
        self.plan = plan
        self._folders = [folder] if traces is None else [folder, traces]
        self._traces = traces
        self._digests: dict[str, str] = {}
        self.measures: tuple[str, ...] = ()
        """Own measures with the paths of this machine; filled by `tasks`."""
        self._measure_files: dict[str, NamedFile] = {}
        self._measure_distributions: dict[str, str] = {}

    def tasks(self, cells: Sequence[Cell]) -> list[RunTask]:
        """The tasks of runs; raises InputError, ConfigError and ContractError for what cannot be
        run at all."""
        asked_workloads = {cell.workload for cell in cells}
        workloads = {
            one.name: self._workload(one, f"workloads[{i}]")
            for i, one in enumerate(self.plan.workloads)
            if one.name in asked_workloads
        }
        asked_policies = {cell.policy for cell in cells}
        policies = {
            one.name: self._policy(one, f"policies[{i}]")
            for i, one in enumerate(self.plan.policies)
            if one.name in asked_policies
        }
        if self.plan.mode != GPU_SHARING:
            policies = {name: self._checked(policy) for name, policy in policies.items()}
        self._read_measures()
        return [self._task(cell, workloads, policies) for cell in cells]

    def _read_measures(self) -> None:
        """Find and check the plan's own measures."""
        found = []
        for i, source in enumerate(self.plan.measures):
            file, _, function = source.rpartition(":")
            path = self._found(file) if file else None
            if path is not None:
                self._hashed(source, path, f"measures[{i}]")
            found.append(source if path is None else f"{path}:{function}")
            own_measure(found[-1])
            if path is not None:
                self._measure_files[source] = self._hashed(source, path)
                code = code_of(str(path))
                for helper in self._helpers(source, code):
                    self._measure_files[helper.label] = helper
                self._measure_distributions |= code.distributions
        self.measures = tuple(found)

    def _checked(self, policy: PolicySource) -> PolicySource:
        """The policy with the code that its files have loaded; raises InputError, ConfigError and
        ContractError for one that cannot be used."""
        check_policy(policy)
        helpers: list[NamedFile] = []
        distributions: dict[str, str] = {}
        for file in (*policy.plugins, *policy.extenders):
            code = code_of(file.path)
            helpers += self._helpers(file.label, code)
            distributions |= code.distributions
        installed = tuple(plugin for text in policy.config_texts for plugin in installed_code(text))
        return msgspec.structs.replace(
            policy,
            helpers=tuple(helpers),
            distributions=dict(sorted(distributions.items())),
            installed=installed,
        )

    def _helpers(self, label: str, code: PythonCode) -> list[NamedFile]:
        """Imported modules; their labels have no paths of this machine."""
        return [self._hashed(f"{label}: {name}", Path(path)) for name, path in code.files.items()]

    def _task(
        self,
        cell: Cell,
        workloads: Mapping[str, WorkloadSource],
        policies: Mapping[str, PolicySource],
    ) -> RunTask:
        workload, policy = workloads[cell.workload], policies[cell.policy]
        autoscale = self._autoscale(cell)
        identity = {
            "mode": self.plan.mode,
            "workload": _workload_identity(workload),
            "policy": _policy_identity(policy),
            "options": cell.options,
            "seed": cell.seed,
            "versions": versions(),
        }
        if autoscale is not None:
            identity["autoscale"] = {autoscale.label: autoscale.sha256}
        if self._measure_files:
            identity["measures"] = _digests_of(self._measure_files.values())
            if self._measure_distributions:
                identity["measure_distributions"] = self._measure_distributions
        return RunTask(
            key_of(identity),
            cell,
            self.plan.mode,
            workload,
            policy,
            identity,
            _command(Path(self.plan.source).name, cell),
            autoscale,
            self.measures,
            tuple(self._measure_files.values()),
            self._measure_distributions,
        )

    def _workload(self, given: PlanWorkload, field: str) -> WorkloadSource:
        if given.generated is not None:
            return WorkloadSource(given.name, generated=given.generated)
        if given.openb:
            folder = self.openb_folder()
            names = (NODES_FILE, PODS_FILES.format(given.openb))
            files = tuple(self._hashed(name, folder / name) for name in names)
            return WorkloadSource(given.name, files, tuple(one.path for one in files), given.openb)
        paths = tuple(str(self._found(name)) for name in given.paths)
        named: list[NamedFile] = []
        is_short = isinstance(given, ShortWorkload)
        places = _places(field if is_short else f"{field}.files", given.files)
        for name, path, place in zip(given.paths, paths, places, strict=True):
            with self._at(place):
                leaves = [Path(leaf) for leaf in files_below(path)]
            for leaf in leaves:
                inner = "" if leaf == Path(path) else f"/{leaf.relative_to(path)}"
                named.append(self._hashed(f"{name.rstrip('/')}{inner}", leaf, place))
        return WorkloadSource(given.name, tuple(named), paths, trace_format=given.trace_format)

    def _policy(self, given: PlanPolicy, field: str) -> PolicySource:
        inline = "" if given.configuration is None else canonical(given.configuration).decode()
        return PolicySource(
            given.name,
            self._all_hashed(given, field, "config"),
            inline,
            self._all_hashed(given, field, "plugins"),
            self._all_hashed(given, field, "extenders"),
            given.profile,
            given.compat,
            given.gpu_share,
        )

    def _autoscale(self, cell: Cell) -> NamedFile | None:
        name = cell.options.get("autoscale")
        if name is None or self.plan.mode != REPLAY:
            return None
        path = self._found(str(name))
        if str(path) not in self._digests:
            with self._at("options.autoscale"):
                text = read_bytes(path)
            read_autoscale(text, str(path))
        return self._hashed(str(name), path)

    def openb_folder(self) -> Path:
        """The folder of the traces, or `openb` in it; raises InputError."""
        if self._traces is None:
            raise InputError("--traces", "", "", TRACES_WANTED)
        for folder in (self._traces, self._traces / OPENB_FOLDER):
            if (folder / NODES_FILE).is_file():
                return folder
        raise InputError(str(self._traces), "", f"no {NODES_FILE} in it", TRACES_WANTED)

    def _found(self, name: str) -> Path:
        """The first existing file of this name, else where it should be."""
        places = [folder / name for folder in self._folders]
        return next((place for place in places if place.exists()), places[0])

    def _all_hashed(self, given: PlanPolicy, path: str, field: str) -> tuple[NamedFile, ...]:
        place = path if isinstance(given, ShortPolicy) else f"{path}.{field}"
        names, places = given.files(field), _places(place, getattr(given, field))
        return tuple(
            self._hashed(name, self._found(name), place)
            for name, place in zip(names, places, strict=True)
        )

    def _hashed(self, label: str, path: Path, field: str = "") -> NamedFile:
        """A file; raises InputError. field: of the plan that names it, for errors."""
        text = str(path)
        if text not in self._digests:
            with self._at(field):
                self._digests[text] = hashlib.sha256(read_bytes(path)).hexdigest()
        return NamedFile(label, text, self._digests[text])

    @contextmanager
    def _at(self, field: str) -> Iterator[None]:
        """Errors about a file say where the plan names it."""
        try:
            yield
        except InputError as problem:
            if not field:
                raise
            raise InputError.at(self.plan.source, field, problem) from None


def _places(field: str, given: Sequence[str] | str) -> tuple[str, ...]:
    """Paths of the files of a field, which has one or a list of them."""
    if isinstance(given, str):
        return (field,)
    return tuple(f"{field}[{i}]" if len(given) > 1 else field for i in range(len(given)))


def check_policy(policy: PolicySource) -> None:
    """Raise InputError, ConfigError or ContractError for a policy that cannot be used."""
    configuration = policy.deciders().configuration
    SimulatedExtenderFactory(extenders_of(configuration), [one.path for one in policy.extenders])
    if policy.profile is not None:
        check_profile_of(policy.profile, configuration)


def canonical(tree: Any) -> bytes:
    """A tree as JSON with sorted keys."""
    return msgspec.json.encode(tree, order="sorted")


def key_of(identity: Mapping[str, Any]) -> str:
    """The key of a run: a hash of all that its results follow from."""
    return hashlib.sha256(canonical(identity)).hexdigest()[:KEY_LENGTH]


def versions() -> dict[str, str]:
    """Versions on which results may depend."""
    return {
        "stowplan": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": _numba_version(),
    }


@lru_cache(1)
def _numba_version() -> str:
    """Without importing it, which takes long."""
    return version("numba")


def _workload_identity(source: WorkloadSource) -> dict[str, Any]:
    found: dict[str, Any] = {"name": source.name}
    if source.generated is not None:
        found["generated"] = {"nodes": source.generated.nodes, "pods": source.generated.pods}
    if source.openb:
        found["openb"] = source.openb
    if source.trace_format:
        found["trace_format"] = source.trace_format
    return found | {"inputs": _digests_of(source.files)}


def _policy_identity(source: PolicySource) -> dict[str, Any]:
    found: dict[str, Any] = {"name": source.name}
    for field in ("config", "plugins", "extenders", "helpers"):
        files = getattr(source, field)
        if files:
            found[field] = _digests_of(files)
    if source.inline:
        found["configuration"] = msgspec.json.decode(source.inline)
    for field in ("profile", "compat", "gpu_share"):
        if getattr(source, field):
            found[field] = getattr(source, field)
    if source.distributions:
        found["distributions"] = source.distributions
    if source.installed:
        found["installed"] = {one.name: one.identity for one in source.installed}
    return found


def _digests_of(files: Iterable[NamedFile]) -> dict[str, str]:
    return {one.label: one.sha256 for one in files}


def _command(file: str, cell: Cell) -> str:
    """The command that repeats one run. It has no paths of this machine."""
    keys = ["workload", "policy", *cell.options, "seed"]
    only = " ".join(f"--only {key}={cell.value(key)}" for key in keys)
    return f"stowplan experiment {file} {only}"
