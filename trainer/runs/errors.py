"""Errors of the run layer, named by the boundary they cross. Each message says what to do next."""


class RunError(Exception):
    """A run that does not exist, cannot be read, or cannot be started."""


class WorkspaceError(Exception):
    """A workspace that cannot be found, created or written."""
