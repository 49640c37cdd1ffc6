"""Scheduling: which deciders a live scheduler runs with, and under which names and lease."""

from __future__ import annotations

import logging
import platform
import uuid
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.assembly.plugin_files import plugins_of_file
from stowplan.batch import COMPATS
from stowplan.client.leader_election import LeaderElectionConfig
from stowplan.config.model import Configuration, LeaderElection
from stowplan.config.session_configuration import BatchConfiguration
from stowplan.objects.encoding.yaml_documents import DocumentError, parse_documents
from stowplan.objects.pod import DEFAULT_SCHEDULER

SCHEDULER_NAME = "stowplan"
KUBE_SCHEDULER = "kube-scheduler"
"""The lease of the scheduler that every cluster has."""
log = logging.getLogger("stowplan.scheduler")

QPS, BURST = 0.0, 100


class ConfigurationFileError(ValueError):
    """A file that cannot be read: says which, what was got and what was wanted."""


class FileSettings(msgspec.Struct, frozen=True):
    """What the files say themselves, where a default means something else here.

    elects: what they say of the election. qps, burst: of requests; qps 0 for no limit.
    """

    election: frozenset[str] = frozenset()
    qps: float = QPS
    burst: int = BURST


def read_configuration_files(
    config_files: Iterable[str] = (),
    plugin_files: Iterable[str] = (),
    compat: str = "",
    name: str = SCHEDULER_NAME,
) -> tuple[Deciders, FileSettings]:
    """What the files come to; without any the default profile under a name of its own. Raises
    FileError, ConfigError and ContractError."""
    texts = [ConfigText(_text(file), file) for file in config_files]
    plugins = [plugin for file in plugin_files for plugin in plugins_of_file(file)]
    found = deciders_of(texts, plugins, COMPATS[compat] if compat else None)
    if not texts:
        found = _named(found, name)
    if found.batch is not None:
        log_warnings(found.batch)
    return found, _file_settings(texts)


def log_warnings(batch: BatchConfiguration) -> None:
    """Log what the file of sessions names and has no effect, a line each."""
    for warning in batch.warnings:
        log.warning("%s: %s", batch.source, warning)


def default_deciders(name: str) -> Deciders:
    """The default profile under another schedulerName."""
    return _named(deciders_of(()), name)


def _named(deciders: Deciders, name: str) -> Deciders:
    configuration = deciders.configuration
    (profile,) = configuration.profiles.values()
    profiles = {name: msgspec.structs.replace(profile, scheduler_name=name)}
    changed: Configuration = msgspec.structs.replace(configuration, profiles=profiles)
    return msgspec.structs.replace(deciders, configuration=changed)


def _text(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as problem:
        said = (problem.strerror or str(problem)).lower()
        raise ConfigurationFileError(f"{file}: got {said}, wanted a configuration file") from None
    except UnicodeDecodeError:
        raise ConfigurationFileError(
            f"{file}: got bytes, wanted a configuration file as text"
        ) from None


def _file_settings(texts: Iterable[ConfigText]) -> FileSettings:
    """What the files name of what their model fills in."""
    election: set[str] = set()
    qps, burst = QPS, BURST
    for text in texts:
        try:
            trees = [document.tree for document in parse_documents(str(text.text))]
        except DocumentError:
            continue
        for tree in (tree for tree in trees if isinstance(tree, dict)):
            election |= set(_section(tree, "leaderElection"))
            client = _section(tree, "clientConnection")
            qps = float(client.get("qps") or qps)
            burst = int(client.get("burst") or burst)
    return FileSettings(frozenset(election), max(0.0, qps), burst)


def _section(tree: dict[str, Any], name: str) -> dict[str, Any]:
    part = tree.get(name)
    return part if isinstance(part, dict) else {}


# The lease.


def scheduler_names(deciders: Deciders) -> tuple[str, ...]:
    """The scheduler names whose pods are decided."""
    names = list(deciders.configuration.profiles)
    if deciders.batch is not None:
        names += deciders.batch.scheduler_names
    return tuple(names)


def lease_identity() -> str:
    """A name that no other process has; it tells schedulers of this kind from others."""
    return f"{SCHEDULER_NAME}_{platform.node()}_{uuid.uuid4()}"


def leader_election_config(
    deciders: Deciders, written: FileSettings, namespace: str = ""
) -> LeaderElectionConfig | None:
    """The election that a configuration asks for, None where it asks for none.

    Without a resourceName the lease is named after the first schedulerName, that of
    default-scheduler `kube-scheduler`, as everybody expects.
    """
    asked: LeaderElection = deciders.configuration.leader_election
    if not asked.leader_elect:
        return None
    name = asked.resource_name
    if "resourceName" not in written.election:
        name = lease_name(scheduler_names(deciders)[0])
    where = asked.resource_namespace
    if namespace and "resourceNamespace" not in written.election:
        where = namespace
    return LeaderElectionConfig(
        where,
        name,
        lease_identity(),
        _seconds(asked.lease_duration),
        _seconds(asked.renew_deadline),
        _seconds(asked.retry_period),
    )


def lease_name(scheduler_name: str) -> str:
    """The lease that whoever schedules under a name is expected to hold."""
    return KUBE_SCHEDULER if scheduler_name == DEFAULT_SCHEDULER else scheduler_name


def _seconds(duration: timedelta) -> float:
    return duration.total_seconds()
