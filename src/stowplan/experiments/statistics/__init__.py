"""Statistics of experiments: what differs between two configurations, and how surely."""
