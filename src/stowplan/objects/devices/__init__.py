"""Devices that nodes report: cards of Yoda reports, and devices of Dynamic Resource Allocation."""
