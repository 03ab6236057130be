"""The documented formats of what clients and registries install, as models that refuse what the formats do not know.

Sources: Claude Code plugins and hooks (code.claude.com/docs, plugins reference and hooks reference), MCP bundles
(manifest 0.4 of @anthropic-ai/mcpb), the registry's `server.json` of 2025-12-11. Names are the formats' own.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

KebabName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
Version = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+[0-9A-Za-z.+-]*$", max_length=255)]
Url = Annotated[str, StringConstraints(pattern=r"^https://[^\s]+$")]


class FormatError(ValueError):
    """A file that is not in its format: names the file, the place and what is expected there."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Author(_Strict):
    """Who a plugin or bundle is by."""

    name: str = Field(min_length=1)
    email: str | None = None
    url: Url | None = None


# ---- servers and hooks of Claude Code and Claude Desktop


class StdioServer(_Strict):
    """A server that the client starts."""

    type: Literal["stdio"] | None = None
    """Named in files of Claude Code; Claude Desktop knows no other."""
    command: str = Field(min_length=1)
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)


class ServersFile(_Strict):
    """`.mcp.json` and `claude_desktop_config.json`, as far as servers go."""

    mcpServers: dict[KebabName, StdioServer] = Field(min_length=1)


class HookHandler(_Strict):
    """What runs when an event happens."""

    type: Literal["command"]
    command: str = Field(min_length=1)
    args: list[str] | None = Field(default=None)
    timeout: Annotated[int, Field(gt=0)] | None = None
    """Seconds."""
    run_async: bool | None = Field(default=None, alias="async")


class HookGroup(_Strict):
    """Handlers of one event, for the tools that `matcher` names."""

    matcher: str | None = None
    hooks: list[HookHandler] = Field(min_length=1)


HookEvent = Literal[
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "PermissionRequest",
    "PermissionDenied",
    "UserPromptSubmit",
    "Notification",
    "Stop",
    "StopFailure",
    "SubagentStart",
    "SubagentStop",
    "SessionStart",
    "SessionEnd",
    "PreCompact",
    "PostCompact",
    "Elicitation",
    "ElicitationResult",
]
"""Events that Claude Code documents, as far as a recorder could want them."""


class HooksFile(_Strict):
    """`hooks/hooks.json` of a plugin."""

    description: str | None = None
    hooks: dict[HookEvent, list[HookGroup]]


class PluginManifest(_Strict):
    """`.claude-plugin/plugin.json`. Components lie in the folders where Claude Code looks for them."""

    name: KebabName
    version: Version
    description: str = Field(min_length=1)
    author: Author
    homepage: Url | None = None
    repository: Url | None = None
    license: str | None = None
    keywords: list[str] = Field(default_factory=list)


class MarketplaceEntry(_Strict):
    """A plugin of a marketplace."""

    name: KebabName
    source: Annotated[str, StringConstraints(pattern=r"^\./([A-Za-z0-9_-]+/?)*$")]
    """Below the marketplace's own folder."""
    description: str | None = None


class Marketplace(_Strict):
    """`.claude-plugin/marketplace.json`: lets a folder be added to Claude Code and the plugin be installed from it."""

    name: KebabName
    description: str | None = None
    owner: Author
    plugins: list[MarketplaceEntry] = Field(min_length=1)


# ---- MCP bundles


class BundleCommand(_Strict):
    """How a bundle's server is started; `${__dirname}`, `${user_config.KEY}` and `${HOME}` are replaced."""

    command: str = Field(min_length=1)
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)


class BundleServer(_Strict):
    """The server of a bundle."""

    type: Literal["python", "node", "binary", "uv"]
    entry_point: str = Field(min_length=1)
    mcp_config: BundleCommand


class BundleTool(_Strict):
    """A tool, as the client shows it before the server has run."""

    name: str = Field(min_length=1)
    description: str | None = None


class BundleSetting(_Strict):
    """A value that the client asks its user for."""

    type: Literal["string", "number", "boolean", "directory", "file"]
    title: str = Field(min_length=1)
    description: str = Field(min_length=1)
    required: bool = False
    default: str | float | bool | None = None
    sensitive: bool | None = None


class Compatibility(_Strict):
    """Where a bundle runs."""

    claude_desktop: str | None = None
    platforms: list[Literal["darwin", "win32", "linux"]] = Field(default_factory=list)


class BundleManifest(_Strict):
    """`manifest.json` of an MCP bundle."""

    manifest_version: Literal["0.4"]
    name: KebabName
    display_name: str | None = None
    version: Version
    description: str = Field(min_length=1)
    long_description: str | None = None
    author: Author
    license: str | None = None
    keywords: list[str] = Field(default_factory=list)
    server: BundleServer
    tools: list[BundleTool] = Field(default_factory=list)
    tools_generated: bool = False
    prompts_generated: bool = False
    compatibility: Compatibility | None = None
    user_config: dict[str, BundleSetting] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _settings_that_are_used_exist(self) -> "BundleManifest":
        config = self.server.mcp_config
        texts = " ".join((config.command, *config.args, *config.env.values()))
        named = set(re.findall(r"\$\{user_config\.([^}]+)\}", texts))
        if named != set(self.user_config):
            raise ValueError(f"settings used {sorted(named)} and settings declared {sorted(self.user_config)} differ")
        return self


# ---- the registry


class RegistryInput(_Strict):
    """A value that a client passes or asks for."""

    description: str | None = None
    format: Literal["string", "number", "boolean", "filepath"] | None = None
    isRequired: bool | None = None
    isSecret: bool | None = None
    value: str | None = None
    default: str | None = None
    placeholder: str | None = None


class RegistryVariable(RegistryInput):
    """An environment variable."""

    name: str = Field(min_length=1)


class RegistryArgument(RegistryInput):
    """A positional argument; it has a value or a hint for one."""

    type: Literal["positional"]
    valueHint: str | None = None

    @model_validator(mode="after")
    def _says_what_stands_there(self) -> "RegistryArgument":
        if self.value is None and self.valueHint is None:
            raise ValueError("a positional argument needs value or valueHint")
        return self


class RegistryTransport(_Strict):
    """How a client talks to the package."""

    type: Literal["stdio"]


class RegistryPackage(_Strict):
    """Where the server is installed from."""

    registryType: Literal["pypi"]
    identifier: str = Field(min_length=1)
    version: Version
    transport: RegistryTransport
    packageArguments: list[RegistryArgument] = Field(default_factory=list)
    environmentVariables: list[RegistryVariable] = Field(default_factory=list)


class RegistryServer(_Strict):
    """`server.json`."""

    schema_url: Literal["https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"] = Field(
        alias="$schema"
    )
    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", min_length=3, max_length=200)]
    title: str | None = Field(default=None, min_length=1, max_length=100)
    description: str = Field(min_length=1, max_length=100)
    version: Version
    packages: list[RegistryPackage] = Field(min_length=1)


def checked(model: type[_Strict], document: Any, what: str) -> Any:
    """`document` as it is, if it is in the format. Raises FormatError that names `what` and every place."""
    try:
        model.model_validate(document)
    except ValidationError as error:
        lines = [
            f"{what}: {'.'.join(map(str, one['loc'])) or 'the document'}: {one['msg']}"
            for one in error.errors(include_url=False)
        ]
        raise FormatError("\n".join(lines)) from error
    return document
