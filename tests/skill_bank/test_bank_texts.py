"""Strict YAML, policy blocks, schemas, base and patch files: what is accepted, and the line of what is not."""

import pytest
from skill_bank_builder import SCHEMA, patch_text

from skill_bank.blocks import parse_block
from skill_bank.markdown import parse_base
from skill_bank.patchfile import parse_patch
from skill_bank.policy_check import check_policy, contexts
from skill_bank.schema import parse_schema
from skill_bank.types import Section
from skill_bank.yamltree import YamlProblem, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1.0e-5", 1e-5),
        (".5", 0.5),
        ("7", 7),
        ("-2", -2),
        ("1.0", 1.0),
        ("on", "on"),
        ("yes", "yes"),
        ("true", True),
        ("null", None),
        ("2026-05-11", "2026-05-11"),
        ("1:30", "1:30"),
        ("0x10", "0x10"),
        (".inf", ".inf"),
        ("'7'", "7"),
    ],
)
def test_scalars_of_the_core_schema(text: str, value: object) -> None:
    found = parse_yaml(f"a: {text}").plain["a"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("a: 1\nb: 2\na: 3", 3, "twice"),
        ("a: &x 1\nb: *x", 2, "aliases"),
        ("a: !!python/object:os.system 1", 1, "tag"),
        ("a: 1\nb: [1, 2", 2, "not YAML"),
        ("a: 1\n  b: 2", 2, "not YAML"),
        ("? [1]\n: 2", 1, "word"),
        ("a: 1\n---\nb: 2", 2, "not YAML"),
        ("a: 1\nb: " + "[" * 150 + "]" * 150, 2, "inside each other"),
        ("a: 1\nb: " + "[" * 5000, 2, "not YAML"),
    ],
)
def test_what_is_not_strict_yaml_is_refused_with_its_line(text: str, line: int, word: str) -> None:
    with pytest.raises(YamlProblem, match=word) as caught:
        parse_yaml(text)
    assert abs(caught.value.line - line) <= 1


def block(text: str) -> list[tuple[str, object, object, int]]:
    found, wrong = parse_block(text, 100, skill="s", section="x", patch="base", file="f.md")
    assert wrong == ()
    return [(one.key, one.value, one.when, one.origin.line) for one in found]


def test_a_block_becomes_assignments_with_their_lines() -> None:
    assert block(
        'rate:\n  - {when: {params: "<10M"}, default: 3e-4, min: 1e-6}\n  - {default: 1e-5}\nsize: 4\n'
        "nested: {a: 1, b: {c: x}}\nlist: [1, 2]\nwait:\n  - {value: 3}\n  - {when: {lora: true}, value: 5}\n"
    ) == [
        ("rate.default", 3e-4, {"params": "<10M"}, 101),
        ("rate.min", 1e-6, {"params": "<10M"}, 101),
        ("rate.default", 1e-5, None, 102),
        ("size", 4, None, 103),
        ("nested.a", 1, None, 104),
        ("nested.b.c", "x", None, 104),
        ("list", [1, 2], None, 105),
        ("wait", 3, None, 107),
        ("wait", 5, {"lora": True}, 108),
    ]


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("", 100, "not a mapping"),
        ("- 1", 100, "not a mapping"),
        ("a: 1\nA: 2", 101, "not a policy key"),
        ("a: {}", 100, "empty mapping"),
        ("a:\n  - {when: {params: x}, b: 1}", 101, "not a range"),
        ("a:\n  - {when: {size: 1}, b: 1}", 101, "knows no key"),
        ("a:\n  - {when: {lora: true}}", 101, "sets nothing"),
        ("a: {when: {lora: true}, b: 1}", 100, "not in a rule"),
        ("a:\n  - {b: 1}\n  - 3", 101, "mixes"),
        ("a:\n  - {when: {lora: true}, b: [{c: 1}]}", 101, "rules inside a rule"),
        ("a: 1e999", 100, "finite"),
        ("a: [1", 100, "not YAML"),
    ],
)
def test_blocks_that_are_refused(text: str, line: int, word: str) -> None:
    _, (problem, *_) = parse_block(text, 100, skill="s", section="x", patch="base", file="f.md")
    assert word in problem.message
    assert problem.line == line


def complaints(text: str, schema: str = SCHEMA) -> list[tuple[int, str]]:
    found, wrong = parse_block(text, 1, skill="s", section="x", patch="p", file="f.md")
    declared, mistakes = parse_schema(schema, "schema")
    assert declared is not None
    assert (wrong, mistakes) == ((), ())
    return [(one.line, one.message) for one in check_policy(declared, list(found))]


def test_a_good_policy_has_no_complaints() -> None:
    assert complaints("rate: {min: 1e-6, default: 1e-4, max: 1}\nsize: 4\nplan: fast") == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("colour: 3", "no policy key 'colour'"),
        ("rate: {maxx: 1}", "has no 'maxx'"),
        ("rate: 3", "needs a mapping"),
        ("size: 4.0", "must be an integer"),
        ("size: true", "must be an integer"),
        ("size: 0", "at least 1"),
        ("size: 101", "at most 100"),
        ("size: null", "may not be null"),
        ("rate: {default: 0}", "above 0"),
        ("plan: slowly", "allowed are fast, slow"),
        ("size: [1]", "must be an integer"),
    ],
)
def test_values_outside_the_schema(text: str, word: str) -> None:
    found = complaints(text)
    assert len(found) == 1
    assert word in found[0][1]


def test_a_default_outside_its_range_is_found_in_the_context_where_it_happens() -> None:
    text = (
        "rate:\n"
        "  - {min: 1e-6, default: 1e-4, max: 1e-3}\n"
        '  - {when: {params: "<10M"}, max: 1e-2}\n'
        '  - {when: {params: "<20M", lora: true}, default: 5e-3}\n'
    )
    found = complaints(text)
    # With adapters, a model under 10 M may take 5e-3; from 10 M to 20 M the bound is still 1e-3.
    assert len(found) == 1
    line, message = found[0]
    assert line == 4
    assert "rate.default 0.005 is above rate.max 0.001 (where params" in message


def test_contexts_tell_every_class_apart() -> None:
    found, _ = parse_block(
        'a: [{when: {params: "<10M"}, value: 1}, {when: {params: "5M-20M", env: x}, value: 2}]',
        1,
        skill="s",
        section="x",
        patch="p",
        file="f",
    )
    sizes = {one.get("params") for one in contexts(list(found))}
    assert sizes == {None, 0, 10_000_000, 5_000_000, 20_000_000}
    assert {one.get("env") for one in contexts(list(found))} == {None, "x"}


def test_required_keys_and_fields() -> None:
    schema = (
        "schema_version: 1\nrequired: [a]\nkeys:\n  a: {type: mapping, required: [b], fields: {b: {type: integer}, "
        "c: {type: integer}}}\n"
    )
    assert complaints("a: {b: 1}", schema) == []
    assert "needs 'b'" in complaints("a: {c: 1}", schema)[0][1]
    found = complaints("a: [{when: {lora: true}, b: 1}]", schema)
    assert any("required and nothing sets it" in message for _, message in found)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("keys: {a: {type: integer}}", "schema_version"),
        ("schema_version: 1", "keys"),
        ("schema_version: 1\nkeys: {a: {type: int}}", "type"),
        ("schema_version: 1\nkeys: {a: {type: integer, size: 3}}", "unknown size"),
        ("schema_version: 1\nkeys: {a: {type: string, min: 3}}", "min"),
        ("schema_version: 1\nkeys: {a: {type: list}}", "of"),
        ("schema_version: 1\nkeys: {a: {type: mapping}}", "fields"),
        ("schema_version: 1\nrequired: [b]\nkeys: {a: {type: integer}}", "required"),
    ],
)
def test_schemas_that_are_refused(text: str, word: str) -> None:
    _, wrong = parse_schema(text, "schema")
    assert any(word in message for _, message in wrong), wrong


GOOD = """---
name: s
description: Does it.
---

# S

<!-- section:one -->
First.

```yaml policy
size: 4
```

Second.
<!-- /section:one -->

Between.

<!-- section:two -->
<!-- /section:two -->
"""


def test_a_base_keeps_sections_and_the_text_between_them() -> None:
    base, problems = parse_base(GOOD, "base.md", "s")
    assert problems == ()
    assert base is not None
    assert [part.name if isinstance(part, Section) else part.prose for part in base.parts] == [
        "# S",
        "one",
        "Between.",
        "two",
        "",
    ]
    one = base.sections[0]
    assert one.text.prose == "First.\n\nSecond."
    assert one.text.numbers == (9, 10, 15)
    assert [(each.key, each.value, each.origin.line) for each in one.text.blocks[0].assignments] == [("size", 4, 12)]


@pytest.mark.parametrize(
    ("old", "new", "line", "word"),
    [
        ("---\nname: s", "name: s", 1, "no front matter"),
        ("Does it.\n---", "Does it.", 1, "never ends"),
        ("name: s", "name: t", 2, "in the folder of s"),
        ("description: Does it.", "description: {a: 1}", 3, "braces"),
        ("description: Does it.", "colour: red", 3, "no field 'colour'"),
        ("description: Does it.", "description: a: b", 3, "not YAML"),
        ("<!-- /section:one -->", "", 8, "never ends"),
        ("<!-- section:two -->", "<!-- section:one -->", 20, "twice"),
        ("Second.", "<!-- section:in -->", 15, "opens inside"),
        ("<!-- /section:one -->", "<!-- /section:uno -->", 16, "not open here"),
        ("Second.", "see <!-- section:one -->", 15, "cannot be read"),
        ("Between.", "```yaml policy\nsize: 3\n```", 18, "outside of every section"),
        ("size: 4\n```", "size: 4", 11, "never ends"),
        ("size: 4", "size: [", 13, "not YAML"),
    ],
)
def test_what_is_wrong_with_a_base_is_named_with_its_line(old: str, new: str, line: int, word: str) -> None:
    assert old in GOOD
    _, problems = parse_base(GOOD.replace(old, new, 1), "base.md", "s")
    assert [one for one in problems if word in one.message and abs(one.line - line) <= 1], problems


def test_all_that_is_wrong_with_a_patch_is_said_at_once() -> None:
    text = (
        "---\nid: other\naction: remove\nstatus: proposed\nnew_section: Bad Name\nscope: {size: 3}\nsorce: x\n---\n"
        "<!-- section:x -->\nrun !`rm -rf x`\n"
    )
    _, problems = parse_patch(text, "r/s/patches/001-x.md", "s")
    said = "\n".join(str(one) for one in problems)
    for word in (
        "the id 'other' is not the file's name",
        "no `target_section`",
        "`action` is 'remove'. Allowed are replace, append, prepend, insert_after",
        "`status` is 'proposed'. Allowed are draft, staged, active, rejected, archived",
        "'Bad Name' is not a section name",
        "scope",
        "knows no field 'sorce'",
        "a section marker inside the body",
        "adds a command",
    ):
        assert word in said, word
    assert all(one.file == "r/s/patches/001-x.md" and one.line >= 1 and one.fix for one in problems)


def test_policy_of_a_patch_stays_inside_its_scope() -> None:
    rule = '```yaml policy\nrate:\n  - {when: {params: "%s"}, default: 1e-4}\n```'
    for size, fine in (("<10M", True), ("<5M", True), ("1M-2M", True), ("<11M", False), (">=5M", False)):
        text = patch_text("001-x", "one", rule % size, scope='{params: "<10M"}')
        patch, problems = parse_patch(text, "r/s/patches/001-x.md", "s")
        assert (patch is not None) is fine, (size, problems)
        if not fine:
            assert "outside of the patch's scope" in problems[0].message
            assert problems[0].line == 11
    text = patch_text("001-x", "one", "```yaml policy\nsize: 3\n```", scope='{params: "<10M"}')
    assert "outside" in parse_patch(text, "r/s/patches/001-x.md", "s")[1][0].message
    text = patch_text("001-x", "one", "```yaml policy\nsize: 3\n```")
    assert "states no scope" in parse_patch(text, "r/s/patches/001-x.md", "s")[1][0].message
    text = patch_text("001-x", "one", "```yaml policy\nsize: 3\n```", scope="all")
    assert parse_patch(text, "r/s/patches/001-x.md", "s")[1] == ()
