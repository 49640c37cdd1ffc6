"""What commands do that run experiments and show their results."""
