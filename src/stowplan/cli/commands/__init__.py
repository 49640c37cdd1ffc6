"""One module per subcommand: its options and its help text."""
