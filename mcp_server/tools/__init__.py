"""The tools of the server, thin: each one checks, calls one function of the domain, and shapes the answer.

Modules import nothing of the domain at import time: a client's first question is what tools there are, and the answer
must not wait for numeric libraries.
"""

from mcp_server.tooling import ToolSpec


def all_specs() -> list[ToolSpec]:
    """Every tool, in the order in which the loop uses them."""
    from mcp_server.tools import (
        comparing,
        evaluating,
        experience,
        monitoring,
        patches,
        rounds,
        searching,
        skills,
        training,
        trajectories,
    )

    return [
        *training.SPECS,
        *monitoring.SPECS,
        *comparing.SPECS,
        *evaluating.SPECS,
        *trajectories.SPECS,
        *searching.SPECS,
        *skills.SPECS,
        *patches.SPECS,
        *rounds.SPECS,
        *experience.SPECS,
    ]
