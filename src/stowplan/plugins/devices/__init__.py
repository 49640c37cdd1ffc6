"""DynamicResources: resource claims."""
