"""Benchmarks of sessions: those of Stowplan, and those of queue models."""
