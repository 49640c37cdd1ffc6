"""What commands about the future do."""
