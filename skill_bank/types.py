"""Values of the skill bank: what is on disk (sections, patches, manifests), what is wrong with it, what was built."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from skill_bank.policy import Assignment, CompiledPolicy, Origin

if TYPE_CHECKING:
    from skill_bank.schema import Schema


class PatchAction(StrEnum):
    """What a patch does to its target section."""

    REPLACE = "replace"
    """Its body takes the place of the section's text. Policy blocks of the section stay: a later value overrides."""
    APPEND = "append"
    """Its body follows the section's text, inside the section."""
    PREPEND = "prepend"
    """Its body precedes the section's text, inside the section."""
    INSERT_AFTER = "insert_after"
    """Its body follows the section; with `new_section` it is a section of that name."""


class PatchStatus(StrEnum):
    """Where a patch is in its life. Only an active one, listed by the manifest, compiles."""

    DRAFT = "draft"
    STAGED = "staged"
    """Validated; may be tried."""
    ACTIVE = "active"
    REJECTED = "rejected"
    ARCHIVED = "archived"
    """Was active once, or was folded into the base."""


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong with a bank."""

    file: str
    """Path inside the bank."""
    line: int
    """From 1; 0: the file as a whole."""
    message: str
    fix: str
    """What to do about it."""

    def __str__(self) -> str:
        where = self.file if self.line == 0 else f"{self.file}:{self.line}"
        return f"{where}: {self.message}. {self.fix}"


class BankError(ValueError):
    """What a bank refuses to do. `problems` holds every reason found, in order of file and line."""

    def __init__(self, problems: list[Problem] | tuple[Problem, ...]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(str(one) for one in self.problems))


@dataclass(frozen=True)
class PolicyBlock:
    """A fenced `yaml policy` block, parsed."""

    assignments: tuple[Assignment, ...]
    line: int
    order: int = 0
    """Place in the order of merging among blocks that a squash folded into the base; 0: a block of the base itself."""
    whole: bool = True
    """False: not all of it can be read."""


@dataclass(frozen=True)
class Text:
    """Prose with its policy blocks taken out."""

    prose: str
    """Line feeds at both ends are stripped."""
    blocks: tuple[PolicyBlock, ...]
    line: int
    """Line of the file where the text begins."""
    numbers: tuple[int, ...] = ()
    """Line of the file of each line of `prose`."""
    edges: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """The blank lines stripped before and behind it; a bank with `settings.layout: verbatim` keeps them."""
    raw: str = ""
    """As written, policy blocks included, each line with its line feed."""
    after: str = ""
    """In a base: the section behind which a patch inserted this text, before a squash."""


@dataclass(frozen=True)
class Section:
    """A named part of a skill."""

    name: str
    text: Text
    line: int
    """Line of its opening marker."""
    after: str = ""
    """The section behind which a patch inserted this one, before a squash."""


@dataclass(frozen=True)
class Base:
    """`base.md`: front matter, then sections and the text between them, in order."""

    file: str
    front_matter: str
    """As written, without its fences."""
    fields: Mapping[str, Any]
    parts: tuple[Section | Text, ...]

    @property
    def sections(self) -> tuple[Section, ...]:
        return tuple(part for part in self.parts if isinstance(part, Section))


@dataclass(frozen=True)
class Patch:
    """One file of `patches/`."""

    file: str
    skill: str
    id: str
    target_section: str
    action: PatchAction
    status: PatchStatus
    text: Text
    description: str = ""
    source: str = ""
    created: str = ""
    depends_on: tuple[str, ...] = ()
    """`001-x` of the same skill, or `other-skill:001-x`."""
    conflicts_with: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    """Patches whose effect on the section this `replace` takes over."""
    superseded_by: str = ""
    new_section: str | None = None
    scope: Mapping[str, Any] | None = None
    """Condition outside which the patch's policy changes nothing; empty: everywhere; None: not stated."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Front matter field → line."""

    @property
    def is_foreign(self) -> bool:
        """Whether it depends on, or conflicts with, patches of other skills."""
        return any(":" in one for one in (*self.depends_on, *self.conflicts_with))

    def line_of(self, name: str) -> int:
        """Line of a front matter field, else of the file's first line."""
        return self.lines.get(name, 1)


@dataclass(frozen=True)
class Profile:
    """A variant of a skill: which patches are in force."""

    name: str
    description: str
    active: tuple[str, ...]
    disabled: tuple[str, ...]
    line: int
    base: str | None = None
    """Base of its own: what the skill's was before a squash that the profile has no part in. None: the skill's."""
    folded: tuple[str, ...] = ()
    """Patches whose text is part of that own base."""


@dataclass(frozen=True)
class Manifest:
    """`manifest.yaml`: which patches are in force, in which order (where dependencies leave it open)."""

    file: str
    base: str
    active: tuple[str, ...]
    disabled: tuple[str, ...]
    profiles: Mapping[str, Profile]
    lines: Mapping[str, int] = field(default_factory=dict)
    """`active.<id>`, `disabled.<id>`, `profiles.<name>.active.<id>` → line."""
    folded: tuple[str, ...] = ()
    """Patches that a squash made part of the base: in force without being applied."""
    whole: bool = True
    """False: not all of it can be read, so it may list more."""


@dataclass(frozen=True)
class SkillSource:
    """All of one skill on disk, parsed."""

    group: str
    name: str
    base: Base
    manifest: Manifest
    patches: Mapping[str, Patch]
    schema: "Schema | None"
    """The declared policy schema, where the skill has one."""
    broken: frozenset[str] = frozenset()
    """What cannot be read: ids of patch files, and the names of the base and of `policy_schema.yaml`."""
    bases: Mapping[str, Base] = field(default_factory=dict)
    """File name → base, of the profiles that have their own."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """Path inside the bank → SHA-256 of each file read."""
    foreign: tuple[str, ...] = ()
    """Patches that depend on, or conflict with, patches of other skills."""
    damaged: Mapping[str, Patch] = field(default_factory=dict)
    """What can be read of patches that are broken: enough to find what else is wrong with them."""
    unusable: Mapping[str, str | None] = field(default_factory=dict)
    """Text of the other broken patches; None: it cannot be read."""
    warnings: tuple[Problem, ...] = ()
    """What lies in the folder and is left out."""

    def folded(self, profile: str | None) -> frozenset[str]:
        """Patches that are part of the base that a profile builds on."""
        chosen = self.manifest.profiles.get(profile) if profile is not None else None
        return frozenset(self.manifest.folded if chosen is None or chosen.base is None else chosen.folded)

    def with_damaged(self) -> "SkillSource":
        """For checking only: with the broken patches among the others, as far as they can be read."""
        if not self.damaged:
            return self
        foreign = (id_ for id_, patch in self.damaged.items() if patch.is_foreign)
        return replace(self, patches={**self.patches, **self.damaged}, foreign=(*self.foreign, *foreign))

    def base_of(self, profile: str | None) -> Base:
        """The base that a profile builds on."""
        chosen = self.manifest.profiles.get(profile) if profile is not None else None
        own = None if chosen is None or chosen.base is None else self.bases.get(chosen.base)
        return self.base if own is None else own


@dataclass(frozen=True)
class BuiltSkill:
    """A skill as the compiler made it, in memory."""

    group: str
    name: str
    profile: str | None
    files: Mapping[str, bytes]
    """File name → content: SKILL.md, and policy.json where the skill has policy."""
    policy: CompiledPolicy | None
    patches: tuple[str, ...]
    """Patches applied, in order."""
    digest: str
    """SHA-256 over the names and contents of `files`, in hex."""
    trace: "Callable[[], tuple[Origin | None, ...]]"
    """Makes `origins`."""
    warnings: tuple[Problem, ...] = ()
    """What does not forbid the skill, by the settings of its bank, and ought to be mended."""
    tokens: int = 0
    """Estimated size of SKILL.md for a model (`skill_bank.measure`)."""

    @property
    def origins(self) -> tuple[Origin | None, ...]:
        """Where each line of SKILL.md was written; None: a blank line that separates. Made when it is asked for."""
        return self.trace()


@dataclass(frozen=True)
class PatchText:
    """A patch that is not in the bank (yet): the whole file's text."""

    skill: str
    id: str
    text: str


@dataclass(frozen=True)
class SkillInfo:
    """A skill at a glance."""

    name: str
    group: str
    description: str
    children: tuple[str, ...]
    active: tuple[str, ...]
    patches: Mapping[str, str]
    """Patch → status."""
    profiles: tuple[str, ...]
    has_policy: bool
    version: int | None
    digest: str | None
    stale: bool
    """The sources changed since they were compiled."""
    problems: tuple[Problem, ...]
    pinned: int | None = None
    """Version to which it is pinned."""
