"""CEL, the Common Expression Language, with the libraries that Kubernetes adds."""
