"""What webhooks of queueing systems do to jobs."""
