"""NodeResourcesFit and NodeResourcesBalancedAllocation: filter and score by requested resources."""
