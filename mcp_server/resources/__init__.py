"""What clients read, complete and are told of: resources `evo://…` and prompts."""
