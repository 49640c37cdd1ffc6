"""Fairness watch: repeated preemption, starving queues and long pending pods, from events."""
