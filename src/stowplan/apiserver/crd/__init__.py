"""CustomResourceDefinitions and custom kinds."""
