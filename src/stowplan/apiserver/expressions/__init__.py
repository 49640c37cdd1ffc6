"""CEL as the API server has it: environments and libraries that need more than the language."""
