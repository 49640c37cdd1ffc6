"""Node lifecycle: nodes without heartbeats, their taints, and how fast zones are evicted."""
