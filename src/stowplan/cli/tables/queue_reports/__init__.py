"""Tables of reports on queues."""
