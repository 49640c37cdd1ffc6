"""Admission of pods that no API server has stored: LimitRange, ResourceQuota."""
