"""Storage: objects under keys, the change log, the registry store (writes), paged lists, the watch
cache."""
