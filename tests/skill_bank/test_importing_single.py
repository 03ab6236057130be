"""A single SKILL.md becomes a bank whose compiled text is the file itself."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skill_bank.bank import SHIPPED, SkillBank
from skill_bank.importing.forms import Form
from skill_bank.importing.migrate import Migration, write_migration
from skill_bank.importing.single import import_single
from skill_bank.importing.types import Kind, Severity

HEAD = "---\nname: deploy\ndescription: Deploys.\n---\n"


def sections(migration: Migration, tmp_path: Path) -> list[str]:
    write_migration(migration, tmp_path)
    bank = SkillBank(tmp_path)
    (name,) = bank.skills()
    built = bank.compile(dry_run=True).skills[name]
    assert built.files["SKILL.md"].decode("utf-8") == migration.texts[name]
    return [one.name for one in bank.source(name).base.sections]


def test_headings_become_sections_and_the_text_stays(tmp_path: Path) -> None:
    text = HEAD + (
        "\n# Deploy\n\nIntro.\n\n## When to use\n\nNow.\n\n### Detail\n\nmore\n\n\n## 何时\n```sh\n## no heading\n```\n"
        "\n## When to use\nagain\n"
    )
    (tmp_path / "SKILL.md").write_text(text, encoding="utf-8")
    migration = import_single(tmp_path)
    assert migration.texts == {"deploy": text}
    assert sections(migration, tmp_path / "bank") == ["when-to-use", "section", "when-to-use-2"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("\nJust text.\n\nMore.\n", ["body"]),
        ("\n# A\na\n\n# B\nb\n", ["a", "b"]),
        ("\n# Title\n\n## Only\nx\n", ["only"]),
        ("\n# Title\ntext\n", ["title"]),
        ("no blank line\n## A\n## B\n", ["a", "b"]),
        ("## A\n\n\n", ["a"]),
        ("\n## Lost\n<!-- section:x -->\ntext\n\n## Next\n", ["lost", "next"]),
    ],
)
def test_the_main_level_of_headings_is_found(tmp_path: Path, body: str, expected: list[str]) -> None:
    path = tmp_path / "SKILL.md"
    path.write_text(HEAD + body, encoding="utf-8")
    migration = import_single(path)
    assert migration.errors == ()
    assert migration.texts == {"deploy": HEAD + body}
    assert sections(migration, tmp_path / "bank") == expected


def test_what_changes_is_said(tmp_path: Path) -> None:
    path = tmp_path / "my skill" / "SKILL.md"
    path.parent.mkdir()
    path.write_bytes(b"---\ndescription: d\nargument-hint: '[x]'\n---\r\n# T\r\nno end")
    (path.parent / "run.sh").write_text("true", encoding="utf-8")
    migration = import_single(path.parent)
    assert migration.texts == {
        "my-skill": "---\ndescription: d\nmetadata:\n  argument-hint: '[x]'\nname: my-skill\n---\n# T\nno end\n"
    }
    kinds = {one.kind for one in migration.oddities}
    assert kinds == {Kind.ENCODING, Kind.CHANGED, Kind.LEFT_OUT}
    assert sum(one.kind is Kind.CHANGED for one in migration.oddities) == 2


@pytest.mark.parametrize("text", ["no front matter\n", "---\nname: x\n", "---\nname: [x\n---\n", "---\nname: x\n---\n"])
def test_what_cannot_be_imported_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "SKILL.md"
    path.write_text(text, encoding="utf-8")
    migration = import_single(path)
    assert migration.files == {}
    assert all(one.severity is Severity.ERROR for one in migration.errors)
    assert migration.errors


def test_the_shipped_skills_can_be_imported_again() -> None:
    for folder in sorted((SHIPPED / "compiled").iterdir()):
        migration = import_single(folder)
        assert migration.errors == (), folder.name
        assert migration.texts == {folder.name: (folder / "SKILL.md").read_text(encoding="utf-8")}
        assert migration.forms == {folder.name: Form.PATCHES}


LINES = st.sampled_from(
    ["", "text", "  indented", "# One", "## Two", "## Two", "### Three", "- item", "```", "~~~", "<!-- section:x -->",
     "<!-- \\section:x -->", "   ", "标题", "## 标题"]
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=st.lists(LINES, max_size=14))
def test_any_text_stays_what_it_is(body: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("single") / "SKILL.md"
    text = HEAD + "\n".join([*body, ""])
    path.write_text(text, encoding="utf-8")
    migration = import_single(path)
    if migration.errors:  # a fence that never ends
        assert sum(line in ("```", "~~~") for line in body) > 0
        return
    assert migration.texts == {"deploy": text}
