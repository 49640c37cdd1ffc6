"""The Kubernetes API as a client sees it, as values: what to send, and what an answer means."""
