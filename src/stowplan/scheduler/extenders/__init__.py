"""Extenders of the scheduler: which are asked, calls in progress, attempts that wait for them."""
