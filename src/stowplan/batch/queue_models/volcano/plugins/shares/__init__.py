"""Plugins about queues: what each deserves, and may have."""
