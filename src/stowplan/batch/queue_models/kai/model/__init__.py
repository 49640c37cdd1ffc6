"""KAI-Scheduler as a queue model: pod groups of pods that name none, sessions, and reports."""
