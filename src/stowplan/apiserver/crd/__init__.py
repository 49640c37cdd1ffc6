"""CustomResourceDefinitions: their rules, and the kinds they define."""
