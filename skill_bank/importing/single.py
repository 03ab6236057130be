"""One SKILL.md, or a folder with one, as a bank of our format: headings become sections, the text stays the same."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from skill_bank.compile import compile_skills, load_bank
from skill_bank.format import Reader
from skill_bank.importing.forms import Form, corrected_head, escaped
from skill_bank.importing.migrate import REPORT_FILE, Migration, index_text
from skill_bank.importing.reading import Notes, read_front_matter, read_text
from skill_bank.importing.types import Kind, Oddity, Severity
from skill_bank.index import NAME
from skill_bank.types import BankError

_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)\Z")


@dataclass(frozen=True)
class _Heading:
    line: int
    """Index in the body's lines."""
    level: int
    text: str


def import_single(path: Path, group: str = "imported") -> Migration:
    """A bank with the one skill of a SKILL.md (or of the folder it is in). Nothing is written."""
    file = path / "SKILL.md" if path.is_dir() else path
    notes = Notes()
    text = read_text(file.parent, file.name, notes) if file.is_file() else None
    if not file.is_file():
        notes.error(file.name, 0, Kind.MISSING_FILE, f"there is no SKILL.md in {path}")
    if NAME.match(group) is None:
        notes.error("bank.yaml", 0, Kind.FIELD, f"'{group}' is no group name: a-z, 0-9, hyphens")
    if text is None or any(one.severity is Severity.ERROR for one in notes.found):
        return Migration({}, {}, {}, (), tuple(notes.found))
    for other in sorted(file.parent.rglob("*")) if path.is_dir() else ():
        if other.is_file() and other != file:
            notes.note(other.relative_to(file.parent).as_posix(), 0, Kind.LEFT_OUT, "not taken over: only SKILL.md is")
    before = len(notes.found)
    head = read_front_matter(text, file.name, notes, Severity.ERROR)
    if any(one.severity is Severity.ERROR for one in notes.found[before:]):
        return Migration({}, {}, {}, (), tuple(notes.found))
    given = head.fields.get("name")
    name = given if isinstance(given, str) and NAME.match(given) is not None and len(given) <= 64 else _slug(
        str(given or (path.resolve().name if path.is_dir() else file.parent.resolve().name)), "skill"
    )  # fmt: skip
    lines = text.split("\n")
    raw = "\n".join(lines[1 : head.body_line - 2])
    try:
        fixed, why = corrected_head(raw, head.fields, name)
    except (ValueError, RecursionError) as error:
        notes.error(file.name, 1, Kind.FIELD, f"the front matter cannot be used: {error}")
        return Migration({}, {}, {}, (), tuple(notes.found))
    if fixed != raw:
        notes.add(file.name, 1, Kind.CHANGED, f"the front matter is written anew, as it was not valid: {why}")
    body = head.body
    if not text.endswith("\n"):
        notes.add(file.name, len(lines), Kind.CHANGED, "a line feed is added at the end")
        body += "\n" if body else ""
    base = f"---\n{fixed}\n---\n{_sectioned(body, notes, file.name, head.body_line)}"
    expected = f"---\n{fixed}\n---\n{body}"
    plain = {
        "bank.yaml": index_text({group: "imported skills"}, {name: group}, {}, "1.0"),
        f"{group}/{name}/base.md": base.encode("utf-8"),
        f"{group}/{name}/manifest.yaml": b"base: base.md\nactive: []\ndisabled: []\nprofiles: {}\n",
    }
    form = Form.PATCHES
    problems = _differs(plain, name, expected)
    if problems:  # a code block may run across a heading that looks like one
        form = Form.TEXT
        plain[f"{group}/{name}/base.md"] = f"---\n{fixed}\n---\n{escaped(body)}".encode()
        notes.add(file.name, 0, Kind.CHANGED, f"no sections: {problems[0]}")
        for problem in _differs(plain, name, expected):
            notes.error(file.name, 0, Kind.CHANGED, f"cannot be imported: {problem}")
    oddities = tuple(sorted(set(notes.found)))
    if any(one.severity is Severity.ERROR for one in oddities):
        return Migration({}, {}, {}, (), oddities)
    plain[REPORT_FILE] = _report(name, form, oddities)
    return Migration(plain, {name: expected}, {name: form}, (), oddities)


def _differs(files: dict[str, bytes], name: str, expected: str) -> list[str]:
    bank = load_bank(Reader(Path("/nonexistent"), files))
    try:
        built = compile_skills(bank, [name])[name]
    except BankError as error:
        return [str(one) for one in error.problems]
    return [] if built.files["SKILL.md"] == expected.encode("utf-8") else ["the text would change"]


def _report(name: str, form: Form, oddities: Sequence[Oddity]) -> bytes:
    document = {
        "schema_version": 1,
        "skills": {name: str(form)},
        "left_out": [],
        "oddities": [one.as_dict() for one in oddities],
    }
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8")


def headings(body: str) -> list[_Heading]:
    """The headings (`#`) outside of code blocks."""
    found: list[_Heading] = []
    fence: str | None = None
    for number, line in enumerate(body.split("\n")):
        code = _FENCE.match(line)
        if fence is None and code is not None:
            fence = code[1]
        elif fence is not None:
            if code is not None and not code[2].strip() and code[1].startswith(fence):
                fence = None
        elif (heading := _HEADING.match(line)) is not None:
            found.append(_Heading(number, len(heading[1]), heading[2] or ""))
    return found


def _sectioned(body: str, notes: Notes, file: str, first: int) -> str:
    """The body with markers around what each heading of the main level heads.

    The main level is the highest one that occurs twice, or, where none does, the lowest below a single title; what
    comes before the first such heading stays outside of sections.
    """
    found = headings(body)
    counts = {level: sum(one.level == level for one in found) for level in range(1, 7)}
    repeated = [level for level in counts if counts[level] > 1]
    present = [level for level in counts if counts[level]]
    if not present:
        notes.add(file, first, Kind.MARKER, "no headings: the whole text is one section, `body`")
        stripped = body.strip("\n")
        start = len(body) - len(body.lstrip("\n"))
        return f"{body[:start]}<!-- section:body -->\n{escaped(stripped)}\n<!-- /section:body -->\n{_tail(body)}"
    level = min(repeated) if repeated else present[-1]
    level = min(level, next((one for one in present if one > 1), level)) if counts[1] <= 1 else level
    heads = [one for one in found if one.level <= level and not (one.level < level and one is found[0])]
    lines = [escaped(line) for line in body.split("\n")]
    ends = [one.line for one in heads[1:]] + [len(lines)]
    taken: set[str] = set()
    out = lines[: heads[0].line]
    for one, end in zip(heads, ends, strict=True):
        chunk = lines[one.line : end]
        blank = 0
        while len(chunk) > 1 and not chunk[-1].strip():
            chunk.pop()
            blank += 1
        name = _slug(one.text, "section")
        number = 2
        while name in taken:
            name = f"{_slug(one.text, 'section')}-{number}"
            number += 1
        taken.add(name)
        out += [f"<!-- section:{name} -->", *chunk, f"<!-- /section:{name} -->", *lines[end - blank : end]]
    return "\n".join(out)


def _tail(body: str) -> str:
    return body[len(body.rstrip("\n")) + 1 :]


def _slug(text: str, otherwise: str) -> str:
    """A name from a text: a-z, 0-9, single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-") or otherwise
