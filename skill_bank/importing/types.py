"""Values of importing: what was read, what is odd about it."""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 80, 80


def shown(value: Any) -> str:
    """A value of YAML in a message, cut to a length: aliases can make it as long as they like."""
    return _SHORT.repr(value)


class Severity(StrEnum):
    """What an oddity means for the skill it is about."""

    ERROR = "error"
    """The original does not compile the skill; neither do we."""
    WARNING = "warning"
    """The skill compiles, perhaps not to what its authors meant."""
    NOTE = "note"
    """Nothing of it shows in the compiled text."""


class Kind(StrEnum):
    """What is odd."""

    ENCODING = "encoding"
    UNREADABLE = "unreadable"
    FRONT_MATTER = "front-matter"
    """Missing, or cannot be parsed."""
    UNKNOWN_KEY = "unknown-key"
    DUPLICATE_KEY = "duplicate-key"
    SPECIFICATION = "specification"
    """The compiled skill is not valid by the Agent Skills specification."""
    MISSING_FILE = "missing-file"
    MISSING_BASE = "missing-base"
    NOT_IN_BANK = "not-in-bank"
    """Declared, and nothing of it is here."""
    UNDECLARED = "undeclared"
    """Here, and declared or listed nowhere."""
    MARKER = "marker"
    """A marker that is malformed, nested, unbalanced, or loses text."""
    LEAKED_MARKER = "leaked-marker"
    """A marker in the body of a patch: it becomes part of the text."""
    DUPLICATE_SECTION = "duplicate-section"
    STATUS = "status"
    """Active in the manifest and something else in the patch."""
    ID = "id"
    FIELD = "field"
    """A field whose value means nothing, or not what it seems to."""
    MISSING_SECTION = "missing-section"
    DEPENDENCY = "dependency"
    """Dangling, or not in force."""
    CYCLE = "cycle"
    CONFLICT = "conflict"
    SHADOWED = "shadowed"
    """What a patch added and a later replace takes away."""
    ORDER = "order"
    MOVED_TEXT = "moved-text"
    """Text between sections that an inserted section moves."""
    LISTED = "listed"
    """Listed twice, active and disabled, disabled and missing."""
    PROFILE = "profile"
    LEFT_OUT = "left-out"
    """A file that no compiled text uses."""
    CHANGED = "changed"
    """What a migration changed in form."""


@dataclass(frozen=True, order=True)
class Oddity:
    """One thing about a bank that a reader should know."""

    file: str
    """Path inside the bank."""
    line: int
    """From 1; 0: the file as a whole."""
    kind: Kind
    message: str
    severity: Severity = Severity.WARNING
    skill: str = ""
    """The skill it is about; empty: the bank."""

    def __str__(self) -> str:
        where = self.file if self.line == 0 else f"{self.file}:{self.line}"
        return f"{where}: {self.kind}: {self.message}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "file": self.file,
            "line": self.line,
            "kind": str(self.kind),
            "severity": str(self.severity),
            "message": self.message,
            "skill": self.skill,
        }


@dataclass(frozen=True)
class FrontMatter:
    """Front matter as the original reads it."""

    value: Any
    """What the YAML says, usually a mapping; empty where there is none or it cannot be parsed."""
    body: str
    body_line: int
    """Line of the file where the body begins."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Key → line."""
    parsed: bool = True
    """It is there and it can be parsed."""

    @property
    def fields(self) -> dict[str, Any]:
        """The mapping; empty for anything else."""
        return self.value if isinstance(self.value, dict) else {}


@dataclass(frozen=True)
class RawSection:
    """A section of a base."""

    name: str
    content: str
    line: int
    """Line of its opening marker."""


@dataclass(frozen=True)
class RawBase:
    """`base.md`."""

    file: str
    head: FrontMatter
    sections: tuple[RawSection, ...]
    """In order; a name may occur twice."""
    gaps: Mapping[int, str]
    """Number of sections before it → text between sections."""


@dataclass(frozen=True)
class RawPatch:
    """A file of `patches/`."""

    file: str
    stem: str
    """File name without `.md`: what a manifest lists."""
    head: FrontMatter
    body: str
    """Stripped."""
    body_line: int
    """Line where the stripped body begins."""
    text: str
    """The whole file."""

    @property
    def id(self) -> Any:
        """`id` as given, else the file's name. A list or a mapping is none, and comes as text."""
        given = self.head.fields.get("id", self.stem)
        return shown(given) if isinstance(given, (list, dict, set)) else given

    @property
    def action(self) -> Any:
        return self.head.fields.get("action", "replace")

    @property
    def target(self) -> Any:
        return self.head.fields.get("target_section", "")

    @property
    def status(self) -> Any:
        return self.head.fields.get("status", "active")

    def names(self, key: str) -> list[str]:
        """The texts of a list; what is no list of texts counts as none."""
        value = self.head.fields.get(key)
        return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []

    def line(self, key: str) -> int:
        """Line of a field, else of the first line."""
        return self.head.lines.get(key, 1)


@dataclass(frozen=True)
class RawManifest:
    """`manifest.yaml`."""

    file: str
    base: str
    active: tuple[str, ...]
    disabled: tuple[str, ...]
    profiles: Mapping[str, "RawProfile"]
    lines: Mapping[str, int] = field(default_factory=dict)
    """`active.<id>`, `disabled.<id>`, `<profile>.active.<id>` → line."""


@dataclass(frozen=True)
class RawProfile:
    """A profile of a manifest."""

    description: str
    active: tuple[str, ...]
    disabled: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class RawSkill:
    """A declared skill and what could be read of it."""

    name: str
    group: str
    folder: str
    line: int
    """Line of its declaration in bank.yaml."""
    present: bool
    """There is a folder for it."""
    manifest: RawManifest | None = None
    base: RawBase | None = None
    patches: Mapping[str, RawPatch] = field(default_factory=dict)
    """File name without `.md` → patch."""
    oddities: tuple[Oddity, ...] = ()


@dataclass(frozen=True)
class RawBank:
    """A bank of the original's format."""

    version: str
    groups: Mapping[str, str]
    """Group → description."""
    skills: Mapping[str, RawSkill]
    settings: Mapping[str, Any]
    outputs: Mapping[str, str]
    """Skill → its `output`."""
    oddities: tuple[Oddity, ...]


@dataclass(frozen=True)
class AsIs:
    """What a skill compiles to."""

    skill: str
    text: str | None
    """None where an oddity is an error."""
    applied: tuple[RawPatch, ...]
    """In the order in which they were applied."""
    oddities: tuple[Oddity, ...]

    @property
    def errors(self) -> tuple[Oddity, ...]:
        """Why it does not compile."""
        return tuple(one for one in self.oddities if one.severity is Severity.ERROR)
