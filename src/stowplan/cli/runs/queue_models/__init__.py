"""What commands about queue models of other schedulers do."""
