"""The compiled skills: as they are served, and whether what they say holds."""
