"""Plugins of Volcano."""
