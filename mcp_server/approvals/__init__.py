"""The ways on which a person's decision reaches the server."""
