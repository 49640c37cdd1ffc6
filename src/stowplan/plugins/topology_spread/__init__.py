"""PodTopologySpread: topology spread constraints."""
