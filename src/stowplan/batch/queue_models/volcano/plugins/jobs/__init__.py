"""Plugins about jobs: gangs, priorities, what may be evicted."""
