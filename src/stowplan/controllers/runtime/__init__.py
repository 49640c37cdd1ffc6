"""What controllers share: API access, index of owners, work queue, event recorder, controller
base."""
