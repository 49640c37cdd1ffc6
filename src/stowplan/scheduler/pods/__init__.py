"""Records of pending pods, their states and transitions."""
