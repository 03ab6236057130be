"""Short forms: what is left out, what is cut, what cannot be seen; numbers worked out by hand."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import TextContent
from pydantic import Field

from mcp_server.answers import MAX_ANSWER_BYTES, Answer, Next, Part, answer, clip, compact, next_text
from mcp_server.tooling import describe, shallow, without_titles
from mcp_server.tools.monitoring import check_again_s
from mcp_server.views.runs import Step, seconds_per_step, steps_of, thinned
from skill_bank.visible import visible, visible_text

MARK = "\N{REPLACEMENT CHARACTER}"


class Inner(Part):
    count: int = 0
    name: str


class Example(Answer):
    rows: list[Inner]
    more: list[str] = Field(default_factory=list)
    note: str | None = None


DATA = Example(rows=[Inner(name="a"), Inner(name="b", count=2)], next=Next(say="Go.", tool="list_runs"))


def test_what_is_as_by_default_is_left_out_and_what_is_required_stays() -> None:
    assert compact(DATA) == {
        "rows": [{"name": "a"}, {"name": "b", "count": 2}],
        "next": {"say": "Go.", "tool": "list_runs"},
    }
    empty = Example(rows=[], next=Next(say="Go."))
    assert compact(empty) == {"rows": [], "next": {"say": "Go."}}


def test_an_answer_is_one_line_with_the_call_that_can_be_read_back() -> None:
    result = answer("two\nlines,   spaced", DATA)
    (part,) = result.content
    assert part.type == "text"
    assert part.text == "two lines, spaced Next: Go. → list_runs {}"
    step = Next(say="Do it.", tool="try_patch", arguments={"patch_id": "001-x", "wait_s": 5})
    name, _, arguments = next_text(step).split(" → ")[1].partition(" ")
    assert (name, json.loads(arguments)) == ("try_patch", step.arguments)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain 中文 é 👍", "plain 中文 é 👍"),
        ("red \x1b[31mtext", f"red {MARK}[31mtext"),
        ("abc\u202edcba", f"abc{MARK}dcba"),
        ("zero\u200bwidth\ufeff", f"zero{MARK}width{MARK}"),
        ("tag\U000e0041", f"tag{MARK}"),
        ("nul\x00", f"nul{MARK}"),
        ("kept\ttab\nline", "kept\ttab\nline"),
    ],
)
def test_characters_that_cannot_be_seen_are_marked(text: str, expected: str) -> None:
    assert visible_text(text) == expected
    assert visible({"a": [text, 1, None]}) == {"a": [expected, 1, None]}


class Found(Answer):
    """An answer with parts that may be shortened."""

    elastic = ("notes", "settings", "diff")
    notes: list[str] = Field(default_factory=list)
    settings: dict[str, int] = Field(default_factory=dict)
    diff: str = ""
    hits: list[str] = Field(default_factory=list)


@given(
    notes=st.lists(st.text(max_size=400), max_size=60),
    settings=st.dictionaries(st.text(max_size=40), st.integers(0, 9), max_size=200),
    diff=st.text(max_size=200).map(lambda text: text * 100),
)
def test_an_answer_that_is_too_long_loses_what_is_most_dispensable(
    notes: list[str], settings: dict[str, int], diff: str
) -> None:
    whole = Found(notes=notes, settings=settings, diff=diff, next=Next(say="go on"))
    result = answer("found", whole).structured_content
    assert result is not None
    assert len(json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()) <= MAX_ANSWER_BYTES
    full, cut = compact(whole), result.get("cut", {})
    for name in Found.elastic:
        if name in full:
            kept = list(result[name].items()) if name == "settings" else result[name]
            original = list(full[name].items()) if name == "settings" else full[name]
            assert kept == original[: len(kept)]
            assert cut.get(name, len(original)) == len(original)
            assert (name in cut) is (len(kept) < len(original))
    if "diff" in cut:
        assert len(result.get("notes", [])) <= 1, "notes are given up first"


def test_what_the_caller_asked_for_is_not_shortened() -> None:
    hits = ["x" * 200] * 100
    assert answer("found", Found(hits=hits, next=Next(say="go on"))).structured_content == {
        "hits": hits,
        "next": {"say": "go on"},
    }


def test_what_comes_next_hides_nothing_either() -> None:
    step = Next(say="look", tool="search_experience", arguments={"query": "a\u202eb\u200bc"})
    (part,) = answer("one", Found(next=step)).content
    assert isinstance(part, TextContent)
    assert part.text == f'one Next: look → search_experience {{"query": "a{MARK}b{MARK}c"}}'


@given(st.text(max_size=200), st.integers(min_value=2, max_value=80))
def test_clipping_keeps_one_line_within_the_limit(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    assert len(clipped) <= limit
    assert "\n" not in clipped
    assert "\r" not in clipped
    if len(" ".join(text.split())) <= limit:
        assert clipped == visible_text(" ".join(text.split()))


@given(st.integers(min_value=0, max_value=500), st.integers(min_value=2, max_value=60))
def test_thinning_keeps_first_and_last_and_order(count: int, limit: int) -> None:
    steps = [Step(step=number + 1) for number in range(count)]
    kept = thinned(steps, limit)
    assert len(kept) == min(count, limit)
    assert [one.step for one in kept] == sorted({one.step for one in kept})
    if count:
        assert (kept[0].step, kept[-1].step) == (1, count)


def test_steps_hold_three_digits_and_leave_out_what_was_not_measured() -> None:
    rows = [
        {"step": 1, "reward_mean": 0.123456, "seconds": {"generate": 1.0, "update": 0.5}},
        {"step": 2, "reward_mean": None, "entropy": float("1.23456e-5")},
        {"note": "no step"},
    ]
    first, second = steps_of(rows, 0)
    assert first == Step(step=1, reward=0.123, s=1.5)
    assert second == Step(step=2, entropy=1.23e-5)
    assert steps_of(rows, 1) == [second]


def test_pace_is_the_median_of_the_last_gaps() -> None:
    # times 0, 2, 4, 6, 30 (an evaluation), 32: gaps 2, 2, 2, 24, 2; their median is 2
    rows = [{"step": number, "time_s": time} for number, time in enumerate((0.0, 2.0, 4.0, 6.0, 30.0, 32.0), start=1)]
    assert seconds_per_step(rows) == 2.0
    assert seconds_per_step(rows[:1]) is None
    assert seconds_per_step([]) is None
    timed = [
        {"step": number, "time_s": 3.0, "seconds": {"generate": 2.0, "update": 0.5 + number}} for number in (1, 2, 3)
    ]
    assert seconds_per_step(timed) == 4.5, "phases that are measured say it: 3.5, 4.5, 5.5"


@pytest.mark.parametrize(
    ("pace", "left", "expected"),
    [(None, None, 5), (2.0, None, 6), (2.0, 3.0, 3), (0.1, 100.0, 1), (90.0, 4000.0, 120), (2.0, 0.0, 1)],
)
def test_when_to_look_again(pace: float | None, left: float | None, expected: int) -> None:
    assert check_again_s(pace, left) == expected


def test_schemas_lose_titles_and_null_but_keep_a_property_named_title() -> None:
    schema = {
        "title": "Arguments",
        "type": "object",
        "properties": {
            "title": {"title": "Title", "type": "string"},
            "limit": {
                "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
                "default": None,
                "title": "Limit",
            },
        },
    }
    assert without_titles(schema) == {
        "type": "object",
        "properties": {"title": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
    }


def test_an_output_schema_holds_what_is_required() -> None:
    schema = {
        "properties": {
            "next": {"$ref": "#/$defs/Next"},
            "state": {"type": "string", "description": "queued …"},
            "plain": {"type": "integer"},
        },
        "required": ["next"],
    }
    assert shallow(schema) == {"type": "object", "required": ["next"]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "number", "minimum": 0, "maximum": 45}, "x (number 0 … 45)"),
        ({"enum": ["a", "b"]}, 'x ("a" | "b")'),
        ({}, "x (any)"),
    ],
)
def test_an_argument_in_a_few_words(schema: dict[str, object], expected: str) -> None:
    assert describe("x", schema) == expected
