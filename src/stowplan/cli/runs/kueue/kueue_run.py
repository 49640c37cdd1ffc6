"""What `stowplan run --act` does: admit the jobs of a live cluster in place of Kueue."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from stowplan.cli.errors import CommandFailed, reported
from stowplan.cli.live_options import refuse_options
from stowplan.cli.runs.scheduler_config import read_command_deciders
from stowplan.driver import logs
from stowplan.driver.client.credentials import CredentialError
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.live.competing_schedulers import CompetingSchedulerError
from stowplan.driver.live.configuration_files import FileSettings, leader_election_config
from stowplan.driver.live.kueue.kueue_manager import (
    LEASE,
    KueueManagerOptions,
    run_kueue_manager,
)

_WITHOUT = ("dry_run", "record_file", "web", "seed", "plugin_files", "qps", "burst")
"""Options that do not go with it."""


def run_acting(given: dict[str, Any]) -> int:
    """Admit until a signal arrives; the exit code. given: the options of the command."""
    refuse_options(given, _WITHOUT, "--act")
    deciders = read_command_deciders(
        given["config_files"], (), given["compat"], given["feature_gates"], admits=True
    )
    if deciders.kueue is None:
        raise click.UsageError("--act needs a --config of Kueue, or --compat kueue")
    if deciders.files:
        raise click.UsageError(
            "--act admits jobs and places no pods: give the scheduler's own configuration to "
            "another run"
        )
    with (
        reported(CredentialError, logs.LogError),
        reported(CompetingSchedulerError, by=CommandFailed),
    ):
        logs.configure_logging(given["log_format"], given["log_level"], given["verbosity"])
        election = None
        if not given["no_leader_elect"]:
            found = leader_election_config(deciders, FileSettings(), given["lease_namespace"])
            if found is not None:
                election = msgspec.structs.replace(found, name=LEASE)
        options = KueueManagerOptions(
            load_client_config(given["kubeconfig"], given["context"]),
            election,
            deciders.kueue,
            given["take_over"],
        )
        return run_kueue_manager(options)
