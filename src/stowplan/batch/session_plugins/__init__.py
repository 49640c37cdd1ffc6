"""The policies that ship: what the original calls plugins."""
