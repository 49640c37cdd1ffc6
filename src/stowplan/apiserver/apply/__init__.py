"""Server-side apply, and the record of which manager has set which fields."""
