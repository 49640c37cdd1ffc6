"""Header of a recording: all that decides beside the events, so that they can be decided again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from stowplan import config
from stowplan._version import __version__
from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.framework import ConfigError
from stowplan.framework.feature_gates import (
    FeatureGateError,
    changed_gates,
    feature_gates_of,
)
from stowplan.inputs.plugin_sources import PluginSource, plugin_classes
from stowplan.recording.frames import RecordingError
from stowplan.scheduler import Scheduler, SchedulerOptions

SIMULATION, SERVER = "simulation", "server"
"""How the generator of tie-breaks is made of the seed."""


class RecordedPlugin(msgspec.Struct, frozen=True):
    """A file with plugins. sha256: of its content, hex. names: of the plugins in it."""

    file: str
    sha256: str
    names: tuple[str, ...] = ()


class SchedulerSetup(msgspec.Struct, frozen=True):
    """How a scheduler was made. command: what records, as `simulate --replay`. seed: of tie-breaks;
    None: the first node. generator: SIMULATION or SERVER. wall_ns: Unix time at the scheduler's
    time `now_ns`, both in nanoseconds. virtual: the time is that of a simulation."""

    command: str
    seed: int | None
    generator: str
    engine: str = "auto"
    plugins: tuple[RecordedPlugin, ...] = ()
    wall_ns: int = 0
    now_ns: int = 0
    virtual: bool = False


class SchedulerRecorder(Protocol):
    """Records schedulers; the one that writes files is in the driver."""

    def attach(self, deciders: Deciders, scheduler: Scheduler, setup: SchedulerSetup) -> None:
        """Record a new scheduler, before its first call."""


class RecordingHeader(msgspec.Struct, frozen=True):
    """First frame of a file.

    stowplan: version that recorded. recording: identity, the same in all files of a recording.
    part: number of the file, from 0. configuration: effective. digest: its SHA-256. compat: of
    sessions or of a queue model, see `Deciders`. options: of the scheduler. source: name of the
    file of the configuration, by which a recorded change is applied; "" for none, or several.
    feature_gates: those that differ from their defaults.
    """

    stowplan: str
    recording: str
    part: int
    setup: SchedulerSetup
    configuration: dict[str, Any]
    digest: str
    compat: str
    options: SchedulerOptions
    source: str = ""
    feature_gates: dict[str, bool] = {}


def header_of(
    deciders: Deciders, scheduler: Scheduler, setup: SchedulerSetup, recording: str
) -> RecordingHeader:
    """The header of the first file of a recording."""
    configuration, files = deciders.configuration, deciders.files
    return RecordingHeader(
        __version__,
        recording,
        0,
        setup,
        config.effective(configuration),
        config.digest(configuration),
        deciders.compat or deciders.model_compat,
        scheduler.options,
        files[0].source if len(files) == 1 else "",
        changed_gates(deciders.gates),
    )


def encode_header(header: RecordingHeader) -> bytes:
    """The payload of a header frame."""
    return msgspec.msgpack.encode(header)


def decode_header(payload: bytes, source: str) -> RecordingHeader:
    """Raises RecordingError."""
    try:
        return msgspec.msgpack.decode(payload, type=RecordingHeader)
    except msgspec.DecodeError as problem:
        raise RecordingError(f"{source}: header that cannot be decoded: {problem}") from None


def plugin_records(files: Iterable[PluginSource]) -> tuple[RecordedPlugin, ...]:
    """What the header keeps of plugin files; raises ContractError and OSError."""
    return tuple(
        RecordedPlugin(
            str(file),
            hashlib.sha256(Path(file).read_bytes()).hexdigest(),
            tuple(plugin.__name__ for plugin in plugin_classes(file)),
        )
        for file in files
        if isinstance(file, str | Path)
    )


def recorded_deciders(
    header: RecordingHeader, source: str, plugins: Iterable[str] = ()
) -> Deciders:
    """The deciders of a recording. plugins: files; those of the recording are read where they were
    if none are given. Raises RecordingError, ConfigError and ContractError."""
    given = list(plugins) or [plugin.file for plugin in header.setup.plugins]
    hashes = {plugin.sha256: plugin for plugin in header.setup.plugins}
    for file in given:
        try:
            found = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        except OSError as problem:
            what = (problem.strerror or str(problem)).lower()
            expected = "expected the plugin file of the recording; name it with --plugin"
            raise RecordingError(f"{source}: plugin {file}: {what}: {expected}") from None
        if hashes.pop(found, None) is None:
            wanted = ", ".join(f"{one.file} ({one.sha256[:12]})" for one in header.setup.plugins)
            expected = f"expected one of {wanted}" if wanted else "expected no plugin file"
            raise RecordingError(
                f"{source}: plugin {file} ({found[:12]}) is not of this recording: {expected}"
            )
    for missing in hashes.values():
        names = ", ".join(missing.names)
        raise RecordingError(
            f"{source}: plugin file {missing.file} ({names}) is missing: name it with --plugin"
        )
    text = msgspec.json.encode(header.configuration)
    try:
        name = header.source or f"{source}: configuration"
        gates = feature_gates_of(header.feature_gates)
        compats = filter(None, (header.compat, header.options.compat))
        made = deciders_of([ConfigText(text, name)], plugin_classes(given), compats, gates)
    except (ConfigError, FeatureGateError) as problem:
        if header.stowplan == __version__:
            raise
        versions = f"recorded by stowplan {header.stowplan}, this is {__version__}"
        raise RecordingError(f"{source}: {versions}: {problem}") from None
    return made


def scheduler_of(header: RecordingHeader, deciders: Deciders) -> Scheduler:
    """A new scheduler like the recorded one. Raises ConfigError and ContractError."""
    setup, rng = header.setup, None
    if setup.seed is not None:
        rng = np.random.default_rng(setup.seed)
        if setup.generator == SERVER:
            rng = rng.spawn(3)[2]
    return deciders.scheduler(rng=rng, options=header.options, engine=setup.engine)
