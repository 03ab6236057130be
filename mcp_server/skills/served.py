"""The compiled skills as other programs get them over the protocol: their files, digests and front matter.

1. A skill is `skill://<name>`: the files of its compiled folder, byte for byte, and `references/versions.md`, which
   says which patches were in force from version to version. A promotion or a rollback changes the skill's digests, so a
   client that bound its user's approval to them asks again and can show why.
2. A skill is read as a whole through one handle of its folder, which writers exchange but never change: what is listed
   belongs together. Links, and anything else that is no plain file, are refused.
3. Without a workspace the shipped skills are served, which are what the first tool call would put into it. Nothing is
   created by reading.
4. A skill beyond the limits that every client has to take is not served, and the log says so.
"""

import hashlib
import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp_server.state import ServerState

if TYPE_CHECKING:
    from skill_bank.reading import ReadableBank
    from skill_bank.versions import VersionRecord

SCHEME = "skill://"

SKILL_FILE = "SKILL.md"

VERSIONS_FILE = "references/versions.md"
"""The one file that no compiled folder holds; it is written from the record of versions."""

MAX_FILES = 512
"""Files of one skill that every client has to take (SEP-2640, Limits)."""

MAX_BYTES = 16 * 1024 * 1024
"""Bytes of one skill that every client has to take (SEP-2640, Limits)."""

MAX_VERSIONS_TOLD = 50
"""The newest versions in `references/versions.md`."""

ATTEMPTS = 3
"""Looks at a folder that is exchanged again and again under our eyes."""

_MIME = {".md": "text/markdown", ".json": "application/json", ".yaml": "application/yaml", ".txt": "text/plain"}

logger = logging.getLogger(__name__)


class UnservedSkill(Exception):
    """There is no such skill, file or folder; the message says what there is."""


@dataclass(frozen=True)
class ServedFile:
    """One file of a skill."""

    uri: str
    content: bytes

    @property
    def digest(self) -> str:
        """`sha256:` and 64 hexadecimal digits of the content."""
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"

    @property
    def mime_type(self) -> str:
        """By its ending."""
        return mime_type_of(self.uri)

    @property
    def name(self) -> str:
        """Without its folder."""
        return self.uri.rpartition("/")[2]


@dataclass(frozen=True)
class ServedSkill:
    """One skill with everything that belongs to it."""

    name: str
    frontmatter: Mapping[str, Any]
    """The head of its SKILL.md, field by field as it stands there."""
    files: Mapping[str, ServedFile]
    """Path inside the skill → file; SKILL.md first, the others in order of their paths."""

    @property
    def root(self) -> str:
        """Its folder, `skill://rllm-train`."""
        return f"{SCHEME}{self.name}"

    @property
    def uri(self) -> str:
        """Its SKILL.md, which is its identity."""
        return f"{self.root}/{SKILL_FILE}"

    def children(self, folder: str) -> list[tuple[str, ServedFile | None]]:
        """(URI, file; None for a folder) of what lies directly in a folder, '' being the skill's own.

        Raises UnservedSkill where there is no such folder.
        """
        prefix = f"{folder}/" if folder else ""
        found: dict[str, ServedFile | None] = {}
        for path, file in self.files.items():
            if path.startswith(prefix):
                name, _, below = path[len(prefix) :].partition("/")
                found[f"{self.root}/{prefix}{name}"] = None if below else file
        if not found:
            raise UnservedSkill(f"{self.root}/{folder} is no folder of that skill")
        return list(found.items())


class ServedSkills:
    """The skills of a server's workspace."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._bank: ReadableBank | None = None

    def all(self) -> Iterator[ServedSkill]:
        """Every skill that can be served, in the order of the bank. Raises BankError for a bank that cannot be read."""
        bank = self._read_bank()
        for name in bank.skills():
            try:
                yield _skill(bank, name)
            except UnservedSkill as problem:
                logger.warning("%s", problem)

    def get(self, uri: str) -> ServedSkill:
        """The skill of a SKILL.md. Raises UnservedSkill, BankError."""
        name, path = _split(uri)
        if path != SKILL_FILE:
            raise UnservedSkill(
                f"{uri} is no skill: a skill is named by its {SKILL_FILE}, for instance {self._example()}"
            )
        return self._named(uri, name)

    def read(self, uri: str) -> ServedFile:
        """One file. Raises UnservedSkill, BankError."""
        name, path = _split(uri)
        skill = self._named(uri, name)
        file = skill.files.get(path)
        if file is None:
            raise UnservedSkill(f"there is no file {uri}; {skill.root} has {', '.join(skill.files)}")
        return file

    def directory(self, uri: str) -> list[tuple[str, ServedFile | None]]:
        """What lies directly in a folder. Raises UnservedSkill, also for a file; BankError."""
        name, path = _split(uri)
        skill = self._named(uri, name)
        if path in skill.files:
            raise UnservedSkill(f"{uri} is a file, not a directory resource")
        return skill.children(path)

    def files_of(self, name: str) -> list[str]:
        """The URIs of a skill's files. Raises UnservedSkill, BankError."""
        return [file.uri for file in self._named(f"{SCHEME}{name}", name).files.values()]

    def names(self) -> tuple[str, ...]:
        """The names of the skills. Raises BankError."""
        return self._read_bank().skills()

    def _named(self, uri: str, name: str) -> ServedSkill:
        bank = self._read_bank()
        if name not in bank.skills():
            raise UnservedSkill(f"no skill is served at {uri}. There are: {', '.join(bank.skills())}")
        return _skill(bank, name)

    def _example(self) -> str:
        return f"{SCHEME}{next(iter(self.names()), 'name')}/{SKILL_FILE}"

    def _read_bank(self) -> "ReadableBank":
        """The workspace's bank; the shipped one as long as the workspace has none."""
        from skill_bank.reading import ReadableBank
        from skill_bank.seeding import SHIPPED

        own = self._state.root / "skills"
        root = own if (own / "bank.yaml").exists() else SHIPPED
        if self._bank is None or self._bank.root != root:
            self._bank = ReadableBank(root)
        return self._bank


def mime_type_of(uri: str) -> str:
    """The media type of a file by its ending."""
    return _MIME.get(os.path.splitext(uri)[1], "application/octet-stream")


def _split(uri: str) -> tuple[str, str]:
    """(skill, path inside it) of a URI as it was given: nothing in it is decoded, so nothing can be hidden in it."""
    name, _, path = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not name:
        raise UnservedSkill(f"{uri!r:.200} is not of the form {SCHEME}<skill>/<file>")
    return name, path


def _skill(bank: "ReadableBank", name: str) -> ServedSkill:
    """One skill as it is now. Raises UnservedSkill where it is not compiled, damaged or beyond the limits."""
    from skill_bank.types import BankError

    folder = bank.compiled_folder(name)
    for attempt in range(ATTEMPTS):
        try:
            files = _files(str(folder))
            break
        except FileNotFoundError as problem:  # never compiled, or exchanged between two steps
            if attempt == ATTEMPTS - 1:
                raise UnservedSkill(f"skill {name} is not compiled: compile_skills does it") from problem
        except OSError as problem:
            raise UnservedSkill(f"skill {name} cannot be read ({problem.strerror})") from problem
    if SKILL_FILE not in files:
        raise UnservedSkill(f"skill {name} is not compiled: compile_skills does it")
    try:
        history = bank.history(name)
    except BankError as problem:
        raise UnservedSkill(f"skill {name} has no readable history: {problem}") from problem
    files.setdefault(VERSIONS_FILE, versions_text(name, history).encode())
    size = sum(map(len, files.values()))
    if len(files) > MAX_FILES or size > MAX_BYTES:
        raise UnservedSkill(
            f"skill {name} is not served: {len(files)} files, {size} bytes; allowed are {MAX_FILES} and {MAX_BYTES}"
        )
    order = sorted(files, key=lambda path: (path != SKILL_FILE, path))
    return ServedSkill(
        name=name,
        frontmatter=_frontmatter(name, files[SKILL_FILE]),
        files={path: ServedFile(f"{SCHEME}{name}/{path}", files[path]) for path in order},
    )


def _files(folder: str) -> dict[str, bytes]:
    """Path → content of every file below a folder, all through one handle. Raises OSError, also for a link."""
    found: dict[str, bytes] = {}
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _gather(handle, "", found)
    finally:
        os.close(handle)
    return found


def _gather(handle: int, prefix: str, found: dict[str, bytes]) -> None:
    for name in sorted(os.listdir(handle)):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe in the way must not hold us up
        one = os.open(name, flags, dir_fd=handle)
        try:
            seen = os.fstat(one)
            if stat.S_ISDIR(seen.st_mode):
                _gather(one, f"{prefix}{name}/", found)
            elif stat.S_ISREG(seen.st_mode) and len(found) <= MAX_FILES:
                with os.fdopen(os.dup(one), "rb") as stream:
                    found[f"{prefix}{name}"] = stream.read(MAX_BYTES + 1)
        finally:
            os.close(one)


def _frontmatter(name: str, content: bytes) -> dict[str, Any]:
    """The head of a SKILL.md. Raises UnservedSkill where a client could not read it either."""
    from skill_bank.markdown import front_matter
    from skill_bank.types import Problem

    problems: list[Problem] = []
    head = front_matter(content.decode("utf-8", "replace"), SKILL_FILE, problems)
    value = None if head is None or problems else head.node.plain
    if not isinstance(value, dict) or value.get("name") != name or not value.get("description"):
        told = "; ".join(map(str, problems)) or "its name and description are not there"
        raise UnservedSkill(f"skill {name} is not served, its front matter is damaged: {told}")
    return value


def versions_text(name: str, history: "list[VersionRecord]") -> str:
    """`references/versions.md`: the versions of a skill, the newest first, each with the patches in force."""
    lines = [f"# Versions of {name}", ""]
    if not history:
        lines.append("As shipped; no version is recorded yet.")
    for record in reversed(history[-MAX_VERSIONS_TOLD:]):
        when = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(record.created_at))
        back = "" if record.restored is None else f", the text of version {record.restored} again"
        patches = ", ".join(record.patches) or "none"
        lines.append(f"- {record.number}, {when}{back}. Patches in force: {patches}. Digest: {record.digest}")
    if len(history) > MAX_VERSIONS_TOLD:
        lines.append(f"- {len(history) - MAX_VERSIONS_TOLD} older ones: `mcp-evo skills history {name}`")
    return "\n".join(lines) + "\n"
