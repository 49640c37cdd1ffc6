"""Functions of CEL by library: the standard ones, and those that Kubernetes adds."""
