"""What a client of the Kubernetes API asks and understands, as values: no sockets, no clock."""
