"""The quick reading of simple front matter gives what the YAML parser gives, or nothing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from skill_bank.yamlsimple import parse_simple
from skill_bank.yamltree import YamlProblem, parse_yaml

PIECES = (
    *("a", "B", "3", "0", "-", "+", ".", ",", ":", "#", " ", "  ", "'", '"', "[", "]", "{", "}", "<", ">", "=", "%"),
    *(
        "true",
        "null",
        "no",
        "on",
        "~",
        "1e-3",
        "0x1f",
        ".5",
        "2026-01-01",
        "&a",
        "*a",
        "!t",
        "|",
        "\\",
        "\t",
        "é",
        "学",
    ),
    *("[a, 'b']", '{params: "<10M"}', "{a: 'x', b: \"y\"}", "[]", "- x", "a: b", "a #b", "---"),
)
KEYS = ("a", "b", "id", "true", "null", "on", "a-b", "_x", "N", "1", "~", "")


@settings(max_examples=1500, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(KEYS), st.lists(st.sampled_from(PIECES), max_size=4), st.sampled_from((": ", ":"))),
        max_size=3,
    )
)
def test_the_same_tree_or_none(rows: list[tuple[str, list[str], str]]) -> None:
    text = "\n".join(f"{key}{colon}{''.join(parts)}" for key, parts, colon in rows)
    quick = parse_simple(text, 2)
    if quick is None:
        return
    try:
        slow = parse_yaml(text, 2)
    except YamlProblem as problem:
        raise AssertionError(f"{text!r} is no YAML: {problem}") from problem
    assert repr(quick) == repr(slow)  # repr, because 1 == 1.0 == True


def test_the_usual_head_of_a_patch_is_read_quickly() -> None:
    text = (
        'id: 001-a\ntarget_section: one\naction: append\ndescription: "Lower it, then watch: it helps."\n'
        "created: '2026-01-01'\nscope: {params: \"<10M\"}\ndepends_on: ['000-x', other]\nstatus: active"
    )
    quick = parse_simple(text, 2)
    assert quick is not None
    assert repr(quick) == repr(parse_yaml(text, 2))
    assert parse_simple("a:\n  - b", 2) is None
