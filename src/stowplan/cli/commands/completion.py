"""`stowplan completion`: the completion script of a shell."""

from __future__ import annotations

import click

from stowplan.cli.command import PROGRAM, Command
from stowplan.cli.completion import SHELLS, completion_script

EXAMPLES = """
# Load completion into the current bash
source <(stowplan completion bash)

# Install completion for every zsh session
stowplan completion zsh > "${fpath[1]}/_stowplan"

# Install completion for every fish session
stowplan completion fish > ~/.config/fish/completions/stowplan.fish
"""


def _complete_shells(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [shell for shell in SHELLS if shell.startswith(incomplete)]


@click.command(name="completion", cls=Command, examples=EXAMPLES)
@click.argument("shell", metavar="SHELL", shell_complete=_complete_shells)
def command(shell: str) -> None:
    """Print the completion script of SHELL: bash (4.4 or newer), zsh or fish.

    It completes commands, options, their values, file names, and the pods of small manifests or of
    the cluster that kubectl reads. `kubectl stowplan` needs no script: kubectl 1.26 or newer calls
    kubectl_complete-stowplan, which is installed beside this program.
    """
    if shell not in SHELLS:
        must = f"must be one of: {', '.join(SHELLS)}"
        context = click.get_current_context()
        raise click.UsageError(f'SHELL: Invalid value: "{shell}": {must}', context)
    click.echo(completion_script(shell, PROGRAM), nl=False)
