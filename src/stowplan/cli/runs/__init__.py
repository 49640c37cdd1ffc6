"""What the subcommands do once their arguments are read."""
