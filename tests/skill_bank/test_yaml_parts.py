"""Documents with mistakes: what is right by itself is read, and everything that is wrong is told with its line."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from skill_bank_builder import SkillFiles, patch_text, write_bank

from skill_bank.bank import SkillBank
from skill_bank.yamlparts import parse_parts
from skill_bank.yamltree import YamlProblem, parse_yaml


@pytest.mark.parametrize(
    ("text", "plain", "lines", "lost"),
    [
        ('a: 1\nb: [1\nc: 2\nd: "x\ne: {a: 1}', {"a": 1, "c": 2, "e": {"a": 1}}, [2, 4], ["b", "d"]),
        (
            "g:\n  h:\n    x: {a: 1\n    y: {a: 1}\n    z\n  i: 2",
            {"g": {"h": {"y": {"a": 1}}, "i": 2}},
            [3, 5],
            ["g.h.x"],
        ),
        ("l:\n- a\n- [b\n- c\nm: 1", {"l": ["a", "c"], "m": 1}, [3], []),
        ("r:\n  - {a: 1\n  - b: 1\n    c: [\n    d: 2", {"r": [{"b": 1, "d": 2}]}, [2, 4], ["r.c"]),
        ("a: 1\n  b: 2\nc: 3", {"c": 3}, [2], ["a"]),
        ("a: |\n  k: [\nb: x: y", {"a": "k: ["}, [3], ["b"]),
        ("a: 1\nb: !!t 3\n? [1]\n: 2\na: 2\nc: &x 1", {"a": 1, "c": 1}, [2, 3, 5], []),
        ("a: [\na: 1\na: 2", {"a": 1}, [1, 3], ["a"]),
        ("- [\n- 2", [2], [1], []),
        ("{a: [1, }", {}, [1], []),
    ],
)
def test_what_is_right_by_itself_is_read(text: str, plain: Any, lines: list[int], lost: list[str]) -> None:
    parts = parse_parts(text)
    assert parts.root.plain == plain
    assert [one.line for one in parts.problems] == lines
    assert sorted(".".join(one) for one in parts.lost) == lost


_WORDS = st.sampled_from(["a", "b", "c", "d", "on", "x-1"])
_LEAVES = st.one_of(st.integers(-9, 9), st.booleans(), st.none(), st.sampled_from(["x", "two words", "3e-4"]))
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.dictionaries(_WORDS, inner, min_size=1), st.lists(inner, min_size=1)),
    max_leaves=8,
)


def _written(value: Any, depth: int) -> list[str]:
    """Lines of a value in block style."""
    pad = "  " * depth
    if isinstance(value, dict):
        return [line for key, one in value.items() for line in _entry(f"{pad}{key}:", one, depth)]
    if isinstance(value, list):
        return [line for one in value for line in _entry(f"{pad}-", one, depth)]
    return [f"{pad}{_scalar(value)}"]


def _entry(head: str, value: Any, depth: int) -> list[str]:
    if isinstance(value, dict | list):
        return [head, *_written(value, depth + 1)]
    return [f"{head} {_scalar(value)}"]


def _scalar(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(_WORDS, _TREES, min_size=1), st.integers(0, 100), st.sampled_from(["[", '"x', "x: y: z", "{a: 1"])
)
def test_one_entry_that_is_damaged_costs_that_entry_only(tree: dict[str, Any], where: int, damage: str) -> None:
    text = "\n".join(_written(tree, 0))
    assert parse_parts(text).root == parse_yaml(text)
    assert parse_parts(text).problems == ()
    names = list(tree)
    broken = names[where % len(names)]
    lines = [
        line
        for name in names
        for line in (_entry(f"{name}:", tree[name], 0) if name != broken else [f"{name}: {damage}"])
    ]
    parts = parse_parts("\n".join(lines), 10)
    expected = parse_yaml(text).plain
    del expected[broken]
    assert parts.root.plain == expected
    assert [one.line for one in parts.problems] == [10 + lines.index(f"{broken}: {damage}")]
    assert parts.lost == {(broken,)}


@settings(deadline=None)
@given(st.text("ab:-[]{}'\"#|>&*! \n\t,?%", max_size=60))
def test_any_text_gives_a_tree_or_says_why(text: str) -> None:
    parts = parse_parts(text, 5)
    try:
        root = parse_yaml(text, 5)
    except YamlProblem:
        assert parts.problems
        assert all(5 <= one.line <= 5 + text.count("\n") + 1 for one in parts.problems)
    else:
        assert parts.problems == ()
        assert parts.root == root


# What this means for a bank


def said(root: Path) -> list[str]:
    """`file:line` of each problem, in order."""
    return [f"{one.file}:{one.line}" for one in SkillBank(root).check()]


def two_skills(root: Path, body: str = "Text.", **fields: Any) -> Path:
    return write_bank(root, {"a-a": SkillFiles({"x": body}, **fields), "b-b": SkillFiles({"y": "{{policy.none}}"})})


def test_an_entry_of_the_index_that_is_no_yaml_hides_nothing(tmp_path: Path) -> None:
    root = two_skills(tmp_path, "{{policy.none}}")
    index = root / "bank.yaml"
    text = index.read_text().replace(
        "b-b: {output: x}", "b-b: {output: x\n      c-c: {protcted: [x]}\nsettings: {limit: {}}"
    )
    index.write_text(text)
    assert said(root) == [
        "bank.yaml:7",  # the brace that is missing
        "bank.yaml:8",  # a field that there is not
        "bank.yaml:9",  # a setting that there is not
        "rllm/a-a/base.md:7",
        "rllm/b-b/base.md:7",
        "rllm/c-c/base.md:0",
        "rllm/c-c/manifest.yaml:0",
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"), [("groups:", "groups", 2), ("rllm:", "rllm: [", 3), ("skills:", "skills: {", 5)]
)
def test_skills_that_the_index_cannot_name_are_found_in_their_folders(
    old: str, new: str, line: int, tmp_path: Path
) -> None:
    root = two_skills(tmp_path)
    index = root / "bank.yaml"
    index.write_text(index.read_text().replace(old, new, 1))
    found = said(root)
    assert "rllm/b-b/base.md:7" in found, found
    assert all(one.startswith("bank.yaml:") for one in found if one != "rllm/b-b/base.md:7"), found


def test_a_policy_block_that_is_no_yaml_hides_neither_its_own_other_keys_nor_other_blocks(tmp_path: Path) -> None:
    broken = "```yaml policy\nrate: [1\nsize: 500\ncolour: 1\n```"
    body = f"{{{{policy.rate.default}}}} and {{{{policy.size}}}}\n\n{broken}\n\n```yaml policy\nplan: slower\n```"
    root = two_skills(tmp_path / "base", body)
    assert said(root)[:4] == [f"rllm/a-a/base.md:{line}" for line in (10, 11, 12, 16)]
    assert said(root)[4:] == ["rllm/b-b/base.md:7"]
    patch = patch_text("p1", "none", f"{broken}\n\n```yaml policy\nplan: slower\n```", scope="all")
    root = two_skills(tmp_path / "patch", "{{policy.rate.default}}", patches={"p1": patch}, active=["p1"])
    assert said(root)[:-1] == [f"rllm/a-a/patches/p1.md:{line}" for line in (3, 10, 11, 12, 16)]


def test_a_line_of_front_matter_that_is_no_yaml_hides_nothing(tmp_path: Path) -> None:
    patch = patch_text("p1", "none", "B", sorce="x", description="a: b", depends_on="[p9]")
    root = two_skills(tmp_path, patches={"p1": patch}, active=["p1"])
    base = root / "rllm/a-a/base.md"
    base.write_text(
        base.read_text().replace("name: a-a\n", "name: other\ncolor: red\n").replace("Does a-a.", "Does: a-a")
    )
    assert said(root)[:-1] == [
        "rllm/a-a/base.md:2",
        "rllm/a-a/base.md:3",
        "rllm/a-a/base.md:4",
        *(f"rllm/a-a/patches/p1.md:{line}" for line in (3, 6, 7, 8)),
    ]


def test_a_manifest_that_is_no_yaml_hides_nothing_and_invents_nothing(tmp_path: Path) -> None:
    patches = {
        "p1": patch_text("p1", "new", "B", depends_on="[p2]"),
        "p2": patch_text("p2", "x", "C {{policy.size}}", action="insert_after", new_section="new"),
        "p3": patch_text("p3", "x", "```yaml policy\nsize: 500\n```", scope="all"),
    }
    root = two_skills(tmp_path, patches=patches)
    manifest = root / "rllm/a-a/manifest.yaml"
    manifest.write_text("base: base.md\nactive:\n  - p1\n  - [p2\n  - p3\n  - p4\ndisabled: []\nprofils: {}\n")
    assert said(root)[:-1] == [
        "rllm/a-a/manifest.yaml:4",
        "rllm/a-a/manifest.yaml:6",
        "rllm/a-a/manifest.yaml:8",
        "rllm/a-a/patches/p3.md:10",
    ]


def test_a_schema_that_is_no_yaml_in_one_place_still_says_what_the_others_allow(tmp_path: Path) -> None:
    schema = (
        "schema_version: 1\nrequired: [rate]\nkeys:\n"
        "  rate: {type: number\n  size: {type: integer, max: 100}\n  plan: {type: text}\n"
    )
    body = "```yaml policy\nrate: 1\nsize: 500\nplan: slow\n```"
    root = two_skills(tmp_path, body, schema=schema)
    assert said(root)[:-1] == ["rllm/a-a/base.md:9"] + [f"rllm/a-a/policy_schema.yaml:{line}" for line in (4, 6)]
