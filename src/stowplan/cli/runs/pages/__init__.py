"""The live page of commands with `--web`."""
