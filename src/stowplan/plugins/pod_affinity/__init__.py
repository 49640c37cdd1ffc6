"""InterPodAffinity: pod affinity and anti-affinity."""
