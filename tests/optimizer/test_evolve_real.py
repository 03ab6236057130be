"""The loop on real training (slow): the right lever from bad bases, nothing promoted from the tuned default.

Seeds are drawn when the test runs, so that no seed can have been chosen.
"""

import secrets
from typing import Any

import pytest
from conftest import say_yes, spoil

from optimizer.evolve import evolve, new_request
from optimizer.home import Home
from optimizer.round_types import Progress

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def run_real(home: Home, *, rounds: int, profile: str | None, pairs: int | None) -> dict[str, Any]:
    seed = secrets.randbelow(100_000)
    text = f"train the tiny calculator agent on 64 mixed problems, seed {seed}"
    request = new_request(home, text, rounds, profile, max_pairs=pairs, seed=secrets.randbelow(2**31))

    def watch(step: Progress) -> None:
        if step.kind in ("findings", "note"):
            print(seed, step.round.findings, step.text)

    return evolve(home, request, say_yes, watch)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("learning_rate_too_low", "learning_rate", 0.03),
        ("learning_rate_too_high", "learning_rate", 30.0),
        ("no_diversity", "temperature", 0.1),
        ("truncation", "max_completion_tokens", 24),
    ],
)
def test_the_right_lever_from_a_bad_base(home: Home, kind: str, key: str, value: float) -> None:
    if key == "learning_rate":  # a multiple of the tuned one
        tiny = {"params": 1_000_000, "model": "tiny", "env": "calculator"}
        value *= home.bank.resolve("rllm-config", tiny).require("learning_rate.default")
    spoil(home, key, value, kind)
    (only,) = run_real(home, rounds=1, profile=None, pairs=4)["rounds"]
    assert only["lever"] is not None, only
    assert only["lever"].split(": ")[1].startswith(f"{key} ")
    assert only["verdict"] in ("better", "inconclusive"), only


def test_from_the_tuned_default_nothing_is_promoted(home: Home) -> None:
    result = run_real(home, rounds=1, profile=None, pairs=None)
    assert [one["patch_id"] for one in result["rounds"]] == [None]


def test_from_the_plain_base_round_two_is_better(home: Home) -> None:
    first, second = run_real(home, rounds=2, profile="original", pairs=None)["rounds"]
    assert first["verdict"] == "better"
    assert second["eval"]["after"]["mean"] > first["eval"]["after"]["mean"]
