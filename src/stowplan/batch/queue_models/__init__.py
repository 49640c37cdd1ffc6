"""Queue models of other schedulers, each with its own session state."""
