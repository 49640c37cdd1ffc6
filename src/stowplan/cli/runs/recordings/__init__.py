"""What the commands that read recordings do."""
