"""HorizontalPodAutoscaler controller on simulated metrics."""
