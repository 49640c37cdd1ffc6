"""Kinds of other projects: types as tables, what is invalid in them, schemas for definitions."""
