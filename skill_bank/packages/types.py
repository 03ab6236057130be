"""Values of packages."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION = 1
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
"""Names of packages, domains and agents."""
NAME_LENGTH = 64

Redactor = Callable[[str, bytes], bytes]
"""(path inside the package, content) → content without secrets."""


class PackageError(ValueError):
    """A package that cannot be built, read, promoted or installed: says why and what to do."""


class Kind(StrEnum):
    """What a package is."""

    STABLE = "stable"
    """A bank as it is, for any domain."""
    EXPERIMENTAL = "experimental"
    """For one domain, being tried."""
    VERTICAL = "vertical"
    """For one domain, proven there."""
    TASK = "task"
    """One run: configuration, logs, analysis, performance, episodes, the skills it ran under."""
    LINEAGE = "lineage"
    """Rounds a to b: reports, raw events, segments, patches, verdicts, skills."""


WITH_SKILLS = (Kind.STABLE, Kind.EXPERIMENTAL, Kind.VERTICAL)
"""Kinds that can be installed and promoted."""


class Evidence(BaseModel):
    """Why a package may be promoted."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: Literal["trial", "review"]
    reference: str = ""
    """The trial."""
    note: str = ""
    """The reviewer's words, or what the trial was about."""
    by: str = ""
    """Who reviewed."""
    verdict: str | None = None
    effect: float | None = None
    ci95: tuple[float, float] | None = None
    pairs: int | None = None
    digest: str | None = None
    """Of the trial's decision."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.kind == "trial" and (not self.reference or self.verdict != "better"):
            raise ValueError(f"a trial whose verdict is {self.verdict or 'missing'} is no reason to promote")
        if self.kind == "review" and (len(self.note.strip()) < 10 or not self.by.strip()):
            raise ValueError("a review needs the reviewer's name and a note of at least ten characters")
        return self


class PackedSkill(BaseModel):
    """A skill in a package."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str
    group: str
    digest: str
    """Of its compiled folder (`skill_bank.compile.digest_of`)."""
    patches: tuple[str, ...] = ()
    """Patches in force."""
    children: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()


class Content(BaseModel):
    """A file in a package."""

    model_config = ConfigDict(frozen=True)

    path: str
    size: int
    sha256: str
    redacted: int = 0
    """Secrets taken out of it."""


class PackageManifest(BaseModel):
    """`package.json`. It holds no time and no version, so that the same content gives the same bytes."""

    model_config = ConfigDict(frozen=True, extra="allow")

    schema_version: int = SCHEMA_VERSION
    kind: Kind
    name: str
    domain: str | None = None
    agents: tuple[str, ...] = ()
    """Agents it is meant for; empty: any."""
    description: str = ""
    base: str | None = None
    """The package it was promoted from, with version."""
    evidence: tuple[Evidence, ...] = ()
    """Of all promotions on its way, oldest first."""
    skills: tuple[PackedSkill, ...] = ()
    layout: str = "plain"
    """`settings.layout` of the bank that its sources come from."""
    facts: dict[str, Any] = Field(default_factory=dict)
    """What a record is about: run, rounds, sessions, what was missing."""
    contents: tuple[Content, ...] = ()
    """Every other file, sorted by path."""

    @property
    def id(self) -> str:
        """`stable:name`, `vertical:domain:name`."""
        return ":".join(one for one in (str(self.kind), self.domain, self.name) if one is not None)


class RegistryEntry(BaseModel):
    """A package in `registry.json`."""

    model_config = ConfigDict(extra="allow")

    id: str
    version: int
    """From 1, for each id."""
    kind: Kind
    name: str
    domain: str | None = None
    agents: tuple[str, ...] = ()
    base: str | None = None
    archive: str
    """Path of the archive beside registry.json."""
    sha256: str
    """Of the archive."""
    size: int
    skills: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    created_at: float
    """Unix seconds."""
    current: bool = True
    """The newest version of its id; only those are selected."""

    @property
    def label(self) -> str:
        """`vertical:math:careful@2`."""
        return f"{self.id}@{self.version}"


class Registry(BaseModel):
    """`registry.json`."""

    model_config = ConfigDict(extra="allow")

    schema_version: int = SCHEMA_VERSION
    packages: list[RegistryEntry] = Field(default_factory=list)


@dataclass(frozen=True)
class Package:
    """A package that was read and checked."""

    manifest: PackageManifest
    files: Mapping[str, bytes]
    """Everything but package.json."""
    sha256: str
    """Of the archive."""


@dataclass(frozen=True)
class Draft:
    """What is to be packed."""

    manifest: PackageManifest
    """Without `contents`."""
    files: Mapping[str, bytes] = field(default_factory=dict)


def check_name(text: str, what: str) -> str:
    """Returns `text` if it can be a name, else raises PackageError."""
    if NAME.match(text) is None or len(text) > NAME_LENGTH:
        raise PackageError(f"{text[:80]!r} is no {what}: a-z, 0-9 and single hyphens, at most {NAME_LENGTH}.")
    return text


def check_names(manifest: PackageManifest) -> None:
    """Raises PackageError if a name of the manifest, which becomes part of a path, can be none."""
    check_name(manifest.name, "package name")
    if manifest.domain is not None:
        check_name(manifest.domain, "domain")
    for agent in manifest.agents:
        check_name(agent, "agent")
