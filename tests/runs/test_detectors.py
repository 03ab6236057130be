"""Each detector on a series worked out by hand: speaks on the one, is silent on the one just inside its bound."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from trainer.runs.detectors.catalogue import BY_ID, CATALOGUE, NAMES
from trainer.runs.detectors.monitor import Monitor, watch
from trainer.runs.detectors.policy import MonitorPolicy
from trainer.runs.detectors.types import Alert, Occasion, Plan, ProcessFacts, Severity
from trainer.runs.types import Failure

PLAN = Plan(planned_steps=100, max_completion_tokens=100, max_turns=4, num_generations=4)


def rows(**columns: Sequence[Any] | float) -> list[dict[str, Any]]:
    """Lines from columns; a plain number stands in every line, None is not measured."""
    length = max(len(values) for values in columns.values() if isinstance(values, Sequence))
    lines: list[dict[str, Any]] = []
    for place in range(length):
        line: dict[str, Any] = {"step": place + 1}
        for name, values in columns.items():
            value = values[place] if isinstance(values, Sequence) else values
            if value is not None:
                line[name] = value
        lines.append(line)
    return lines


def validations(*means: float, n: int = 100, every: int = 5) -> list[dict[str, Any]]:
    return [
        {"kind": "validation", "step": place * every, "eval": {"mean": mean, "n": n}}
        for place, mean in enumerate(means, start=1)
    ]


def of(
    detector: str, lines: list[dict[str, Any]], events: Sequence[dict[str, Any]] = (), plan: Plan = PLAN
) -> list[Alert]:
    return [one for one in watch(lines, events, plan=plan).alerts if one.detector == detector]


def worst(alerts: list[Alert]) -> tuple[str, str] | None:
    """(severity, kind) of the worst one."""
    if not alerts:
        return None
    alert = max(alerts, key=lambda one: one.severity.rank)
    return alert.severity.value, alert.kind or ""


ROOM = 0.5
"""A reward with room above it."""

WOBBLE = [0.9, 1.1] * 20

CASES: list[tuple[str, Callable[[], list[dict[str, Any]]], tuple[str, str] | None]] = [
    # loss: above 10 in size; or three times above 10 x its median 0.2 (floor 1): 2.1 is, 1.9 is not
    ("loss_explosion", lambda: rows(loss=[0.2] * 20 + [-10.1]), ("critical", "")),
    ("loss_explosion", lambda: rows(loss=[0.2] * 20 + [2.1, -2.1, 2.1]), ("warn", "")),
    ("loss_explosion", lambda: rows(loss=[0.2] * 20 + [2.1, 1.9, 2.1]), None),
    ("loss_explosion", lambda: rows(loss=[0.01] * 20 + [0.9] * 3), None),
    # gradients 0.9 and 1.1: median 0.9 to 1.1, 8 sigma = 1 + 8 x 0.148 = 2.19, factor 3: the bound is 2.7 to 3.3
    ("grad_spike", lambda: rows(grad_norm=[*WOBBLE, 3.4, 1.0, 3.4, 1.0, 3.4]), ("warn", "")),
    ("grad_spike", lambda: rows(grad_norm=[*WOBBLE, 2.6, 1.0, 2.6, 1.0, 2.6]), None),
    ("grad_spike", lambda: rows(grad_norm=[*WOBBLE, 3.4, 1.0, 3.4, 1.0]), None),
    ("grad_spike", lambda: rows(grad_norm=[1.0] * 6 + [101.0]), ("critical", "")),
    ("grad_spike", lambda: rows(grad_norm=[*WOBBLE, 2.0, 4.0, 8.0, 16.0]), ("critical", "growing")),
    # 5 % of the early median 1.0 for five steps
    ("grad_vanish", lambda: rows(grad_norm=[1.0] * 25 + [0.049] * 5, reward_mean=ROOM), ("warn", "")),
    ("grad_vanish", lambda: rows(grad_norm=[1.0] * 25 + [0.051] * 5, reward_mean=ROOM), None),
    ("grad_vanish", lambda: rows(grad_norm=[1.0] * 25 + [0.049] * 5, reward_mean=0.9), None),
    ("grad_vanish", lambda: rows(grad_norm=[1.0, 0.0] * 15, reward_mean=ROOM), ("warn", "zero")),
    ("grad_vanish", lambda: rows(grad_norm=[0.0] * 30, reward_mean=ROOM), ("critical", "zero")),
    ("grad_vanish", lambda: rows(grad_norm=[0.0] * 30, reward_mean=ROOM, frac_zero_variance=1.0), None),
    # peak 0.5: critical below 0.05; a warning below 0.25, three windows of five in a row
    ("reward_collapse", lambda: rows(reward_mean=[0.5] * 10 + [0.0] * 10), ("critical", "")),
    ("reward_collapse", lambda: rows(reward_mean=[0.5] * 10 + [0.2] * 10), ("warn", "")),
    ("reward_collapse", lambda: rows(reward_mean=[0.5] * 10 + [0.26] * 10), None),
    ("reward_collapse", lambda: rows(reward_mean=[0.29] * 10 + [0.0] * 10), None),
    # noise 0.4 from step to step: the same fall is within 3 standard errors
    ("reward_collapse", lambda: rows(reward_mean=[0.9, 0.1] * 5 + [0.4, 0.0] * 5), None),
    (
        "reward_stuck_zero",
        lambda: rows(reward_mean=[0.1] * 5 + [0.0] * 5, reward_max=[1.0] * 5 + [0.0] * 5),
        ("warn", ""),
    ),
    ("reward_stuck_zero", lambda: rows(reward_mean=[0.0] * 19, reward_max=0.0), ("warn", "")),
    ("reward_stuck_zero", lambda: rows(reward_mean=[0.0] * 20, reward_max=0.0), ("critical", "")),
    (
        "reward_stuck_zero",
        lambda: rows(reward_mean=[0.0] * 20, reward_max=[0.0] * 10 + [0.1] + [0.0] * 9),
        ("warn", ""),
    ),
    ("reward_plateau", lambda: rows(reward_mean=[i / 20 for i in range(20)] + [0.9] * 30), ("info", "")),
    ("reward_plateau", lambda: rows(reward_mean=[i / 50 for i in range(50)]), None),
    # groups: 4 of 4 flat at reward 0; without episode counts the share itself counts
    ("zero_variance", lambda: rows(frac_zero_variance=[0.8] * 10, reward_mean=0.1), ("critical", "too_hard")),
    ("zero_variance", lambda: rows(frac_zero_variance=[0.55] * 10, reward_mean=0.1), ("warn", "too_hard")),
    ("zero_variance", lambda: rows(frac_zero_variance=[0.35] * 10, reward_mean=0.1), ("info", "too_hard")),
    ("zero_variance", lambda: rows(frac_zero_variance=[0.29] * 10, reward_mean=0.1), None),
    ("zero_variance", lambda: rows(frac_zero_variance=[0.8] * 10, reward_mean=0.9), ("warn", "too_easy")),
    (
        "zero_variance",
        lambda: rows(frac_zero_variance=[0.1] * 10 + [0.3] * 10 + [0.8] * 10, reward_mean=[0.4] * 10 + [0.9] * 20),
        ("info", "too_easy"),
    ),
    # at 0.5 chance makes 2 x 0.5^4 = 0.125 flat: 0.625 and more is critical only from 0.75
    ("zero_variance", lambda: rows(frac_zero_variance=[1.0] * 10, reward_mean=ROOM), ("critical", "flat")),
    ("zero_variance", lambda: rows(frac_zero_variance=[0.6] * 10, reward_mean=ROOM), ("warn", "flat")),
    ("zero_variance", lambda: rows(frac_zero_variance=[0.45] * 10, reward_mean=ROOM), None),
    # at 0.84 chance makes 0.498: 0.7 is within 0.25 of that
    ("zero_variance", lambda: rows(frac_zero_variance=[0.7] * 10, reward_mean=0.84), None),
    ("too_easy", lambda: rows(reward_mean=[0.96] * 6, frac_zero_variance=0.85), ("warn", "")),
    ("too_easy", lambda: rows(reward_mean=[0.3] * 6 + [0.96] * 5, frac_zero_variance=0.85), ("info", "")),
    ("too_easy", lambda: rows(reward_mean=[0.96] * 6, frac_zero_variance=0.75), None),
    # floor: 10 % of 0.5 = 0.05
    ("entropy_collapse", lambda: rows(entropy=[0.5] * 25 + [0.04] * 3, reward_mean=ROOM), ("critical", "floor")),
    ("entropy_collapse", lambda: rows(entropy=[0.5] * 25 + [0.14] * 4, reward_mean=ROOM), ("critical", "drop")),
    ("entropy_collapse", lambda: rows(entropy=[0.5] * 25 + [0.16] * 4, reward_mean=ROOM), None),
    ("entropy_collapse", lambda: rows(entropy=[0.5] * 25 + [0.04] * 3, reward_mean=0.95), None),
    (
        "entropy_collapse",
        lambda: rows(entropy=[0.5 * 0.9**i for i in range(30)], reward_mean=ROOM),
        ("warn", "arriving"),
    ),
    # it began at 0.015: 10 % are 0.0015
    ("entropy_collapse", lambda: rows(entropy=[0.015] * 25 + [0.009] * 5, reward_mean=ROOM), None),
    ("entropy_explosion", lambda: rows(entropy=[0.8] * 10 + [2.1] * 2, reward_mean=ROOM), ("warn", "")),
    ("entropy_explosion", lambda: rows(entropy=[1.5] * 10 + [2.5] * 2, reward_mean=ROOM), None),
    (
        "entropy_explosion",
        lambda: rows(
            entropy=[0.2] * 20 + [0.2 + 0.1 * i for i in range(12)],
            reward_mean=[0.5] * 20 + [0.5 - 0.04 * i for i in range(12)],
        ),
        ("critical", ""),
    ),
    (
        "entropy_explosion",
        lambda: rows(entropy=[0.2] * 20 + [0.2 + 0.1 * i for i in range(12)], reward_mean=ROOM),
        None,
    ),
    ("kl_runaway", lambda: rows(kl=[0.01] * 6 + [0.6] * 3), ("warn", "reference")),
    ("kl_runaway", lambda: rows(kl=[0.01] * 6 + [2.1] * 3, reward_mean=ROOM), ("critical", "reference")),
    ("kl_runaway", lambda: rows(approx_kl=[0.01] * 6 + [0.06] * 3), ("warn", "update")),
    ("kl_runaway", lambda: rows(approx_kl=[0.01] * 6 + [0.11] * 3), ("critical", "update")),
    ("kl_runaway", lambda: rows(approx_kl=[0.01] * 6 + [0.06, 0.01, 0.06]), None),
    ("clip_saturation", lambda: rows(clip_low=[0.06] * 6, clip_high=0.06), ("info", "")),
    ("clip_saturation", lambda: rows(clip_low=[0.1] * 6, clip_high=0.15), ("warn", "")),
    ("clip_saturation", lambda: rows(clip_low=[0.2] * 6, clip_high=0.2), ("critical", "")),
    ("clip_saturation", lambda: rows(clip_low=[0.03] * 6, clip_high=0.01), ("info", "one_sided")),
    ("truncation", lambda: rows(truncated_rate=[0.0] * 5 + [0.81] * 3), ("critical", "")),
    ("truncation", lambda: rows(truncated_rate=[0.06] * 6), ("warn", "")),
    # 2 of 80 episodes: the lower end of the interval is 0.007
    ("truncation", lambda: rows(truncated_rate=[0.0625, 0.0, 0.0, 0.0625, 0.0, 0.0, 0.0625], episodes=16), None),
    ("truncation", lambda: rows(truncated_rate=[0.2] * 6, completion_mean=91.0), ("critical", "length")),
    ("truncation", lambda: rows(truncated_rate=[0.0] * 6, completion_mean=91.0), None),
    (
        "length_runaway",
        lambda: rows(completion_mean=[40.0 + 2 * i for i in range(30)], reward_mean=ROOM),
        ("warn", "rambling"),
    ),
    (
        "length_runaway",
        lambda: rows(completion_mean=[40.0 + 2 * i for i in range(30)], reward_mean=[0.2 + i / 50 for i in range(30)]),
        ("info", "growing"),
    ),
    (
        "length_runaway",
        lambda: rows(completion_mean=[40.0, 41.0] * 5 + [50.0, 51.0] * 5, reward_mean=ROOM),
        ("info", "growing"),
    ),
    ("format_degeneration", lambda: rows(parse_ok_rate=[0.9] * 6 + [0.44] * 3), ("critical", "")),
    ("format_degeneration", lambda: rows(parse_ok_rate=[0.9] * 6 + [0.46] * 3), None),
    ("format_degeneration", lambda: rows(turns_mean=[4.0] * 6, reward_mean=0.0), ("critical", "all_turns")),
    ("format_degeneration", lambda: rows(turns_mean=[4.0] * 6, reward_mean=0.1), None),
    ("tools_abandoned", lambda: rows(tool_call_rate=[0.9] * 6 + [0.01] * 5), ("warn", "")),
    ("tools_abandoned", lambda: rows(tool_call_rate=[0.9] * 6 + [0.03] * 5), None),
    ("tools_abandoned", lambda: rows(tool_call_rate=[0.0] * 6, reward_mean=0.6), ("info", "not_needed")),
    ("never_submits", lambda: rows(finish_rate=[0.1] * 6, reward_mean=0.1, tool_call_rate=0.9), ("warn", "")),
    ("never_submits", lambda: rows(finish_rate=[0.1] * 6, reward_mean=0.9, tool_call_rate=0.9), None),
    ("never_submits", lambda: rows(finish_rate=[0.1] * 6, reward_mean=0.1, tool_call_rate=0.2), None),
    ("gibberish", lambda: rows(repetition_rate=[0.0] * 6 + [0.3] * 2), ("critical", "repetition")),
    ("gibberish", lambda: rows(repetition_rate=[0.0] * 6 + [0.3, 0.2, 0.3]), None),
    ("gibberish", lambda: rows(new_script_rate=[0.1] * 6 + [0.31]), ("warn", "script")),
    (
        "echo_trap",
        lambda: rows(
            reward_std_group=[0.4] * 20 + [0.05] * 6, grad_norm=[0.9, 1.1] * 12 + [9.0, 1.0], reward_mean=ROOM
        ),
        ("warn", "echo"),
    ),
    ("echo_trap", lambda: rows(reward_std_group=[0.4] * 20 + [0.05] * 6, grad_norm=1.0, reward_mean=ROOM), None),
    ("echo_trap", lambda: rows(prompt_similarity=[0.2] * 10 + [0.55] * 5), ("warn", "template")),
    # uplift 0.2 - 0.2: no gain in twenty steps
    ("experience_harm", lambda: rows(reward_guided=[0.4] * 20, reward_unguided=0.4), ("info", "not_useful")),
    ("experience_harm", lambda: rows(reward_guided=[0.41] * 20, reward_unguided=0.4), None),
    (
        "experience_harm",
        lambda: rows(reward_guided=[0.5] * 8, reward_unguided=0.4, experience_clip=0.6),
        ("warn", "off_clip"),
    ),
    ("env_errors", lambda: rows(env_error_rate=[0.0] * 5 + [0.51] * 3), ("critical", "")),
    ("env_errors", lambda: rows(env_error_rate=[0.0] * 5 + [0.4] * 3), ("warn", "")),
    ("env_errors", lambda: rows(env_error_rate=[0.0] * 5 + [0.29] * 3), None),
    ("env_errors", lambda: rows(env_error_rate=[0.0] * 6, tool_error_rate=0.6), ("warn", "tools")),
    ("off_policy_drift", lambda: rows(logp_gap=[0.01] * 6 + [0.2] * 3), ("warn", "")),
    ("off_policy_drift", lambda: rows(logp_gap=[0.01] * 6 + [0.6] * 3), ("critical", "")),
    ("off_policy_drift", lambda: rows(ess=[0.9] * 6 + [0.2] * 3), ("warn", "ess")),
    ("off_policy_drift", lambda: rows(logp_correlation=[0.99] * 6 + [0.9] * 3), ("warn", "correlation")),
    ("mask_integrity", lambda: rows(trained_tokens=[101.0], tokens_model=100.0), ("critical", "foreign_text")),
    (
        "mask_integrity",
        lambda: rows(trained_tokens=[0.0], tokens_model=100.0, frac_zero_variance=0.5),
        ("critical", "empty"),
    ),
    ("mask_integrity", lambda: rows(trained_tokens=[0.0], tokens_model=100.0, frac_zero_variance=1.0), None),
    (
        "mask_integrity",
        lambda: rows(
            trained_tokens=[50.0], tokens_model=100.0, tokens_environment=1.0, tool_call_rate=0.9, turns_mean=2.0
        ),
        ("critical", "share"),
    ),
    # half of the groups live: 50 tokens of the model and 15 of the environment; 60 % of those are 9
    (
        "mask_integrity",
        lambda: rows(trained_tokens=[60.0] * 10, tokens_model=100.0, tokens_environment=30.0, frac_zero_variance=0.5),
        ("critical", "foreign_text"),
    ),
    (
        "mask_integrity",
        lambda: rows(trained_tokens=[58.0] * 10, tokens_model=100.0, tokens_environment=30.0, frac_zero_variance=0.5),
        None,
    ),
    # 100 tokens a second, then 19
    (
        "throughput_drop",
        lambda: [
            {"step": i + 1, "tokens_model": 100, "seconds": {"generate": 1.0 if i < 20 else 5.3}} for i in range(22)
        ],
        ("warn", ""),
    ),
    (
        "throughput_drop",
        lambda: [
            {"step": i + 1, "tokens_model": 100, "seconds": {"generate": 1.0 if i < 20 else 4.9}} for i in range(22)
        ],
        None,
    ),
    (
        "throughput_drop",
        lambda: [
            {"step": i + 1, "tokens_model": 100, "seconds": {"generate": 1.0, "environment": 0.1 if i < 20 else 2.0}}
            for i in range(25)
        ],
        ("info", "bottleneck"),
    ),
    (
        "no_diversity",
        lambda: rows(unique_completions=[0.3] * 10, frac_zero_variance=0.9, reward_mean=ROOM),
        ("warn", ""),
    ),
    ("no_diversity", lambda: rows(unique_completions=[0.3] * 10, frac_zero_variance=0.3, reward_mean=ROOM), None),
    ("no_diversity", lambda: rows(unique_completions=[0.3] * 10, frac_zero_variance=0.9, reward_mean=0.9), None),
    ("lr_flat", lambda: rows(reward_mean=[0.5, 0.52] * 25, entropy=0.2, frac_zero_variance=0.2), ("info", "")),
    ("lr_flat", lambda: rows(reward_mean=[0.5, 0.52] * 24, entropy=0.2, frac_zero_variance=0.2), None),
    (
        "lr_flat",
        lambda: rows(reward_mean=[0.4 + i / 100 for i in range(50)], entropy=0.2, frac_zero_variance=0.2),
        None,
    ),
]


@pytest.mark.parametrize(
    ("detector", "make", "expected"), CASES, ids=[f"{case[0]}-{n}" for n, case in enumerate(CASES)]
)
def test_a_series_worked_out_by_hand(
    detector: str, make: Callable[[], list[dict[str, Any]]], expected: tuple[str, str] | None
) -> None:
    alerts = of(detector, make())
    assert worst(alerts) == expected
    for alert in alerts:
        assert alert.say.endswith(".")
        assert alert.evidence
        assert alert.cause
        assert alert.advice
        assert all(1 <= one.step <= alert.step for one in alert.evidence)


# ---- what needs validations, events or the process


def test_validation_that_falls_twenty_percent_beyond_chance() -> None:
    # 0.60 to 0.40 at n = 100: error sqrt(.24/100 + .24/100) = 0.069, 2.9 of them, against 2.5 + sqrt(ln 3) = 3.55
    lines = rows(reward_mean=[0.5] * 20)
    assert of("eval_regression", lines, validations(0.5, 0.6, 0.4)) == []
    assert worst(of("eval_regression", lines, validations(0.5, 0.6, 0.34))) == ("warn", "")
    assert of("eval_regression", lines, validations(0.5, 0.6, 0.5, n=10_000)) == [], "significant, but no fifth"
    falling = of("eval_regression", lines, validations(0.6, 0.58, 0.56, 0.54, n=10_000))
    assert worst(falling) == ("warn", "in_a_row")
    assert of("eval_regression", lines, validations(0.6, 0.58, 0.59, 0.54, n=10_000)) == []


def test_reward_that_rises_while_validation_does_not() -> None:
    rising = rows(reward_mean=[0.3] * 5 + [0.31] * 5 + [0.5] * 5 + [0.7] * 5)
    assert worst(of("reward_hacking", rising, validations(0.5, 0.5, 0.3, 0.3))) == ("critical", "falling")
    assert worst(of("reward_hacking", rising, validations(0.45, 0.45, 0.45, 0.45, n=1000))) == ("warn", "gap")
    assert of("reward_hacking", rising, validations(0.3, 0.35, 0.5, 0.7)) == []
    assert of("reward_hacking", rows(reward_mean=[0.5] * 20), validations(0.5, 0.5, 0.3, 0.3)) == []
    monitor = watch(rising[:10], validations(0.5, every=10), plan=PLAN)
    assert monitor.statuses()["reward_hacking"].reason == "1 of 3 validations with rewards before them"


def test_an_auxiliary_reward_that_takes_over() -> None:
    def parts(count: int, aux: float, task: float) -> list[dict[str, Any]]:
        signs = [(-1) ** i for i in range(count)]
        return [
            {
                "step": i + 1,
                "reward_mean": 0.5 + sign * (aux + task),
                "reward_parts": {"success": task * sign, "length": aux * sign},
            }
            for i, sign in enumerate(signs)
        ]

    # shares of variance: 0.2² of 0.2² + 0.1² = 0.8; 0.4² of 0.4² + 0.1² = 0.94
    assert worst(of("reward_component_takeover", parts(160, 0.2, 0.1))) == ("warn", "")
    assert worst(of("reward_component_takeover", parts(160, 0.4, 0.1))) == ("critical", "")
    assert worst(of("reward_component_takeover", parts(40, 0.4, 0.1))) == ("info", "")
    assert of("reward_component_takeover", parts(160, 0.1, 0.4)) == []
    assert worst(of("reward_component_takeover", parts(160, 0.2, -0.2))) == ("warn", "cancelling")


def test_a_value_that_is_no_number() -> None:
    assert worst(of("nonfinite", rows(loss=[0.1, float("nan")]))) == ("critical", "")
    assert of("nonfinite", rows(loss=[0.1, None])) == [], "missing is not broken"
    skipped = {"kind": "nonfinite", "step": 2, "in_a_row": 1}
    assert worst(of("nonfinite", rows(loss=[0.1, 0.1]), [skipped])) == ("warn", "")
    twice = [skipped, {"kind": "nonfinite", "step": 3, "in_a_row": 2}]
    assert worst(of("nonfinite", rows(loss=[0.1] * 3), twice)) == ("critical", "")


def told(facts: ProcessFacts, policy: MonitorPolicy | None = None) -> list[str]:
    monitor = Monitor(policy, PLAN)
    monitor.add_row({"step": 1, "seconds": {"generate": 40.0}})
    return [one.name for one in monitor.look_at_process(facts)]


def test_process_by_class_and_heartbeat() -> None:
    assert told(ProcessFacts(failure=Failure(kind="killed", message="by SIGKILL", exit_code=-9))) == ["crash:killed"]
    assert told(ProcessFacts(failure=Failure(kind="ValueError", message="out of memory"))) == ["crash:ValueError"]
    assert told(ProcessFacts(failure=Failure(kind="oom", message="no words needed"))) == ["oom"]
    assert told(ProcessFacts(failure=Failure(kind="nonfinite", message="twice"))) == ["nonfinite"]
    # 5 x 40 s of a step are more than 120 s
    assert told(ProcessFacts(heartbeat_age_s=199.0)) == []
    assert told(ProcessFacts(heartbeat_age_s=201.0)) == ["stall"]
    assert told(ProcessFacts(active=False, heartbeat_age_s=9999.0)) == []
    assert told(ProcessFacts()) == []


# ---- the list


def test_the_catalogue_is_complete_and_each_row_described() -> None:
    assert [one.id for one in CATALOGUE] == list(NAMES)
    assert sorted(one.number for one in CATALOGUE) == list(range(1, 34))
    policy = MonitorPolicy.shipped()
    for detector in CATALOGUE:
        assert detector.rule
        assert detector.source
        assert detector.occasions <= set(Occasion)
        if detector.id not in ("crash", "oom"):
            assert policy.limits(detector.id), f"{detector.id} has thresholds in the policy"
    assert {one.id for one in CATALOGUE if one.severity is Severity.INFO} == {"reward_plateau", "lr_flat"}
    assert BY_ID["truncation"].needs == ("truncated_rate",)


def test_thresholds_come_from_the_policy() -> None:
    lines = rows(truncated_rate=[0.06] * 6)
    assert [one.detector for one in watch(lines, plan=PLAN).alerts] == ["truncation"]
    looser = MonitorPolicy.shipped().with_values(truncation={"warn": 0.1})
    assert watch(lines, plan=PLAN, policy=looser).alerts == []
