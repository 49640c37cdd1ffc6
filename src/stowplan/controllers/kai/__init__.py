"""KAI-Scheduler's kinds on the embedded cluster."""
