"""Configuration of a live scheduler: deciders, scheduler names and lease, from files and
options."""

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
from stowplan.client.leader_election import LeaderElectionConfig
from stowplan.config.model import Configuration, LeaderElection
from stowplan.config.session_configuration import BatchConfiguration
from stowplan.driver.logs import log_keys
from stowplan.framework import ConfigError, Problem
from stowplan.framework.feature_gates import FeatureGates
from stowplan.objects.encoding.yaml_documents import DocumentError, parse_documents
from stowplan.objects.pod import DEFAULT_SCHEDULER
from stowplan.plugins.gpu_share.conventions import kai_fractions, kai_reservations
from stowplan.plugins.gpu_share.gpu_share import GpuShareArgs

SCHEDULER_NAME = "stowplan"
KUBE_SCHEDULER = "kube-scheduler"
"""Lease of kube-scheduler, which every cluster has."""
log = logging.getLogger("stowplan.scheduler")

QPS, BURST = 0.0, 100
KAI = kai_fractions.CONVENTION.name


class ConfigurationFileError(ValueError):
    """A configuration file cannot be read."""


class FileSettings(msgspec.Struct, frozen=True):
    """Values set in the files, where a default has another meaning here.

    election: set fields of leaderElection. qps, burst: request limits; qps 0 for no limit.
    """

    election: frozenset[str] = frozenset()
    qps: float = QPS
    burst: int = BURST


def read_configuration_files(
    config_files: Iterable[str] = (),
    plugin_files: Iterable[str] = (),
    compat: str | Iterable[str] = "",
    name: str = SCHEDULER_NAME,
    gates: FeatureGates | None = None,
    *,
    admits: bool = False,
) -> tuple[Deciders, FileSettings]:
    """Read the files; without any the default profile under the given name. admits: see
    `deciders_of`. Raises ConfigurationFileError, ConfigError and ContractError."""
    texts = [ConfigText(_text(file), file) for file in config_files]
    plugins = [plugin for file in plugin_files for plugin in plugins_of_file(file)]
    found = deciders_of(texts, plugins, compat, gates, admits=admits)
    if not texts:
        found = _named(found, name)
    if found.batch is not None:
        log_warnings(found.batch)
    return found, _file_settings(texts)


def log_warnings(batch: BatchConfiguration) -> None:
    """Log each setting of the session configuration that has no effect."""
    for warning in batch.warnings:
        keys = {"file": batch.source, "warning": str(warning)}
        log_keys(log, logging.WARNING, "Setting has no effect", **keys)


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
        what = (problem.strerror or str(problem)).lower()
        raise ConfigurationFileError(f"unable to read configuration {file}: {what}") from None
    except UnicodeDecodeError:
        raise ConfigurationFileError(
            f"unable to read configuration {file}: not UTF-8 text"
        ) from None


def _file_settings(texts: Iterable[ConfigText]) -> FileSettings:
    """Fields that the files set explicitly."""
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


def live_problems(configuration: Configuration, source: str) -> ConfigError | None:
    """What a configuration asks for that works in simulations only; None for nothing.

    KAI's fractions need pods that reserve a card of the kubelet, else pods would be bound without a
    GPU. Only the convention with such pods creates them; KAI's sessions ask KAI's binder to.
    """
    problems = []
    for number, profile in enumerate(configuration.profiles.values()):
        for name, args in profile.args.items():
            if isinstance(args, GpuShareArgs) and KAI in args.conventions:
                path = f"profiles[{number}].pluginConfig[{name}].args.conventions"
                wanted = (
                    f"{kai_reservations.NAME!r} on a live cluster, where the kubelet chooses the "
                    "card and a reservation pod finds out which one; allowed in simulate, up and "
                    "dry runs"
                )
                problems.append(Problem(path, f'"{KAI}"', wanted))
    return ConfigError(source, problems) if problems else None


# The lease.


def scheduler_names(deciders: Deciders) -> tuple[str, ...]:
    """The scheduler names that are served."""
    names = list(deciders.configuration.profiles)
    if deciders.batch is not None:
        names += deciders.batch.scheduler_names
    return tuple(names)


def lease_identity() -> str:
    """A unique lease identity, with a prefix that marks schedulers of this kind."""
    return f"{SCHEDULER_NAME}_{platform.node()}_{uuid.uuid4()}"


def leader_election_config(
    deciders: Deciders, written: FileSettings, namespace: str = ""
) -> LeaderElectionConfig | None:
    """Leader election settings, None if it is disabled.

    Without a resourceName the lease is named after the first schedulerName; for default-scheduler
    it is `kube-scheduler`, by convention.
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
    """The lease that a scheduler of this name holds by convention."""
    return KUBE_SCHEDULER if scheduler_name == DEFAULT_SCHEDULER else scheduler_name


def _seconds(duration: timedelta) -> float:
    return duration.total_seconds()
