"""Registered plugins and the framework that calls them at the extension points."""
