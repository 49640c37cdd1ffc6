"""Built-in session plugins; the original calls them plugins."""
