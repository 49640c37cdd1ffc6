"""NodeAffinity: node selectors and node affinity."""
