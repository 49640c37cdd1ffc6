"""Actions of a session of KAI-Scheduler, and the search for victims that they share."""
