"""Groups of pods that are scheduled together: their members, and the nodes that may take them."""
