"""What commands print where Kueue admits jobs."""
