"""Tables and other text that the subcommands print."""
