"""Which plugin counts GPU cards one by one in sessions."""

from __future__ import annotations

from stowplan.plugins.gpu_share.gpu_share import GpuShare

CardPlugin = GpuShare
"""The plugin that counts GPU cards one by one."""
