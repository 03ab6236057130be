"""Who may come in over HTTP, and as whom: the web server, named tokens, roles, secrets in files."""
