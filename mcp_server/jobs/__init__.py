"""Long work as the tools see it: started here, carried on by processes of its own, read from its files."""
