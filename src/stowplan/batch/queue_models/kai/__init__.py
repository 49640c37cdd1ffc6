"""Queues as KAI-Scheduler divides a cluster among them."""
