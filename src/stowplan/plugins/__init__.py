"""In-tree plugins, a module or package per plugin or family."""
