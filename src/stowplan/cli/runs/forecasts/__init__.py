"""What commands do that answer before the fact."""
