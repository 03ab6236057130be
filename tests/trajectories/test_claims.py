"""Claims on a made-up session: what is verified, what is not, and why."""

from typing import Any

import pytest
from analysis_helpers import checked, made_up
from hypothesis import given
from hypothesis import strategies as st

from optimizer.analyze.claims import ClaimError, Verified, claims_from, finding_of
from optimizer.analyze.comparing import same_number
from optimizer.analyze.view import View
from optimizer.analyze.wording import says_more

# Lines of the made-up session `claims`: 1 configuration of run_41, 2 its script (learning rate, epochs, temperature, n;
# no seed), 3 first launch, 4 it is killed, 5 second launch, 6 twelve steps: score .30 + .02 k, entropy .90 - .03 k,
# validation at 4, 8, 12 of .40 + .01 k; 7 a heredoc that prints made-up scores; 8 step 12 of run_42; 9 a default of
# `.get`; 10 the configuration read back; 11 a report with `a -> b`; 12 a number written, 13 the same number read back.


@pytest.fixture(scope="module")
def session() -> View:
    return made_up("claims")


SCORE = {"metric": "critic/score/mean", "run": "run_41", "lines": [6]}
HELD = {"metric": "val/gsm/acc", "run": "run_41", "lines": [6]}

HOLDS: list[dict[str, Any]] = [
    {**SCORE, "comparator": "eq", "value": 0.36, "steps": [3, 3]},
    {**SCORE, "comparator": "eq", "value": "0.3600", "steps": 3, "split": "train"},
    {**SCORE, "comparator": "mean", "value": 0.43},  # .30 + .02 · 6.5
    {**SCORE, "comparator": "mean", "value": 0.35, "steps": [1, 4]},  # .30 + .02 · 2.5
    {**SCORE, "comparator": "max", "value": 0.54},
    {**SCORE, "comparator": "min", "value": 0.32},
    {**SCORE, "comparator": "gt", "value": 0.3},
    {**SCORE, "comparator": "lt", "value": 0.55, "steps": [1, 12]},
    {**SCORE, "comparator": "rises_to", "value": 0.54},
    {"metric": "entropy", "comparator": "falls_to", "value": 0.54, "lines": [6]},  # .90 - .03 · 12
    {**SCORE, "comparator": "count", "value": 12},
    {**HELD, "comparator": "eq", "value": 0.52, "steps": 12, "split": "held-out"},
    {**HELD, "comparator": "count", "value": 3},
    {"metric": "acc", "run": "run_42", "comparator": "eq", "value": 0.5474, "steps": 12, "lines": [8], "split": "val"},
    {**SCORE, "comparator": "==", "value": 0.36, "steps": 3, "lines": [["claims", 6]]},
    {**SCORE, "comparator": ">", "value": 0.3, "steps": [1, 2, 3]},
    {"metric": "Grad norm", "comparator": "mean", "value": 71.25, "lines": [11]},
    {"metric": "grad norm", "comparator": "max", "value": 145, "lines": [11]},
    {"metric": "Entropy", "comparator": "eq", "value": 0.1718, "lines": [11]},
    {"metric": "learning_rate", "run": "run_41", "comparator": "eq", "value": "1e-5", "lines": [10]},
    {"metric": "failed_calls", "comparator": "count", "value": 1, "lines": [8, 14]},
]


@pytest.mark.parametrize("claim", HOLDS, ids=range(len(HOLDS)))
def test_what_the_lines_show_is_verified(session: View, claim: dict[str, Any]) -> None:
    found = checked(session, **claim)
    assert (found.verified, found.untested) == (Verified.YES, None), found.reason
    assert {one.line for one in found.evidence} <= {one[1] if isinstance(one, list) else one for one in claim["lines"]}
    finding = finding_of(found, "rllm")
    assert finding is not None
    assert finding.what.startswith(found.statement)


FAILS: list[tuple[dict[str, Any], str]] = [
    ({"text": "the learning rate is too high"}, "free text alone is not tested"),
    ({**SCORE, "comparator": "eq"}, "value missing"),
    ({"metric": "critic/score/mean", "comparator": "eq", "value": 0.36, "steps": 3}, "lines missing"),
    ({**SCORE, "comparator": "eq", "value": 0.37, "steps": 3}, "it is 0.3600 at step 3"),
    ({**SCORE, "comparator": "eq", "value": 0.4, "steps": 5}, "it is 0.4000"),  # one digit says too little
    ({**SCORE, "comparator": "eq", "value": 0.36}, "at step 1"),
    ({"metric": "acc", "run": "run_42", "comparator": "eq", "value": 0.5474, "lines": [8]}, "say of which step"),
    ({**SCORE, "run": "run_42", "lines": [8], "comparator": "gt", "value": 0.5}, "not in the cited lines"),
    ({**SCORE, "comparator": "eq", "value": 0.36, "steps": 3, "split": "validation"}, "it was measured on train"),
    ({**HELD, "comparator": "eq", "value": 0.52, "steps": 12, "split": "train"}, "it was measured on validation"),
    ({**HELD, "comparator": "eq", "value": 0.52, "steps": 12, "split": "test"}, "not on test"),
    ({**HELD, "comparator": "eq", "value": 0.45, "steps": 5}, "no value of it in steps 5 to 5"),
    ({**HELD, "comparator": "mean", "value": 0.48}, "steps are not in the cited lines"),
    ({**HELD, "comparator": "rises_to", "value": 0.52}, "too few"),
    ({**SCORE, "run": "run_42", "lines": [8], "comparator": "count", "value": 1}, "1 of the 12 steps"),
    ({**HELD, "comparator": "count", "value": 0}, "does not show that it was not measured"),
    ({**SCORE, "run": "run_42", "comparator": "eq", "value": 0.54, "steps": 12}, "not of run_42"),
    ({**SCORE, "lines": [6, 8], "run": None, "comparator": "eq", "value": 0.51, "steps": 12}, "several runs"),
    ({**SCORE, "lines": [8], "comparator": "eq", "value": 0.51, "steps": 12}, "not of run_41"),
    ({**SCORE, "lines": [4], "comparator": "eq", "value": 0.36, "steps": 3}, "do not show"),
    ({**SCORE, "lines": [99], "comparator": "eq", "value": 0.36, "steps": 3}, "no event in line 99"),
    ({"metric": "reward", "lines": [6], "comparator": "eq", "value": 0.36, "steps": 3}, "do not show 'reward'"),
    ({"metric": "score", "lines": [6], "comparator": "eq", "value": 0.36, "steps": 3}, "do not show 'score'"),
    ({"metric": "critic/score/mean", "lines": [7], "comparator": "eq", "value": 0.91, "steps": 1}, "agent's own text"),
    ({"metric": "critic/score/mean", "lines": [13], "comparator": "eq", "value": 0.6613}, "agent's own text"),
    ({"metric": "actor/kl", "lines": [9], "comparator": "eq", "value": "0.0000", "steps": 12}, "do not show"),
    ({"metric": "seed", "run": "run_41", "lines": [10], "comparator": "eq", "value": 7}, "does not carry it"),
    ({"metric": "Entropy", "lines": [11], "comparator": "falls_to", "value": 0.1718}, "too few"),
    ({"metric": "Entropy", "lines": [11], "comparator": "mean", "value": 0.534}, "neither its mean nor its steps"),
    ({**SCORE, "comparator": "falls_to", "value": 0.54}, "within its scatter"),
    ({**SCORE, "comparator": "rises_to", "value": 0.6}, "it ends at 0.5400"),
    ({**SCORE, "comparator": "gt", "value": 0.4}, "it is 0.3200"),
    ({**SCORE, "comparator": "mean", "value": 0.43, "steps": [1, 20]}, "8 of 20 steps"),
    ({"metric": "failed_calls", "comparator": "count", "value": 2, "lines": [8, 14]}, "hold 1"),
    ({"metric": "failed_calls", "comparator": "count", "value": 0, "lines": [8]}, "hold 0"),
    ({**SCORE, "session": "other", "comparator": "eq", "value": 0.36, "steps": 3}, "not one of the sessions"),
]


@pytest.mark.parametrize(("claim", "why"), FAILS, ids=range(len(FAILS)))
def test_what_the_lines_do_not_show_is_not(session: View, claim: dict[str, Any], why: str) -> None:
    found = checked(session, **claim)
    assert found.verified is Verified.NO, found.reason
    assert why in found.reason
    assert finding_of(found, "rllm") is None


@pytest.mark.parametrize(
    "text",
    [
        "the score is 0.36 because the learning rate was raised",
        "score 0.36 at step 3: training failed",
        "reaches 0.36 and will reach 0.9",
        "0.36 is better than before",
        "step 3 gave 0.36 and step 4 gave 0.99",
        "第3步 0.36，说明学习率过高",
    ],
)
def test_a_text_that_says_more_is_kept_as_untested(session: View, text: str) -> None:
    found = checked(session, **SCORE, comparator="eq", value=0.36, steps=3, text=text)
    assert found.verified is Verified.PART
    assert found.untested == text
    finding = finding_of(found, "rllm")
    assert finding is not None
    assert text not in finding.what


def test_a_text_that_says_the_same_is_covered(session: View) -> None:
    text = "critic/score/mean of run_41 at step 3 is 0.36"
    assert checked(session, **SCORE, comparator="eq", value=0.36, steps=3, text=text).verified is Verified.YES
    assert not says_more("the value at step 3: 0.36", ["0.36"], [3.0, 0.36])
    assert says_more("it is 0.36 or 0.40", ["0.36"], [3.0])


def test_a_claim_has_the_same_id_each_time_and_says_what_it_rests_on(session: View) -> None:
    one, two = (checked(session, **SCORE, comparator="mean", value=0.35, steps=[1, 4]) for _ in range(2))
    assert one == two
    assert one.metric is not None
    assert (one.metric.n, one.metric.split, one.metric.run) == (4, "train", "run_41")
    # values .32 .34 .36 .38: deviation sqrt(((.03)²+(.01)²)·2/3) = .02582, error .02582/2 = .01291
    assert one.metric.standard_error == pytest.approx(0.01291, abs=1e-5)
    assert one.statement == "critic/score/mean of run_41 over steps 1 to 4 has the mean 0.35"


@pytest.mark.parametrize(
    ("printed", "claimed", "same"),
    [
        ("0.5474", "0.5474", True), ("0.5474", "0.547", True), ("0.5474", "0.55", True), ("0.5474", "0.5", False),
        ("0.5474", "0.548", False), ("0.5474", "0.54740", True), ("0.5474", "0.54741", False), ("0.5", "0.5", True),
        ("8", "8", True), ("145.0000", "145", True), ("5e-06", "5e-6", True), ("5e-06", "1e-6", False),
        ("0.000", "0", True), ("0.004", "0", False),
    ],
)  # fmt: skip
def test_digits_are_the_tolerance(printed: str, claimed: str, same: bool) -> None:
    assert same_number(printed, claimed) is same


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        ({"metric": "a", "value": "high"}, "plain number"), ({"comparator": "equals"}, "comparator"),
        ({"steps": [5, 1]}, "first step"), ({"metrics": "a"}, "metrics"), ({"value": "50%"}, "without a unit"),
        ({"lines": "six"}, "lines"), ({"value": True}, "value"),
    ],
)  # fmt: skip
def test_what_is_no_claim_is_refused_with_what_one_looks_like(claim: dict[str, Any], why: str) -> None:
    with pytest.raises(ClaimError, match=why) as refused:
        claims_from([claim])
    assert "falls_to" in str(refused.value)
    with pytest.raises(ClaimError, match="at most 20"):
        claims_from([{}] * 21)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "text": st.text(max_size=40),
            "metric": st.sampled_from(["critic/score/mean", "acc", "Entropy", "", "seed"]),
            "comparator": st.sampled_from(["eq", "lt", "gt", "falls_to", "rises_to", "mean", "min", "max", "count"]),
            "value": st.floats(-10, 10, allow_nan=False), "lines": st.lists(st.integers(0, 15), max_size=4),
            "steps": st.tuples(st.integers(0, 5), st.integers(5, 14)), "split": st.sampled_from(["train", "val", "x"]),
            "run": st.sampled_from(["run_41", "run_42", "x"]),
        },
    )
)  # fmt: skip
def test_any_claim_gets_a_verdict_and_only_shown_numbers_are_verified(claim: dict[str, Any]) -> None:
    view = _SESSION
    found = checked(view, **claim)
    if found.verified is not Verified.NO:
        assert found.evidence
        assert found.metric is not None
        shown = {point.line for one in view.book.series.values() for point in one.points if not point.own}
        assert {one.line for one in found.evidence} <= shown  # type: ignore[union-attr]


_SESSION = made_up("claims")
