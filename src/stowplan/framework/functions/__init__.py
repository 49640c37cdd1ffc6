"""Plugins and priorities made of plain functions."""
