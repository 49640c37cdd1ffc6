"""What a kind is made of: registration, create and update strategies, table columns."""
