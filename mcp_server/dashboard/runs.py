"""Documents about runs: the list, one run, its steps as they come in, its findings."""

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcp_server.answers import clip
from mcp_server.dashboard.shaping import Question, paged
from mcp_server.dashboard.source import Source
from mcp_server.views.runs import alert_views, seconds_per_step

if TYPE_CHECKING:
    from optimizer.analyze.advice import Advice
    from optimizer.types import Finding
    from trainer.config import TrainingConfig
    from trainer.runs.registry import Run
    from trainer.runs.types import Eval, RunDocument

MAX_POINTS = 600
"""Steps of one answer; of more, neighbours are averaged."""

SPARK_POINTS = 40

SERIES = (
    "reward_mean", "reward_std", "entropy", "kl", "grad_norm", "loss", "learning_rate", "completion_mean",
    "completion_max", "turns_mean", "tool_call_rate", "parse_ok_rate", "finish_rate", "truncated_rate",
    "env_error_rate", "frac_zero_variance", "frac_groups_all_one", "frac_groups_all_zero", "clip_low", "clip_high",
    "ess", "unique_completions", "uplift", "reward_guided", "reward_unguided",
)  # fmt: skip
"""What is drawn, as the run's metrics name it."""

PHASES = ("generate", "environment", "logprob", "update", "other")
"""Seconds of a step."""


def run_list(source: Source, question: Question) -> dict[str, Any]:
    """Runs, the newest first."""
    from trainer.runs.registry import list_runs

    shown, page = paged(list_runs(source.workspace()), question, 30)
    return {"runs": [_row(source, run) for run in shown], **page}


def _row(source: Source, run: "Run") -> dict[str, Any]:
    document = run.document
    rows = source.rows(run.directory)
    rewards = [row["reward_mean"] for row in rows if _is_number(row.get("reward_mean"))]
    config = _config_of(run)
    return {
        **_state(document),
        "request": None if document.request is None else clip(document.request, 200),
        "model": None if config is None else config.model,
        "env": None if config is None else config.env,
        "created_at": document.created_at,
        "seconds": document.seconds,
        "before": _eval(document.eval.get("before")),
        "after": _eval(document.eval.get("after")),
        "reward": rewards[-1] if rewards else None,
        "spark": [round(one, 4) for one in _bunched(rewards, SPARK_POINTS)],
    }


def _state(document: "RunDocument") -> dict[str, Any]:
    return {
        "run_id": document.run_id,
        "state": document.state.value,
        "final": document.state.is_final,
        "verdict": None if document.verdict is None else document.verdict.value,
        "stop_reason": document.stop_reason,
        "step": document.step,
        "planned_steps": document.planned_steps,
    }


def _config_of(run: "Run") -> "TrainingConfig | None":
    from trainer.runs.errors import RunError

    try:
        return run.directory.read_config()
    except RunError:
        return None


def _eval(found: "Eval | None") -> dict[str, Any] | None:
    if found is None:
        return None
    return {"mean": found.mean, "ci95": list(found.ci95), "n": found.n, "split": found.split}


def run_page(source: Source, run_id: str) -> dict[str, Any]:
    """Everything about one run but its steps and episodes."""
    run = source.run(run_id)
    document = run.document
    config = _config_of(run)
    findings, advice = _findings(source, run)
    return {
        **_state(document),
        "request": document.request,
        "created_at": document.created_at,
        "started_at": document.started_at,
        "ended_at": document.ended_at,
        "seconds": document.seconds,
        "device": document.device,
        "parameters": document.parameters,
        "profile": document.profile,
        "skill_versions": document.skill_versions,
        "packages": document.packages,
        "parent_run": document.parent_run,
        "round": document.round,
        "session": document.session,
        "failure": None if document.failure is None else document.failure.model_dump(mode="json"),
        "evals": {when: _eval(document.eval.get(when)) for when in ("before", "validation", "after")},
        "config": [] if config is None else _settings(config, document.provenance),
        "findings": [_finding(one) for one in findings],
        "advice": [one.sentence for one in advice],
        "episodes": len(run.directory.episode_steps()),
    }


def _settings(config: "TrainingConfig", provenance: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each field with where its value came from; what somebody chose stands before the defaults."""
    rows = []
    for name, value in config.model_dump(mode="json").items():
        origin = provenance.get(name, {})
        source = str(origin.get("source", "default"))
        rows.append({"field": name, "value": value, "source": source, "detail": origin.get("detail")})
    return sorted(rows, key=lambda row: row["source"] == "default")


def _findings(source: Source, run: "Run") -> "tuple[list[Finding], list[Advice]]":
    """What held the run back, by the policies in force; nothing before it is over or without a skill bank."""
    from mcp_server.findings.advising import findings_and_advice
    from skill_bank.types import BankError
    from trainer.runs.errors import RunError

    home = source.home()
    if home is None or not run.document.state.is_final:
        return [], []
    try:
        return findings_and_advice(home, run.directory)
    except (RunError, BankError):  # a run without steps, or with files that cannot be read, shows nothing
        return [], []


def _finding(one: "Finding") -> dict[str, Any]:
    lever = None if one.lever is None else one.lever.model_dump(mode="json")
    return {
        "id": one.id,
        "kind": one.kind,
        "what": one.what,
        "confidence": one.confidence,
        "lever": lever,
        "blocked": one.blocked,
    }


def run_steps(source: Source, run_id: str, question: Question) -> dict[str, Any]:
    """The steps after `since`, evaluations and alerts: what a page asks for again and again while the run goes on."""
    run = source.run(run_id)
    document = run.document
    since = question.number("since", 0, 0, 10**9)
    rows = source.rows(run.directory)
    new = [row for row in rows if row["step"] > since]
    bunches = _bunches(new, MAX_POINTS)
    pace = seconds_per_step(rows)
    left = None
    if not document.state.is_final and pace is not None and document.planned_steps:
        left = pace * max(0, document.planned_steps - (rows[-1]["step"] if rows else 0))
    return {
        **_state(document),
        "since": since,
        "last": rows[-1]["step"] if rows else 0,
        "steps": [bunch[-1]["step"] for bunch in bunches],
        "series": _series(bunches),
        "evals": source.evaluations(run.directory),
        "alerts": [one.model_dump(mode="json") for one in alert_views(source.alerts(run.directory))],
        "seconds_per_step": pace,
        "seconds_left": left,
        "stop_asked": run.directory.stop_reason() if not document.state.is_final else None,
    }


def _series(bunches: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, list[float | None]]:
    """Each measured quantity over the steps; one that was never measured is left out."""
    found: dict[str, list[float | None]] = {}
    for name in SERIES:
        values = [_mean([row.get(name) for row in bunch]) for bunch in bunches]
        if any(value is not None for value in values):
            found[name] = values
    for phase in PHASES:
        values = [_mean([_phase(row, phase) for row in bunch]) for bunch in bunches]
        if any(value is not None for value in values):
            found[f"seconds.{phase}"] = values
    return found


def _phase(row: Mapping[str, Any], phase: str) -> Any:
    seconds = row.get("seconds")
    return seconds.get(phase) if isinstance(seconds, Mapping) else None


def _mean(values: Sequence[Any]) -> float | None:
    """Mean of what was measured, to six significant digits; None where nothing was."""
    known = [value for value in values if _is_number(value)]
    return float(f"{statistics.fmean(known):.6g}") if known else None


def _bunched(values: Sequence[float], most: int) -> list[float]:
    return [statistics.fmean(bunch) for bunch in _bunches(values, most)]


def _bunches(items: Sequence[Any], most: int) -> list[Sequence[Any]]:
    """Neighbours in at most `most` bunches of nearly the same size."""
    count = min(most, len(items))
    return [items[place * len(items) // count : (place + 1) * len(items) // count] for place in range(count)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
