"""Claims about real sessions, as agents could submit them: true ones, and each false one in several disguises."""

from typing import Any

import pytest
from analysis_helpers import checked, real

from optimizer.analyze.claims import Verified


def claim(metric: str, comparator: str, value: float | str, lines: list[int], **more: Any) -> dict[str, Any]:
    """A claim in machine form."""
    return {"metric": metric, "comparator": comparator, "value": value, "lines": lines, **more}


R9, R10 = "run_verl_gsm8k_0.5b_r9", "run_verl_gsm8k_0.5b_r10"

REAL_HOLDS: list[tuple[str, dict[str, Any]]] = [
    ("6993a6c8", claim("Reward", "eq", 0.25, [85], steps=1)),
    ("6993a6c8", claim("reward", "eq", 0, [85], steps=[2, 2])),
    ("6993a6c8", claim("avg_response_len", "eq", 192, [94], steps=4)),
    ("6993a6c8", claim("Grad norm", "mean", 71.25, [85])),
    ("6993a6c8", claim("Grad norm", "max", 145, [95])),
    ("cdfa290b", claim("avgR", "rises_to", 0.8003, [86], run=R9)),
    ("cdfa290b", claim("avgR", "eq", 0.7915, [86], steps=8, run=R9)),
]


@pytest.mark.parametrize(("name", "given"), REAL_HOLDS, ids=range(len(REAL_HOLDS)))
def test_what_real_sessions_show_is_verified(name: str, given: dict[str, Any]) -> None:
    assert checked(real(name), **given).verified is Verified.YES


RUN_A, RUN_B, RUN_C, RUN_D = (f"run_{one}" for one in (1780247306, 1780248991, 1780249675, 1780250271))
MADE_UP_REPORT = [10, 11, 15, 16, 21, 22, 23]

MUST_NOT: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "r1-7b-3": [
        ("6993a6c8", claim("Entropy", "falls_to", 0.172, [85])),
        ("6993a6c8", claim("entropy", "falls_to", 0.1718, [85, 95], split="train")),
        ("6993a6c8", {"text": "entropy collapsed within four steps: premature convergence", "lines": [85]}),
        ("6993a6c8", claim("Entropy", "lt", 0.2, [95], steps=[3, 4])),
        ("6993a6c8", claim("convergence", "eq", 1, [85])),
    ],
    "r1-1": [
        ("bdb99b87", claim("reward", "eq", 0.1211, MADE_UP_REPORT, run=RUN_A)),
        ("a44b0afc", claim("reward", "eq", 0.1211, [26, 48, 62, 65, 66], run=RUN_A, steps=1)),
        ("a44b0afc", claim("ppo_mini_batch_size", "eq", 32, [22, 26, 48, 62], run=RUN_A)),
        ("bdb99b87", {"text": "run_1780247306 crashed at step 1: DistBackend is not initialized", "lines": [15]}),
        ("a44b0afc", claim("critic/score/mean", "eq", 0.1211, [102, 115], run=RUN_A, steps=[1, 32])),
    ],
    "r1-2": [
        ("bdb99b87", claim("reward", "eq", "0.0000", MADE_UP_REPORT, run=RUN_B)),
        ("a44b0afc", claim("critic/score/mean", "mean", 0.0, [167, 173], run=RUN_B)),
        ("a44b0afc", claim("critic/score/mean", "mean", 0.0, [102, 115], run=RUN_A)),
        ("a44b0afc", claim("Reward", "mean", 0.1211, [251], run=RUN_B)),
    ],
    "r1-2 step": [
        ("a44b0afc", claim("critic/score/mean", "eq", 0, [102], run=RUN_A)),
        ("a44b0afc", claim("critic/score/mean", "lt", 0.01, [102], run=RUN_A)),
    ],
    "r1-3": [
        ("bdb99b87", claim("reward", "eq", 0.1964, MADE_UP_REPORT, run=RUN_C)),
        ("bdb99b87", claim("Reward", "eq", 0.2, [15, 16], run=RUN_C)),
        ("a44b0afc", claim("Reward", "mean", 0.1964, [251], run=RUN_C)),
        ("a44b0afc", claim("num_problems", "eq", 32, [118, 175], text="32 samples are worse than 64", run=RUN_C)),
    ],
    "r1-4": [
        ("a44b0afc", claim("learning_rate", "eq", "1e-6", [13], run=RUN_A)),
        ("a44b0afc", claim("actor/lr", "eq", "1e-06", [102, 115], run=RUN_A)),
        ("a44b0afc", claim("actor/lr", "eq", "5e-6", [115, 205, 244], run=RUN_D)),
        ("bdb99b87", claim("lr", "eq", "5e-6", [15, 16, 21, 22], run=RUN_D)),
        ("bdb99b87", claim("reward", "rises_to", 0.52, [2, 15, 16, 21])),
    ],
    "r1-5": [
        ("a44b0afc", {"text": "the monitor was silent for long stretches", "lines": [235, 246]}),
        ("a44b0afc", claim("silence_s", "gt", 500, [235, 246, 270, 274])),
        ("a44b0afc", claim("tool_calls", "count", 0, [236])),
    ],
    "r9-2": [
        ("cdfa290b", {"text": "R8 and R9 have the same configuration", "lines": [12, 23]}),
        ("cdfa290b", claim("max_response_length", "eq", 512, [12, 15, 22, 23], run=R9)),
        ("cdfa290b", claim("config_difference", "eq", 0, [12, 23])),
    ],
    "r9-3": [
        ("cdfa290b", claim("seed", "eq", 48, [28], run=R9)),
        ("cdfa290b", claim("seed", "eq", 48, [22, 28], text="seed 48 explains it")),
        ("cdfa290b", {"text": "seed=48 explains the jump, reuse it", "lines": [22, 23]}),
        ("cdfa290b", claim("seed", "eq", 49, [103, 104, 108], run=R10)),
    ],
    "r9-5": [
        ("cdfa290b", claim("val-core/gsm8k/acc/mean@1", "count", 0, [86], run=R9)),
        ("cdfa290b", claim("avgR", "count", 0, [86], run=R9, split="validation")),
        ("cdfa290b", {"text": "test_freq did not fire, no validation in round 9", "lines": [23, 28]}),
        ("cdfa290b", claim("test_freq", "eq", 0, [23, 28, 34], run=R9)),
    ],
    "r9-8": [
        ("cdfa290b", claim("avgR", "rises_to", 0.9, [86], run=R9)),
        ("cdfa290b", claim("avgR", "max", 0.9, [86], run=R9)),
        ("cdfa290b", claim("avgR", "gt", 0.9, [86], run=R9)),
        ("cdfa290b", claim("avgR", "rises_to", 0.8003, [86], split="validation")),
        ("cdfa290b", claim("accuracy", "eq", 0.8003, [86], run=R9, split="test")),
        ("cdfa290b", claim("avgR", "rises_to", 0.8003, [86], run=R10)),
        ("cdfa290b", claim("R9", "eq", 0.8003, [169], run=R10, steps=9)),
    ],
    "r10-1": [
        ("cdfa290b", {"text": "round 10 training_failed", "lines": [169, 171]}),
        ("cdfa290b", claim("success", "eq", 0, [169, 171], run=R10)),
        ("cdfa290b", claim("failed_calls", "count", 1, [168, 169, 171])),
        ("cdfa290b", claim("reward", "eq", 0.7935, [169, 171], run=R10, split="validation")),
    ],
}

CASES = [(item, name, given) for item, claims in MUST_NOT.items() for name, given in claims]


@pytest.mark.parametrize(("item", "name", "given"), CASES, ids=[f"{item}-{n}" for n, (item, _, _) in enumerate(CASES)])
def test_what_must_not_be_claimed_is_never_verified(item: str, name: str, given: dict[str, Any]) -> None:
    found = checked(real(name), **given)
    assert found.verified is Verified.NO, (item, found.statement, found.reason)


TEXTS = [
    "run_1780247306 crashed at step 1 and that is why its reward is 0.1211",
    "lr 1e-6 -> 5e-6 raised the reward to 0.52 (2.6x)",
    "round 10 failed with 0.7935",
    "seed 48 explains 0.8003",
    "longer training will reach 0.9",
    "熵从 0.896 降到 0.172，说明过早收敛",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_true_number_does_not_carry_a_false_sentence(text: str) -> None:
    found = checked(real("cdfa290b"), **claim("avgR", "eq", 0.8003, [86], run=R9, steps=9, text=text))
    assert found.verified is Verified.PART
    assert found.untested == text
    assert text not in found.statement
