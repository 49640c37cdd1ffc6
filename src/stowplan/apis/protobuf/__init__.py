"""Objects of the built-in kinds as protobuf."""
