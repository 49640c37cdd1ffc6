"""Cases of queue models of other schedulers: Volcano, KAI, Kueue."""
