"""Values of KAI-Scheduler's API groups."""
