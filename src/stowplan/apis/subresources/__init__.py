"""Subresources that several kinds share."""
