"""What-if: requested changes, applied to a cluster's objects, and the difference that they make."""
