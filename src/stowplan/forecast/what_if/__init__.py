"""What-if and preemption previews: clusters decided before and after changes."""
