"""What every package says of the product: name, version, description, tools."""

from importlib.metadata import version
from typing import Any

PRODUCT = "mcp-evo"

AUTHOR = {"name": "The mcp-evo authors"}

LICENSE = "MIT"

KEYWORDS = ["mcp", "reinforcement-learning", "grpo", "agents", "skills"]

DESCRIPTION = "Trains small tool-using language agents and proves every improvement of the skills they train with."
"""At most 100 characters, the registry's limit."""


def product_version() -> str:
    """The version that is installed."""
    return version(PRODUCT)


def tools() -> list[dict[str, Any]]:
    """The server's tools with the first sentence of what each says."""
    from mcp_server.tooling import make_tool
    from mcp_server.tools import all_specs

    made = [make_tool(spec) for spec in all_specs()]
    return [{"name": tool.name, "description": first_sentence(tool.description or "")} for tool in made]


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a sentence."""
    head, stop, _ = text.partition(". ")
    return head + "." if stop else head
