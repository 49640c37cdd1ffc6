"""Importers of published traces, a module for each format."""
