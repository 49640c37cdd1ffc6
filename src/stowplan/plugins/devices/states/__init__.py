"""Nodes with equal free devices answer alike."""
