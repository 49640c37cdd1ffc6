"""Binding cycles: from the chosen node to the confirmed binding."""
