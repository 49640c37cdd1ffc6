"""Shared GPUs, card by card: filter, scores, choice of cards, fragmentation, descheduling."""
