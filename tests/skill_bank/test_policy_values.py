"""Conditions, resolution and policy.json."""

import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skill_bank.files import read_json
from skill_bank.policy import (
    Assignment,
    CompiledPolicy,
    Origin,
    ParamRange,
    PolicyError,
    check_condition,
    describe_condition,
    implies,
    matches,
    parse_params,
)

BASE = Origin("rllm-config", "sizes", "base", "rllm/rllm-config/base.md", 10)
PATCH = Origin("rllm-config", "sizes", "001-x", "rllm/rllm-config/patches/001-x.md", 9)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("<10M", 0, 10_000_000),
        ("<=10M", 0, 10_000_001),
        (">2B", 2_000_000_001, math.inf),
        (">=2B", 2_000_000_000, math.inf),
        ("300M-2B", 300_000_000, 2_000_000_000),
        ("1.5m-0.5b", 1_500_000, 500_000_000),
        ("500K - 1200000", 500_000, 1_200_000),
    ],
)
def test_ranges_of_sizes(text: str, low: int, high: float) -> None:
    assert parse_params(text) == ParamRange(low, high)


@pytest.mark.parametrize("text", ["10M", "2B-300M", "<", "<10G", "1-1", ">=-3", "", "<0"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(PolicyError):
        parse_params(text)


def test_lower_bound_is_included_and_upper_excluded() -> None:
    when = {"params": "300M-2B"}
    assert [matches(when, {"params": size}) for size in (299_999_999, 300_000_000, 1_999_999_999, 2_000_000_000)] == [
        False,
        True,
        True,
        False,
    ]


def test_a_key_the_context_does_not_know_does_not_match() -> None:
    assert not matches({"env": "calculator"}, {})
    assert not matches({"lora": False}, {"lora": None})
    assert matches({"lora": False}, {"lora": False})
    assert matches({"env": ["calculator", "lookup"]}, {"env": "lookup"})
    assert matches(None, {})


@pytest.mark.parametrize(
    "when",
    [{}, {"size": "<10M"}, {"params": 10}, {"params": "big"}, {"lora": "yes"}, {"env": []}, {"env": [1]}, "tiny"],
)
def test_conditions_that_are_refused(when: Any) -> None:
    with pytest.raises(PolicyError):
        check_condition(when)


_SIZES = st.integers(0, 40).map(lambda exponent: int(1.7**exponent))


@st.composite
def conditions(draw: st.DrawFn) -> dict[str, Any]:
    when: dict[str, Any] = {}
    if draw(st.booleans()):
        low, high = sorted((draw(_SIZES), draw(_SIZES)))
        when["params"] = draw(st.sampled_from([f"<{high + 1}", f">={low}", f"{low}-{high + 1}"]))
    if draw(st.booleans()):
        when["env"] = draw(st.one_of(st.sampled_from("abc"), st.lists(st.sampled_from("abc"), min_size=1, unique=True)))
    if draw(st.booleans()):
        when["lora"] = draw(st.booleans())
    return when


_CONTEXTS = st.fixed_dictionaries(
    {}, optional={"params": _SIZES, "env": st.sampled_from("abcd"), "lora": st.sampled_from([True, False, None])}
)


@given(conditions(), conditions(), _CONTEXTS)
def test_what_implies_a_scope_holds_only_inside_it(
    narrow: dict[str, Any], wide: dict[str, Any], context: dict[str, Any]
) -> None:
    if implies(narrow, wide) and matches(narrow, context):
        assert matches(wide, context)


@given(conditions())
def test_a_condition_implies_itself_and_the_empty_scope(when: dict[str, Any]) -> None:
    assert implies(when, when)
    assert implies(when, {})


def test_resolution_folds_value_by_value_and_later_wins() -> None:
    policy = CompiledPolicy(
        "rllm-config",
        (
            Assignment("rate.default", 3e-4, {"params": "<10M"}, BASE),
            Assignment("rate.max", 3e-3, {"params": "<10M"}, BASE),
            Assignment("rate.default", 1e-6, {"params": "300M-2B"}, BASE),
            Assignment("turns", 4, None, BASE),
            Assignment("rate.default", 2e-4, {"params": "<10M", "env": "calculator"}, PATCH),
        ),
    )
    small = policy.resolve({"params": 1_000_000, "env": "calculator"})
    assert small.values == {"rate": {"default": 2e-4, "max": 3e-3}, "turns": 4}
    assert small.get("rate.default") == 2e-4
    assert small.get("rate") == {"default": 2e-4, "max": 3e-3}
    assert small.get("rate.min") is None
    assert small.get("turns.default", 7) == 7
    assert small.provenance["rate.default"] == {
        "skill": "rllm-config",
        "section": "sizes",
        "patch": "001-x",
        "file": "rllm/rllm-config/patches/001-x.md",
        "line": 9,
        "when": {"params": "<10M", "env": "calculator"},
    }
    assert small.provenance["rate.max"]["patch"] == "base"
    assert policy.resolve({"params": 1_000_000, "env": "lookup"}).get("rate.default") == 3e-4
    assert policy.resolve({"params": 494_000_000}).values == {"rate": {"default": 1e-6}, "turns": 4}
    assert policy.resolve().values == {"turns": 4}
    with pytest.raises(PolicyError, match=r"sets no 'rate\.default' here"):
        policy.resolve().require("rate.default")


def test_contexts_that_are_refused() -> None:
    policy = CompiledPolicy("x", ())
    with pytest.raises(PolicyError, match="knows no key 'size'"):
        policy.resolve({"size": 3})
    with pytest.raises(PolicyError, match="number of parameters"):
        policy.resolve({"params": "tiny"})


_VALUES = st.one_of(
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(max_size=12),
    st.none(),
    st.lists(st.integers(0, 9), max_size=3),
)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b.c", "b.d", "e.f.g"]), _VALUES, st.one_of(st.none(), conditions())),
        max_size=8,
    ),
    _CONTEXTS,
)
def test_policy_json_gives_back_what_was_written(rows: list[tuple[str, Any, Any]], context: dict[str, Any]) -> None:
    policy = CompiledPolicy("s", tuple(Assignment(key, value, when or None, BASE) for key, value, when in rows), "p")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.json"
        policy.save(path)
        again = CompiledPolicy.load(path)
        assert read_json(path)["schema_version"] == 1
    assert again == policy
    assert again.digest == policy.digest
    assert again.resolve(context).to_json() == policy.resolve(context).to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema_version": 2, "skill": "s", "assignments": []}',
        '{"schema_version": 1, "skill": "s"}',
        '{"schema_version": 1, "skill": "s", "assignments": [{"key": "a"}]}',
        (
            '{"schema_version": 1, "skill": "s", "assignments": [{"key": "A!", "value": 1, "when": null, "from": '
            '{"skill": "s", "section": "x", "patch": "base", "file": "f", "line": 1}}]}'
        ),
        (
            '{"schema_version": 1, "skill": "s", "assignments": [{"key": "a", "value": 1, "when": {"zzz": 1}, "from": '
            '{"skill": "s", "section": "x", "patch": "base", "file": "f", "line": 1}}]}'
        ),
    ],
)
def test_damaged_policy_files_name_the_file_and_the_remedy(tmp_path: Path, text: str) -> None:
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(PolicyError, match=r"policy\.json.*[Cc]ompile"):
        CompiledPolicy.load(path)


def test_unknown_fields_of_a_policy_file_are_read_over(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text('{"schema_version": 1, "skill": "s", "new": 1, "assignments": []}')
    assert CompiledPolicy.load(path).skill == "s"


def test_conditions_are_described_in_a_fixed_order() -> None:
    assert (
        describe_condition({"lora": True, "env": ["a", "b"], "params": "<10M"}) == "params <10M, env a or b, lora true"
    )
    assert describe_condition(None) == "always"
