"""Skills over MCP (SEP-2640, extension `io.modelcontextprotocol/skills`): the compiled skills for clients that load
skills themselves.

`skills/list` and `skills/get` give entries with digests, `resources/directory/read` the folders, `resources/read` the
files; each SKILL.md is in `resources/list` as well. `served_skills` says what is served; this module only speaks the
protocol. Reading a skill here is no work by it: only `load_skill` marks the record.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import anyio.to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CacheableResult, PaginatedRequestParams, PaginatedResult, Resource
from mcp_types import RequestParams as Params
from pydantic import BaseModel, ConfigDict, Field

from mcp_server.skills.served import (
    SCHEME,
    SKILL_FILE,
    ServedFile,
    ServedSkill,
    ServedSkills,
    UnservedSkill,
    mime_type_of,
)
from mcp_server.tooling import is_domain_error

EXTENSION_ID = "io.modelcontextprotocol/skills"

DIRECTORY = "inode/directory"
"""Media type of a folder."""

PAGE = 50
"""Skills, or entries of a folder, in one answer."""

T = TypeVar("T")


class SkillFile(BaseModel):
    """A file of a skill with what its content has to be."""

    model_config = ConfigDict(defer_build=True)  # a server that nobody asks for skills starts without it

    uri: str
    digest: str
    size: int
    """Bytes."""


class SkillEntry(BaseModel):
    """A skill: its front matter and all of its files."""

    model_config = ConfigDict(defer_build=True)

    uri: str
    frontmatter: dict[str, Any]
    resources: list[SkillFile]

    @classmethod
    def of(cls, skill: ServedSkill) -> "SkillEntry":
        """The entry of a skill."""
        files = [SkillFile(uri=one.uri, digest=one.digest, size=len(one.content)) for one in skill.files.values()]
        return cls(uri=skill.uri, frontmatter=dict(skill.frontmatter), resources=files)


class ListSkillsResult(PaginatedResult, CacheableResult):
    """Answer of `skills/list`."""

    skills: list[SkillEntry]


class GetSkillResult(CacheableResult):
    """Answer of `skills/get`."""

    skill: SkillEntry


class ReadDirectoryResult(PaginatedResult, CacheableResult):
    """Answer of `resources/directory/read`: what lies directly in a folder. Clients expect what lists have, how long it
    may be kept."""

    resources: list[Resource]


class UriParams(Params):
    """A skill by the URI of its SKILL.md."""

    uri: str = Field(max_length=2000)


class DirectoryParams(PaginatedRequestParams):
    """A folder."""

    uri: str = Field(max_length=2000)


class SkillsExtension(Extension):
    """The three methods, and what they need of the resources."""

    identifier = EXTENSION_ID

    def __init__(self, skills: ServedSkills) -> None:
        self._skills = skills

    def settings(self) -> dict[str, Any]:
        """Folders can be read."""
        return {"directoryRead": True}

    def methods(self) -> Sequence[MethodBinding]:
        """In both protocol eras; a client of the older one finds the extension only by trying."""
        return (
            MethodBinding("skills/list", PaginatedRequestParams, self._list),
            MethodBinding("skills/get", UriParams, self._get),
            MethodBinding("resources/directory/read", DirectoryParams, self._directory),
        )

    async def _list(self, ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams) -> ListSkillsResult:
        entries = await _asked(lambda: [SkillEntry.of(one) for one in self._skills.all()])
        page, cursor = _page(entries, params.cursor, lambda one: one.uri)
        return ListSkillsResult(skills=page, next_cursor=cursor)

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: UriParams) -> GetSkillResult:
        return GetSkillResult(skill=await _asked(lambda: SkillEntry.of(self._skills.get(params.uri))))

    async def _directory(self, ctx: ServerRequestContext[Any, Any], params: DirectoryParams) -> ReadDirectoryResult:
        children = await _asked(lambda: self._skills.directory(params.uri))
        page, cursor = _page([_resource(*one) for one in children], params.cursor, lambda one: str(one.uri))
        return ReadDirectoryResult(resources=page, next_cursor=cursor)

    def add_template(self, server: MCPServer[Any]) -> None:
        """Registers the template under which files are found and completed; `read` answers for it."""

        @server.resource("skill://{skill}/{+path}", name="skill-file", title="File of a skill")
        async def skill_file(skill: str, path: str) -> str | bytes:
            """A file of a compiled skill: SKILL.md, policy.json, references/versions.md."""
            return await self._content(f"{SCHEME}{skill}/{path}")

    async def listed(self) -> list[Resource]:
        """What `resources/list` holds of the skills: every SKILL.md under its skill's name and description.

        Empty where the bank cannot be read: the other resources are listed all the same.
        """

        def read() -> list[Resource]:
            return [
                Resource(
                    uri=one.uri,
                    name=one.name,
                    description=str(one.frontmatter["description"]),
                    mime_type=mime_type_of(SKILL_FILE),
                    size=len(one.files[SKILL_FILE].content),
                )
                for one in self._skills.all()
            ]

        try:
            return await _asked(read)
        except MCPError:
            return []

    async def read(self, uri: str) -> Iterable[ReadResourceContents]:
        """A file of a skill for `resources/read`, under its own media type. Raises ResourceError."""
        return [ReadResourceContents(content=await self._content(uri), mime_type=mime_type_of(uri))]

    async def _content(self, uri: str) -> str | bytes:
        try:
            return _text_or_bytes(await anyio.to_thread.run_sync(self._skills.read, uri))
        except UnservedSkill as problem:
            raise ResourceNotFoundError(str(problem)) from problem
        except Exception as problem:
            if not is_domain_error(problem):
                raise
            raise ResourceError(str(problem)) from problem


def serves(uri: str) -> bool:
    """Whether a resource is a skill's."""
    return uri.startswith(SCHEME)


def _text_or_bytes(file: ServedFile) -> str | bytes:
    """Text where it is text that comes out as the same bytes again."""
    try:
        return file.content.decode("utf-8")
    except UnicodeDecodeError:
        return file.content


def _resource(uri: str, file: ServedFile | None) -> Resource:
    name = uri.rpartition("/")[2]
    if file is None:
        return Resource(uri=uri, name=name, mime_type=DIRECTORY)
    return Resource(uri=uri, name=name, mime_type=file.mime_type, size=len(file.content))


def _page(found: list[T], cursor: str | None, key: Callable[[T], str]) -> tuple[list[T], str | None]:
    """The page behind the entry that the cursor names, and the cursor of the next one. Raises MCPError."""
    begin = 0
    if cursor is not None:
        begin = next((index + 1 for index, one in enumerate(found) if key(one) == cursor), 0)
        if begin == 0:
            raise MCPError(
                code=INVALID_PARAMS, message="the cursor belongs to no list that there is: begin anew without"
            )
    page = found[begin : begin + PAGE]
    return page, key(page[-1]) if begin + len(page) < len(found) else None


async def _asked(read: Callable[[], T]) -> T:
    """What a reading function finds; what it refuses becomes an error of the protocol. Raises MCPError."""
    try:
        return await anyio.to_thread.run_sync(read)
    except UnservedSkill as problem:
        raise MCPError(code=INVALID_PARAMS, message=str(problem)) from problem
    except Exception as problem:
        if not is_domain_error(problem):
            raise
        raise MCPError(code=INTERNAL_ERROR, message=str(problem)) from problem
