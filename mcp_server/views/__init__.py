"""Short views for answers."""
