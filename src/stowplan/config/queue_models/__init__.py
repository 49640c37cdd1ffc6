"""Configurations of queue models as their schedulers read them, and which one a file means."""
