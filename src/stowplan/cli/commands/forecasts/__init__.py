"""Commands that answer before the fact."""
